"""The page in a browser, for tests: opening a room, waiting for words, clicking a cell, keeping a picture.

With LANEWISE_PICTURES set to a folder, pictures of the rooms are written there; docs/explore.md has them.
"""

import base64
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lanewise.explore.kernel_requests import KernelRequest, requested
from lanewise.explore.kernel_views import view_of
from lanewise.explore.server import ExploreServer

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"

#: Milliseconds that a page may take for anything: minutes, because the machine may be busy.
PATIENCE = 600_000
NewPage = Callable[..., Any]


def open_room(page: Any, server: ExploreServer, fragment: str, ready: str = "main canvas") -> Any:
    """Open the page at a fragment and wait until a room shows something."""
    page.goto(f"{server.link}{fragment}")
    page.wait_for_selector(ready)
    return page


@functools.cache
def instructions_of(example: str) -> list[str]:
    """The instruction of every step of an example, recorded in this process and not by the page."""
    with requested(KernelRequest(example=example, grid="", block="")) as launch:
        return [step.text for step in view_of(launch).trace.steps]


def step_behind(example: str, opcode: str) -> int:
    """The first step of an example behind the last instruction whose name begins so."""
    instructions = instructions_of(example)
    return max(number for number, text in enumerate(instructions) if text.startswith(opcode)) + 1


#: Makes WebP of a PNG in the browser, as small as a page of documentation likes it.
TO_WEBP = """async (png) => {
    const picture = await createImageBitmap(await (await fetch("data:image/png;base64," + png)).blob());
    const canvas = new OffscreenCanvas(picture.width, picture.height);
    canvas.getContext("2d").drawImage(picture, 0, 0);
    const made = await canvas.convertToBlob({ type: "image/webp", quality: 0.3 });
    return [...new Uint8Array(await made.arrayBuffer())];
}"""


def picture(page: Any, name: str) -> None:
    """Keep a picture of the page, where pictures are asked for."""
    folder = os.environ.get("LANEWISE_PICTURES")
    if folder:
        page.wait_for_timeout(200)
        size = page.viewport_size
        shown = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 760)}
        png = base64.b64encode(page.screenshot(clip=shown)).decode()
        blank = page.context.browser.new_page()  # the page itself may not read data: addresses
        Path(folder, f"explore_{name}.webp").write_bytes(bytes(blank.evaluate(TO_WEBP, png)))
        blank.close()


def wait_for_text(page: Any, selector: str, text: str) -> None:
    """Wait until an element has a text; wait_for_function would need eval, which the page does not allow."""
    page.locator(selector, has_text=text).first.wait_for()


def wait_for_address(page: Any, text: str) -> None:
    """Wait until the address has a text: the page writes it after what was clicked or pressed."""
    page.wait_for_url(lambda url: text in url)


def wait_until_told(page: Any, text: str) -> None:
    """Wait until the sentence beside the matrices has a text."""
    wait_for_text(page, "main .told", text)


def told(page: Any) -> str:
    """The sentence beside the matrices."""
    return str(page.locator("main .told").first.inner_text())


def cell(page: Any, caption: str, row: int, col: int) -> dict[str, Any]:
    """Where a cell of the matrix with this caption is, as a position on its canvas."""
    canvas = page.locator(".matrix", has_text=caption).first.locator("canvas")
    box = canvas.bounding_box()
    rows, cols = re.findall(r"(\d+) by (\d+)", canvas.get_attribute("aria-label"))[0]
    left = max(16, 7 * len(str(int(rows) - 1)) + 8)
    width, height = (box["width"] - left - 2) / int(cols), (box["height"] - 18) / int(rows)
    at = {"x": left + (col + 0.5) * width, "y": 16 + (row + 0.5) * height}
    return {"canvas": canvas, "position": at}


def click(page: Any, caption: str, row: int, col: int) -> None:
    found = cell(page, caption, row, col)
    found["canvas"].click(position=found["position"])
