"""A site that `lanewise explore --static` wrote, in a real browser: only files are asked for."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from explore_pages import LDMATRIX, MMA, WGMMA, NewPage, wait_for_text
from lanewise.explore import static_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A static site with a few instructions, served by Python's own server."""
    folder = tmp_path_factory.mktemp("site")
    wanted = {MMA, LDMATRIX, WGMMA}
    few = [
        (room, name, body)
        for room, name, body in static_site.questions()
        if name != "about" or body.get("text") in wanted or not body
    ]
    some = [
        each for each in few if each[1] not in ("descriptor", "tensor_map") or each[2].get("rows", 64) == 64
    ]
    trace = folder / "run one.html"
    trace.write_text("<title>kernel: a trace</title>")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_site, "questions", lambda: some)
        assert static_site.write_site(folder / "site", [trace]) > 50
    handler = partial(_Quiet, directory=str(folder / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}/"
        serving.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def test_the_static_site_shows_instructions_layouts_the_tour_and_traces(new_page: NewPage, site: str) -> None:
    page = new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.method))
    page.goto(f"{site}#/instructions?i={WGMMA}")
    page.wait_for_selector("[aria-label=Descriptors] canvas")
    assert "0x4000004000000040" in page.get_by_role("region", name="Descriptors").inner_text()
    page.goto(f"{site}#/layouts")
    page.wait_for_selector("#turns canvas")
    page.get_by_role("button", name="Sw<2,3,3>").click()
    wait_for_text(page, "#turns", "4 wavefronts: no conflicts")
    page.get_by_role("button", name="Accumulators of m16n8").click()
    page.wait_for_selector("[aria-label='Threads and values'] canvas")
    page.goto(f"{site}#/tour?page=swizzle")
    page.wait_for_selector("main canvas")
    page.goto(f"{site}#/kernels")
    page.wait_for_selector("text=kernel: a trace")
    assert "lanewise explore" in page.locator("main").inner_text()
    assert set(asked) == {"GET"}


def test_what_a_static_site_cannot_answer_is_told(browser: Any, site: str) -> None:
    page = browser.new_page()  # a file that is not there is an error in the console
    page.goto(f"{site}#/layouts?l=(7,7)")
    page.wait_for_selector("#answer .problem")
    assert "pip install lanewise" in page.locator("#answer .problem").inner_text()
    assert json.loads(page.evaluate("JSON.stringify(location.hash)")) == "#/layouts?l=(7,7)"
    page.close()
