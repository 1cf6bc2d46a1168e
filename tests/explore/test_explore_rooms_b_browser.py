"""The rooms Kernels and Bits in a real browser: stepping, links, keyboard, a phone, pictures for the docs.

It is skipped where Playwright or Chromium is not installed. With LANEWISE_PICTURES set to a folder, pictures
are written there.
"""

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everything import only_with_everything
from explore_pages import PATIENCE, instructions_of, step_behind
from lanewise.explore.server import ExploreServer

PICTURES = os.environ.get("LANEWISE_PICTURES")


@pytest.fixture(scope="module")
def link() -> Iterator[str]:
    with ExploreServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server.link
        server.shutdown()


@pytest.fixture
def room(browser: Any, link: str) -> Iterator[Any]:
    """Open a room by its fragment; an error on the console fails the test."""
    contexts, problems = [], []

    def noted(message: Any) -> None:
        # A browser itself notes each refusal of a question; the page tells it in words.
        if message.type == "error" and "status of 400" not in message.text:
            problems.append(message.text)

    def opened(fragment: str, size: tuple[int, int] = (1440, 900), scheme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, has_touch=size[0] < 600
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", noted)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(link + fragment)
        return page

    yield opened
    for each in contexts:
        each.close()
    assert problems == []


def picture(page: Any, name: str) -> None:
    """Write a picture for the docs, if they are asked for."""
    if PICTURES:
        page.wait_for_selector("text=ptxas assembles it", state="detached")
        page.evaluate("document.querySelectorAll('.lines').forEach((each) => { each.scrollLeft = 0; })")
        page.wait_for_timeout(400)
        page.screenshot(path=str(Path(PICTURES, f"explore_{name}.png")))


def contrast(page: Any, selector: str) -> float:
    """Return the contrast between a text and what is behind it, as WCAG defines it."""
    colours = page.evaluate(
        """(selector) => {
          let each = document.querySelector(selector);
          const found = [getComputedStyle(each).color];
          const clear = (one) => /, 0\\)$|transparent/.test(getComputedStyle(one).backgroundColor);
          while (each && clear(each)) each = each.parentElement;
          found.push(getComputedStyle(each ?? document.body).backgroundColor);
          return found.map((text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number));
        }""",
        selector,
    )
    bright = []
    for colour in colours:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(colour) / 255]
        bright.append(float(np.dot(linear, (0.2126, 0.7152, 0.0722))))
    return (max(bright) + 0.05) / (min(bright) + 0.05)


def ran(page: Any) -> Any:
    page.wait_for_selector(".result[data-step]")
    return page


def step_of(page: Any) -> int:
    return int(page.get_attribute(".result", "data-step"))


def press(page: Any, key: str) -> None:
    """Press a key and wait until the step that it leads to is drawn, in the next frame."""
    page.keyboard.press(key)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_steps_forwards_and_backwards_by_keyboard(room: Any) -> None:
    page = ran(room("#/kernels?example=hgemm&step=60"))
    assert step_of(page) == 60 and "warp 0" in page.inner_text(".where")
    press(page, "ArrowRight")
    assert step_of(page) == 61
    press(page, "ArrowLeft")
    press(page, "ArrowLeft")
    assert step_of(page) == 59
    press(page, "End")
    last = len(instructions_of("hgemm")) - 1
    assert step_of(page) == last
    page.wait_for_function(f"() => location.hash.includes('step={last}')")
    press(page, "Home")
    assert step_of(page) == 0


def test_a_step_is_drawn_at_once(room: Any) -> None:
    for example, tab in (("hgemm", "registers"), ("transpose", "shared"), ("tma-wgmma", "shared")):
        page = ran(room(f"#/kernels?example={example}&tab={tab}&step=100"))
        milliseconds = page.evaluate(
            """async () => {
              const frame = () => new Promise((done) => requestAnimationFrame(done));
              const times = [];
              for (let n = 0; n < 12; n++) {
                const start = performance.now();
                const key = new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true });
                document.body.dispatchEvent(key);
                await frame();
                document.body.offsetHeight;
                times.push(performance.now() - start);
              }
              return Math.min(...times); // others may use the processor too
            }"""
        )
        assert milliseconds < 100, (example, milliseconds)


def test_a_wrong_swizzle_is_seen(room: Any) -> None:
    page = ran(room("#/kernels?example=swizzle", size=(1440, 950)))
    page.click("[aria-label='PTX'] li:has-text('mma.sync')")  # the next step at this line
    page.wait_for_selector("[aria-label='PTX'] li.here:has-text('mma.sync')")
    page.click("role=tab[name='Fragments']")
    page.wait_for_selector("summary:has-text('a: 16 × 16 f16')")
    table = page.locator("details:has(summary:has-text('a: 16 × 16 f16')) table")
    row = table.locator("tbody tr").nth(2).inner_text().split()
    assert [int(each) for each in row] == [2, *range(40, 48), *range(32, 40)]
    table.locator("tbody tr").nth(2).locator("td").first.click()
    page.wait_for_selector(".origin details, .origin .leaf")
    page.wait_for_selector(".origin:has-text('Who wrote')")
    widths = "(list) => new Set([...list.children].map((each) => each.getBoundingClientRect().width)).size"
    assert page.locator("[aria-label='PTX']").evaluate(widths) == 1  # colours end where the longest line ends
    picture(page, "swizzle")


def test_a_missing_barrier_is_shown_first(room: Any) -> None:
    page = ran(room("#/kernels?example=barrier"))
    buttons = page.locator("button.finding").all_inner_texts()
    title, step = re.fullmatch(r"(.*) at step (\d+)", buttons[0]).groups()  # type: ignore[union-attr]  # else the test fails here
    assert step_of(page) == int(step)
    page.wait_for_selector(f"#inspected .problem:has-text('{title}')")
    page.wait_for_selector(".lines li.here")
    races = [each for each in buttons if each.startswith("race")]
    page.click(f"button.finding:has-text('{races[-1]}')")
    page.wait_for_selector(f".result[data-step='{races[-1].split()[-1]}']")
    page = ran(
        room("#/kernels?example=barrier&step=14&tab=shared")
    )  # the first read of what is not there yet
    page.wait_for_selector(".banks tbody tr")
    assert "·" in page.locator(".banks tbody tr").nth(1).inner_text()
    picture(page, "barrier")


def test_the_lane_that_does_not_add(room: Any) -> None:
    page = ran(room("#/kernels?example=scan"))
    page.click(".lines li:has-text('total += other')")
    page.wait_for_selector("[aria-label^='Source'] li.here:has-text('total += other')")
    page.wait_for_selector(".lanes i:not(.on)")
    assert page.locator(".lanes i.on").all_inner_texts() == [str(lane) for lane in range(2, 32)]
    picture(page, "scan")


def test_conflicts_are_red_and_the_mended_twin_has_none(room: Any) -> None:
    page = ran(room("#/kernels?example=transpose&tab=shared"))
    page.click("[aria-label='PTX'] li:has-text('ld.shared')")
    page.wait_for_selector("#inspected:has-text('32 wavefronts where 1 would do')")
    page.wait_for_selector(".banks td.conflict")
    assert page.locator(".banks td.conflict").count() == 32
    picture(page, "transpose")


def widths(page: Any) -> list[int]:
    found: list[int] = page.locator(".pane").evaluate_all("(all) => all.map((each) => each.offsetWidth)")
    return found


def test_lines_have_the_same_colour_in_python_ptx_and_sass(room: Any) -> None:
    page = ran(room("#/kernels?example=hgemm", size=(1400, 900)))
    page.wait_for_selector("[aria-label='SASS'] li.tinted")
    keys = [
        set(
            page.locator(f"[aria-label='{pane}'] li.tinted").evaluate_all(
                "(all) => all.map((e) => e.dataset.key)"
            )
        )
        for pane in ("Source hgemm.py", "PTX", "SASS")
    ]
    assert keys[0] == keys[1] and keys[2] <= keys[0] and len(keys[2]) > 8
    line = "li[data-key='hgemm.py:24']"
    hues = page.locator(line).evaluate_all("(all) => all.map((e) => e.style.getPropertyValue('--hue'))")
    assert len(hues) > 4 and len(set(hues)) == 1
    page.hover("[aria-label='Source hgemm.py'] li[data-line='24'] code")
    page.wait_for_selector(f"[aria-label='SASS'] {line}.linked")
    assert page.locator("li.linked").count() == len(hues)
    assert page.locator("[aria-label='PTX'] .is-keyword", has_text="ldmatrix").count() == 2


def test_panes_are_wide_and_can_be_made_wider(room: Any) -> None:
    page = ran(room("#/kernels?example=hgemm", size=(1400, 900)))
    page.wait_for_selector("[aria-label='SASS'] li.tinted")
    before = widths(page)
    assert len(before) == 3 and min(before) > 400
    bar = page.locator(".splitter").first
    box = bar.bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 154, box["y"] + 50, steps=4)
    page.mouse.up()
    dragged = widths(page)
    assert abs(dragged[0] - before[0] - 150) <= 4 and abs(dragged[2] - before[2]) <= 4
    bar.press("ArrowLeft")
    assert abs(widths(page)[0] - dragged[0] + 40) <= 4


def test_two_archs_side_by_side(room: Any) -> None:
    page = ran(room("#/kernels?example=transpose", size=(1400, 900)))
    page.click("role=button[name='+ another arch']")
    page.select_option("[aria-label='Arch of SASS of another arch']", "sm_90")
    for pane in ("SASS", "SASS of another arch"):
        page.wait_for_selector(f"[aria-label='{pane}'] li.tinted")
    assert page.locator(".pane").count() == 4


def test_lanes_stand_in_a_grid(room: Any) -> None:
    for size, wide in (((1400, 900), 16), ((390, 844), 8)):
        page = ran(room("#/kernels?example=hgemm&step=60", size=size))
        lanes = page.locator(".lane-grid").first.locator("> span")
        places = lanes.evaluate_all("(all) => all.map((each) => [each.offsetLeft, each.offsetTop])")
        assert len(places) == 32
        assert len({x for x, _ in places}) == wide and len({y for _, y in places}) == 32 // wide
    page.locator(".lane-grid .value").nth(5).click()
    page.wait_for_selector(".origin:has-text('lane 5')")


SCRIPT = """import numpy as np
import lanewise as lw

@lw.kernel
def twice(x: lw.Ptr[lw.i32]):
    x[lw.lane_id()] = 2 * x[lw.lane_id()]

twice[1, 32](np.arange(32, dtype=np.int32))
"""


def test_python_is_typed_edited_and_not_run_for_whoever_gets_the_link(room: Any) -> None:
    page = room("#/kernels?typed=1", size=(1400, 900))
    source = page.get_by_label("Source of the kernel")
    source.fill(SCRIPT)
    source.press("Control+Enter")
    page.wait_for_selector(".summary:has-text('twice')")
    page.wait_for_url(lambda url: "language=python" in url and "source=" in url)
    page.click("summary:has-text('Kernel and launch')")
    source.fill(SCRIPT.replace("np.arange(32,", "np.arange(31,"))
    page.click("text=Run and check")
    page.wait_for_selector(".summary .chip.bad")
    page.reload()  # what this tab has run it runs again
    page.wait_for_selector(".summary .chip.bad")
    other = room("#" + page.url.split("#", 1)[1], size=(1400, 900))
    other.wait_for_selector(".note:has-text('Read it')")
    assert other.locator(".result[data-step]").count() == 0
    assert "np.arange(31" in other.get_by_label("Source of the kernel").input_value()
    other.click("text=Run and check")
    other.wait_for_selector(".summary .chip.bad")


def test_an_example_s_script_can_be_edited(room: Any) -> None:
    page = ran(room("#/kernels?example=transpose", size=(1400, 900)))
    page.click("summary:has-text('Kernel and launch')")
    source = page.get_by_label("Source of the kernel")
    source.fill(source.input_value().replace("lw.shared(lw.f32, (32, 32))", "lw.shared(lw.f32, (32, 33))"))
    page.click("text=Run and check")
    page.wait_for_url(lambda url: "language=python" in url)
    page.wait_for_selector(".pane h3:has-text('kernel.py')")
    page.wait_for_selector(".summary .chip.yes")


def test_who_comes_through_a_proxy_is_offered_no_python(browser: Any, link: str) -> None:
    context = browser.new_context(extra_http_headers={"X-Forwarded-For": "10.0.0.7"})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{link}#/kernels?typed=1")
    page.wait_for_selector("form :text('served to others')")
    assert page.locator("button[data-language=python]").is_disabled()
    assert page.locator("button[data-language=ptx][aria-pressed=true]").count() == 1
    context.close()


def test_the_time_line_labels_its_axis(room: Any) -> None:
    """The numbers of the axis are drawn on a canvas: what it is told to write is listened to."""
    page = room("#/tour")
    page.wait_for_selector("main canvas")
    page.evaluate(
        """() => {
          window.written = [];
          const draw = CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            written.push(String(text));
            draw.call(this, text, ...rest);
          };
          location.hash = "#/kernels?example=hgemm&step=60";
        }"""
    )
    ran(page)
    assert {"step", "60", "100", "200"} <= set(page.evaluate("() => window.written"))


def test_a_typed_kernel_and_its_link(room: Any) -> None:
    page = room("#/kernels?typed=1")
    page.wait_for_selector("form textarea")
    page.click("role=button[name='PTX']")
    source = (Path(__file__).parents[2] / "src/lanewise/explore/examples/saxpy.ptx").read_text()
    page.fill("textarea >> nth=0", source)
    page.fill("textarea >> nth=1", "2\narange:f32:64\nones:f32:64\n64")
    page.fill("label:has-text('Block') input >> nth=0", "64")
    page.click("text=Run and check")
    page.wait_for_url(lambda url: "source=" in url)
    ran(page)
    address = page.url
    again = ran(room("#" + address.split("#", 1)[1]))
    again.wait_for_selector(".summary:has-text('saxpy')")
    again.click("summary:has-text('Kernel and launch')")
    again.fill("textarea >> nth=1", "2\nx.npy\nones:f32:64\n64")
    again.click("text=Run and check")
    again.wait_for_selector(".problem:has-text('the page reads no files')")


def test_kernels_on_a_phone_in_the_dark(room: Any) -> None:
    page = ran(room("#/kernels?example=pipeline&step=200", size=(390, 844), scheme="dark"))
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 390
    page.tap("role=button[name='Next']")
    page.wait_for_function("() => document.querySelector('.result').dataset.step === '201'")
    picture(page, "kernels_phone")


def test_hopper_shows_waits_copies_groups_and_the_fragment_of_four_warps(room: Any) -> None:
    step = step_behind("tma-wgmma", "wgmma.wait_group")
    page = ran(room(f"#/kernels?example=tma-wgmma&step={step}", scheme="dark"))
    legend = page.inner_text(".legend")
    assert all(each in legend for each in ("waits", "asynchronous copy", "wgmma in flight"))
    assert contrast(page, ".timeline .legend span") > 4.5  # also in the dark
    picture(page, "kernels_hopper")
    page.get_by_role("tab", name="Fragments").click()
    summary = page.inner_text("#inspected details >> nth=0")
    assert "d: 64 × 64 f32, held by warps 0 to 3" in summary
    rows = page.locator("#inspected tbody tr")
    assert rows.count() == 64 and rows.nth(40).locator("td").count() == 32
    cell = rows.nth(40).locator("td").nth(9)
    assert re.match(r"warp 2, lane \d+, %acc", cell.get_attribute("title"))
    shown = float(cell.inner_text())
    cell.click()
    page.wait_for_selector(".origin:has-text('made from 128 elements of A: A[40, 0]')")
    told = page.inner_text(".origin")
    assert "of B: B[0, 9]" in told and f"= {shown:g} " in told and "cp.async.bulk.tensor" in told


@only_with_everything
def test_blackwell_shows_tensor_memory(room: Any) -> None:
    step = next(n for n, text in enumerate(instructions_of("tcgen05")) if text.startswith("tcgen05.ld"))
    page = ran(room(f"#/kernels?example=tcgen05&step={step}"))
    page.get_by_role("tab", name="Tensor memory").click()
    note = page.inner_text("#inspected p >> nth=0")
    assert "Columns 0 to 63 are allocated" in note and "lanes 0 to 31, columns 0 to 31" in note
    canvas = page.locator("#inspected canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": 60, "y": box["height"] / 2})  # a word of the lower lanes
    page.wait_for_selector(".origin:has-text('made from 128 elements of A')")
    assert "computed asynchronously by step" in page.inner_text(".origin")
    page.get_by_role("tab", name="Step").click()
    assert "Tensor memory: reads tmem" in page.inner_text("#inspected")
    picture(page, "tensor_step")


def test_shared_memory_is_shown_with_its_swizzle_undone(room: Any) -> None:
    step = step_behind("tma-wgmma", "wgmma.wait_group")
    page = ran(room(f"#/kernels?example=tma-wgmma&step={step}&tab=shared"))
    page.get_by_role("button", name=re.compile("sA: f16")).click()
    # The last tile of A: columns 64 to 127 of the array, as the example makes it.
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 4, (64, 128))
    rows = page.locator("#inspected tbody tr")
    rows.nth(63).wait_for()
    assert rows.count() == 64
    for row in (0, 1, 7, 63):
        assert [int(each) for each in rows.nth(row).locator("td").all_inner_texts()] == a[row, 64:96].tolist()
    page.locator("input[aria-label='columns from of sA']").fill("32")
    page.wait_for_selector("#inspected thead th:has-text('32')")
    assert [int(each) for each in rows.nth(3).locator("td").all_inner_texts()] == a[3, 96:].tolist()
    picture(page, "kernels_unswizzled")


def test_who_waits_for_an_mbarrier_is_told(room: Any) -> None:
    page = ran(room("#/kernels?example=tma-wgmma&schedule=late&step=200&tab=step"))
    told = page.inner_text("#inspected")
    assert "warp 0 for the phase of parity 0 of the mbarrier full since step" in told
    assert "it lacks 16384 bytes" in told and "Asynchronous copies under way: 2, issued at step" in told


def test_bits_step_by_step(room: Any) -> None:
    page = room("#/bits")
    page.wait_for_selector(".gpus section >> nth=1")
    page.wait_for_selector(".result .note:has-text('H100 parts from A100')")
    assert page.locator(".gpus section").count() == 2 and page.locator(".digits .cut").count() >= 4
    picture(page, "bits")
    page.check("text=V100")
    page.wait_for_function("() => document.querySelectorAll('.gpus section').length === 3")
    page.wait_for_url(lambda url: "units=sm_70" in url)
    page.fill("input[aria-label='a[1]']", "one")
    page.keyboard.press("Tab")
    page.wait_for_selector(".problem:has-text('one: a number of f16 is wanted')")
    page.go_back()
    page.wait_for_selector(".gpus section")


def test_bits_finds_numbers_on_which_gpus_part(room: Any) -> None:
    page = room("#/bits?formats=f16,f16,f32&a=1&b=1&c=0&units=sm_70,sm_90", size=(390, 844))
    page.wait_for_selector(".gpus section >> nth=1")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    page.click("summary:has-text('Numbers, formats and GPUs')")
    page.click("text=Find numbers on which they part")
    page.wait_for_selector(".result .note:has-text('H100 parts from V100')")
