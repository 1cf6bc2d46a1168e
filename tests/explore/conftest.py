"""A server of the page in this process, and a page of it in a real browser that must not complain."""

import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from explore_pages import PATIENCE
from lanewise.explore.server import ExploreServer

#: Programs that can show the page, by the names that systems give them.
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def server() -> Iterator[ExploreServer]:
    """A server that runs for all tests."""
    with ExploreServer() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium; without one the test is skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if program is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """A function that makes pages; at the end none of them may have an error in its console."""
    complaints: list[str] = []
    contexts = []

    def make(width: int = 1280, height: int = 900, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: complaints.extend([message.text] * (message.type == "error")))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield make
    for context in contexts:
        context.close()
    # A refused question is a 400, which Chromium notes by itself; everything else is an error of the page.
    assert [each for each in complaints if "status of 400" not in each] == []
