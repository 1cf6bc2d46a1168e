"""The rooms Instructions, Layouts and Tour in a real browser: pointing, keys, links, phones, budgets."""

import re
from typing import Any

import pytest

import lanewise as lw
from explore_pages import (
    LDMATRIX,
    MMA,
    WGMMA,
    NewPage,
    cell,
    click,
    open_room,
    picture,
    told,
    wait_for_address,
    wait_for_text,
    wait_until_told,
)
from lanewise.explore.server import ExploreServer
from lanewise.explore.tour import tour

PHONE = {"width": 390, "height": 844, "has_touch": True, "is_mobile": True}
#: Bytes and files of the page, and questions that its first view asks.
MOST_BYTES, MOST_FILES, MOST_QUESTIONS = 500_000, 20, 2


# Instructions -------------------------------------------------------------------------------------------


def test_pointing_at_elements_and_lanes(new_page: NewPage, server: ExploreServer) -> None:
    page = open_room(new_page(), server, "")
    mma = lw.instruction(MMA)
    found = cell(page, "A: 16×16", 3, 9)
    found["canvas"].hover(position=found["position"])
    holder = mma.a.holder(3, 9)
    wait_for_text(page, ".told", "A[3][9]")
    assert f"lane {holder.lane}, register {holder.register}, slot {holder.slot}" in told(page)
    click(page, "C, D", 3, 4)
    wait_until_told(page, "Row 3 of A times column 4 of B, A from lanes 12–15, B from lanes 16–19")
    wait_for_address(page, "at=c,3,4")
    page.evaluate("document.querySelector('[aria-label=Fragments]').scrollIntoView()")
    picture(page, "instructions")
    page.get_by_role("spinbutton").fill("5")
    page.get_by_role("spinbutton").press("Enter")
    wait_until_told(page, "Lane 5 holds 8 of A, 4 of B, 4 of C, D")
    wait_for_address(page, "lane=5")
    assert "at=" not in page.url  # written together with the lane
    row, col = mma.d.element(lane=5, value=2)
    assert f"[{row}][{col}]" in page.locator("table", has_text="lane 5").first.inner_text()


def test_a_row_of_a_and_a_column_of_b_say_who_multiplies(new_page: NewPage, server: ExploreServer) -> None:
    page = open_room(new_page(), server, "#/instructions?row=3&col=4")
    owner = lw.instruction(MMA).d.holder(3, 4)
    wait_until_told(page, "D[3][4]: Row 3 of A times column 4 of B")
    assert f"summed into lane {owner.lane}, register {owner.register}" in told(page)
    row = cell(page, "A: 16×16", 5, 0)
    row["canvas"].click(position={"x": 6, "y": row["position"]["y"]})  # the number of row 5
    wait_for_address(page, "row=5")
    wait_until_told(page, "D[5][4]")


SEARCHES = {
    "bf16 m16n8k16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "HMMA.16816.F32": MMA,
    "LDSM x4": LDMATRIX,
    "wgmma m64n64k16 f16": WGMMA,
    "16x8x16 half": MMA,
    "fp8 RTX 4090": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "sm_75 imma": "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32",
}


def test_search_as_one_types(new_page: NewPage, server: ExploreServer) -> None:
    page = open_room(new_page(), server, "")
    for typed, first in SEARCHES.items():
        page.get_by_role("searchbox").fill("")
        page.get_by_role("searchbox").press_sequentially(typed)
        # The list follows the search within the same event, so that it is there when Enter comes.
        link = page.locator(".results a").first
        assert lw.instruction(link.inner_text().split("\n")[0].replace("n*", "n64")).text == first
        page.get_by_role("searchbox").press("Enter")
        wait_for_text(page, "main h2", first)
        names = page.locator("[aria-label=Archs] .yes").evaluate_all("(all) => all.map((e) => e.ariaLabel)")
        assert tuple(name.split(":")[0] for name in names) == lw.instruction(first).archs


def test_a_gpu_narrows_the_search_and_nonsense_is_a_sentence(
    new_page: NewPage, server: ExploreServer
) -> None:
    page = open_room(new_page(), server, "")
    page.get_by_role("searchbox").fill("wgmma A100")
    wait_for_text(page, "#count", "Nothing in the list fits on A100 (sm_80)")
    page.get_by_role("searchbox").fill("mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32")
    page.get_by_role("searchbox").press("Enter")
    page.wait_for_selector(".problem")
    assert "m16n8k17" in page.locator(".problem").inner_text()
    page.get_by_role("searchbox").fill("movmatrix")
    page.get_by_role("searchbox").press("Enter")
    page.wait_for_selector("main canvas")


def test_ldmatrix_goes_from_addresses_to_rows_to_registers(new_page: NewPage, server: ExploreServer) -> None:
    page = open_room(new_page(), server, f"#/instructions?i={LDMATRIX}")
    forward = page.get_by_role("button", name="One step forward")
    section = "[aria-label='Step by step']"
    wait_for_text(page, section, "Lanes 0 to 7 each give the address of one row of matrix 0")
    forward.click()
    wait_for_text(page, section, "all 32 banks once")
    forward.click()
    wait_for_text(page, section, "go to register 0 of lanes 0–31")
    wait_for_address(page, "step=2")
    picture(page, "ldmatrix")
    page.get_by_role("button", name="Play").click()
    wait_for_text(page, "main", "Lanes 8 to 15 each give")
    page.get_by_role("button", name="Pause").click()


@pytest.mark.parametrize(
    "text", ["stmatrix.sync.aligned.m8n8.x2.shared.b16", "movmatrix.sync.aligned.m8n8.trans.b16"]
)
def test_stmatrix_and_movmatrix_step_too(new_page: NewPage, server: ExploreServer, text: str) -> None:
    page = open_room(new_page(), server, f"#/instructions?i={text}&step=1")
    words = (
        "give their register 0" if "stmatrix" in text else "Row 1 of A, in lanes 4–7, becomes column 1 of D"
    )
    wait_for_text(page, "[aria-label='Step by step']", words)


def test_descriptors_and_tensor_copies_of_wgmma(new_page: NewPage, server: ExploreServer) -> None:
    page = open_room(new_page(), server, f"#/instructions?i={WGMMA}", "[aria-label=Descriptors] canvas")
    section = page.get_by_role("region", name="Descriptors")
    wait_for_text(page, "[aria-label=Descriptors]", "0x4000004000000040")
    section.get_by_label("Swizzle").select_option("64B")
    wait_for_text(page, "[aria-label=Descriptors]", "0x8000")
    section.get_by_label("Show").select_option("1")
    wait_for_text(page, "[aria-label=Descriptors]", "mbarrier expects")
    page.evaluate("document.querySelector('[aria-label=Descriptors]').scrollIntoView()")
    picture(page, "wgmma")
    page.goto(f"{server.link}#/instructions?i={WGMMA}&number=0x4000004000000041&step=3")
    wait_for_text(page, "[aria-label=Descriptors]", "Row 3 lies at")


def test_volta_has_fragments_of_its_own(new_page: NewPage, server: ExploreServer) -> None:
    text = "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16"
    page = open_room(new_page(), server, f"#/instructions?i={text}&at=a,1,0")
    wait_until_told(page, f"A[1][0] is in lane {lw.instruction(text).a.holder(1, 0).lane},")
    page.get_by_label("Fragments as on").focus()
    page.get_by_label("Fragments as on").select_option("sm_70")
    wait_for_text(page, ".note", "Fragments of sm_70")
    assert page.evaluate("document.activeElement.tagName") == "SELECT"  # the choice keeps the focus
    click(page, "A: 16×16", 1, 0)
    lanes = {each.lane for each in lw.instruction(text).on("sm_70").a.holders(1, 0)}
    wait_until_told(page, f"lane{'s' if len(lanes) > 1 else ''} {min(lanes)}")


def test_code_to_copy(new_page: NewPage, server: ExploreServer) -> None:
    page = new_page(permissions=["clipboard-read", "clipboard-write"])
    open_room(page, server, "#/instructions?code=CUDA+C%2B%2B")
    panel = page.get_by_role("tabpanel")
    wait_for_text(page, "[role=tabpanel]", "asm volatile")
    panel.get_by_role("button", name="Copy").click()
    wait_for_text(page, "[role=tabpanel] .copy", "Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("#include <cstdint>")
    page.get_by_role("tab", name="CuTe").click()
    wait_for_text(page, "[role=tabpanel]", "SM80_16x8x16_F32F16F16F32_TN")


# Layouts ------------------------------------------------------------------------------------------------


def test_a_layout_its_conflicts_and_the_proposal_that_removes_them(
    new_page: NewPage, server: ExploreServer
) -> None:
    page = open_room(new_page(), server, "#/layouts", "#turns canvas")
    wait_for_text(page, "#turns", "16 wavefronts where 4 would do")
    page.evaluate("document.querySelector('#banks').scrollIntoView()")
    picture(page, "layouts")
    page.get_by_role("button", name="Sw<2,3,3>").click()
    wait_for_text(page, "#turns", "4 wavefronts: no conflicts")
    assert page.locator("#layout").input_value() == "Sw<2,3,3> o (16,32):(32,1)"
    link = page.url
    page.goto(f"{server.link}#/tour")
    page.goto(link)
    wait_for_text(page, "#turns", "4 wavefronts: no conflicts")


def test_expressions_are_drawn_as_one_types(new_page: NewPage, server: ExploreServer) -> None:
    page = open_room(new_page(), server, "#/layouts", "#turns canvas")
    page.locator("#layout").fill("A = (8,16):(16,1)\nzipped_divide(A, (4,8))")
    wait_for_text(page, "#answer", "((4,8),(2,2)):((16,1),(64,8))")
    page.locator("#layout").fill("zipped_divide(A")
    page.wait_for_selector("#answer .problem")
    page.locator("#layout").fill("(32,32):(32,1)")
    page.get_by_label("Element 8").select_option("32")
    page.get_by_label("Access").select_option("across")
    page.get_by_label("Each lane reads").select_option("1")
    wait_for_text(page, "#turns", "32 wavefronts where 1 would do")
    page.get_by_label("Access").select_option("lanes")
    page.get_by_placeholder("(16,2)").fill("32:32")
    page.get_by_placeholder("(16,2)").press("Enter")
    wait_for_text(page, "#turns", "1 wavefront: no conflicts")


# Tour ---------------------------------------------------------------------------------------------------


def test_the_tour_from_its_first_page_to_its_last(new_page: NewPage, server: ExploreServer) -> None:
    page = open_room(new_page(), server, "#/tour")
    click(page, "A: 16×16", 3, 9)
    page.wait_for_selector(".task.done")
    page.evaluate("scrollTo(0, 0)")
    picture(page, "tour")
    page.get_by_role("link", name="Next").click()
    page.wait_for_selector("main input[type=range]")
    page.locator("main input[type=range]").fill(str(lw.instruction(MMA).b.holder(9, 3).lane))
    page.wait_for_selector(".task.done")
    seen = []
    for title in [each["title"] for each in tour()[2:7]]:
        page.get_by_role("link", name="Next").click()
        wait_for_text(page, "main h1", title)
        page.wait_for_selector("main canvas")
        seen.append(page.locator("main h1").inner_text())
        for button in page.locator("[aria-label=Layouts] button").all():
            button.click()
        if page.locator("[aria-label=Layouts] button").count():
            page.wait_for_selector(".task.done")
    page.get_by_role("link", name="Next").click()
    wait_for_text(page, "main h1", "And now a kernel")
    assert len(set(seen)) == 5
    page.go_back()
    wait_for_text(page, "main h1", seen[-1])


# Both sizes ---------------------------------------------------------------------------------------------


def bottoms(page: Any) -> dict[str, float]:
    """Where each matrix of an instruction ends, in pixels from the top of the window."""
    found: dict[str, float] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".operands .matrix")].map((each) =>
        [each.querySelector("figcaption").textContent, each.getBoundingClientRect().bottom]))"""
    )
    return found


FORMS = [
    MMA,
    WGMMA,
    "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "tcgen05 m64n16k16 bf16",
    "umma m256n256k16 bf16",
    "umma nvfp4 m128n32k64",
]


@pytest.mark.parametrize("text", FORMS)
def test_all_operands_are_above_the_fold(new_page: NewPage, server: ExploreServer, text: str) -> None:
    page = open_room(new_page(1400, 900), server, f"#/instructions?i={text}")
    ends = bottoms(page)
    assert {"A", "B"} <= {name[0] for name in ends} and max(ends.values()) <= 900, ends
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400
    rows = page.locator("[aria-label=Archs] .chip").evaluate_all(
        "(all) => [...new Set(all.map((each) => each.offsetTop))].length"
    )
    assert rows == 1


#: The first view of each room, what its picture is, and how much of it a phone shows at once.
PICTURES = {
    "instructions": ("#/instructions", ".matrix canvas", 0.9),
    "ldmatrix": (f"#/instructions?i={LDMATRIX}", "main canvas", 0.5),
    "layouts": ("#/layouts", ".matrix canvas", 0.9),
    "bits": ("#/bits", ".gpus .aligned", 0.9),
    "kernels": ("#/kernels", ".panes", 0.6),
    "tour": ("#/tour", ".matrix canvas", 0.3),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_phone_shows_the_picture_of_each_room_at_once(
    new_page: NewPage, server: ExploreServer, name: str
) -> None:
    fragment, selector, part = PICTURES[name]
    page = open_room(new_page(**PHONE), server, fragment, selector)
    if name == "kernels":
        page.wait_for_selector(".result[data-step]")
    box = page.locator(selector).first.bounding_box()
    shown = min(PHONE["height"], box["y"] + box["height"]) - box["y"]
    assert shown >= part * box["height"], (box, shown)


# everywhere ---------------------------------------------------------------------------------------------

#: States of the rooms, and what says that each is there.
STATES = {
    "#/instructions?at=a,3,9": (".told", "A[3][9] is in lane 12"),
    f"#/instructions?i={LDMATRIX}&step=4": (".told", "rows of matrix 1"),
    f"#/instructions?i={WGMMA}&lane=77": ("[aria-label=Descriptors]", "start_address"),
    "#/layouts?l=(16,64):(64,1)": ("#turns", "32 wavefronts where 4 would do"),
    "#/tour?page=swizzle": (".told", "wavefronts"),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(
    new_page: NewPage, server: ExploreServer, scheme: str
) -> None:
    page = new_page(**PHONE, color_scheme=scheme)
    for state, (selector, text) in STATES.items():
        open_room(page, server, state)
        wait_for_text(page, selector, text)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], state
        small = page.evaluate(
            "[...document.querySelectorAll('main button, main select, header a')]"
            ".filter(e => e.offsetHeight && e.offsetHeight < 28).map(e => e.textContent)"
        )
        assert small == [], state
        if scheme == "dark" and state == next(iter(STATES)):
            page.evaluate("document.querySelector('[aria-label=Fragments]').scrollIntoView()")
            picture(page, "phone")


def test_by_touch(new_page: NewPage, server: ExploreServer) -> None:
    page = open_room(new_page(**PHONE), server, "")
    found = cell(page, "A: 16×16", 3, 5)
    found["canvas"].tap(position=found["position"])
    wait_until_told(page, "A[3][5] is in lane 14")


def test_by_keyboard_alone(new_page: NewPage, server: ExploreServer) -> None:
    page = open_room(new_page(), server, "")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("movmatrix")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    wait_for_text(page, "main h2", "movmatrix")
    assert page.evaluate("document.activeElement.textContent").startswith("movmatrix")  # still in the list
    page.keyboard.press("Escape")
    page.goto(f"{server.link}#/instructions")
    wait_for_text(page, "main h2", "m16n8k16")
    for _ in range(150):
        page.keyboard.press("Tab")
        label = page.evaluate("document.activeElement.getAttribute('aria-label') ?? ''")
        if label.startswith("A: 16×16"):
            break
    else:
        pytest.fail("no Tab leads to A")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert told(page).startswith("A[2][1] is in lane 8")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("at=a,2,1"))
    page.keyboard.press("r")
    page.wait_for_url(re.compile("row=2"))
    page.keyboard.press("Escape")
    page.wait_for_url(lambda url: "row=" not in url)


def test_everything_has_a_name_for_screen_readers(new_page: NewPage, server: ExploreServer) -> None:
    page = new_page()
    for state, (selector, text) in STATES.items():
        open_room(page, server, state)
        wait_for_text(page, selector, text)
        nameless = page.evaluate(
            """[...document.querySelectorAll('input, select, textarea, button, a, canvas')]
            .filter(e => !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim()))
            .map(e => e.outerHTML)"""
        )
        assert nameless == []
        assert page.locator("h1").count() == 1 and page.locator("main").count() == 1
        assert page.locator("nav [aria-current=page]").count() == 1


def test_links_and_the_back_button_restore_what_was_seen(new_page: NewPage, server: ExploreServer) -> None:
    page = open_room(new_page(), server, "#/instructions?lane=7")
    wait_until_told(page, "Lane 7 holds")
    page.get_by_role("link", name="Layouts").click()
    page.wait_for_selector("#turns canvas")
    page.go_back()
    wait_until_told(page, "Lane 7 holds")
    for wrong in (
        "#/nowhere?x=1",
        "#/instructions?lane=999&at=zz,1,2&row=x&step=-5",
        "#/tour?page=none",
        "#%%%",
    ):
        page.goto(f"{server.link}{wrong}")
        page.wait_for_selector("main canvas")


def test_twenty_quick_clicks_in_two_tabs(new_page: NewPage, server: ExploreServer) -> None:
    tabs = [open_room(new_page(), server, "#/instructions?q=ldmatrix") for _ in range(2)]
    for number in range(20):
        for tab in tabs:
            tab.evaluate("n => document.querySelectorAll('.results a')[n].click()", number % 10)
    for tab in tabs:
        last = tab.locator(".results a").nth(9).inner_text().split("\n")[0]
        wait_for_text(tab, "main h2", last)
        tab.locator("nav a").nth(1).click()
        tab.locator("nav a").nth(4).click()
        tab.locator("nav a").nth(1).click()
        tab.wait_for_selector("#turns canvas")
        assert tab.locator("h1").count() == 1


def test_a_server_that_ended_is_told(browser: Any, server: ExploreServer) -> None:
    page = open_room(browser.new_page(), server, "#/layouts", "#turns canvas")
    page.route("**/api/**", lambda route: route.abort())  # an error in the console, by Chromium itself
    page.locator("#layout").fill("(4,4)")
    wait_for_text(page, "#answer .problem", "Is `lanewise explore` still running?")
    page.close()


def test_nothing_is_fetched_from_elsewhere_and_the_page_is_small(
    new_page: NewPage, server: ExploreServer
) -> None:
    page = new_page()
    sizes: dict[str, int] = {}
    page.on("response", lambda response: sizes.update({response.url: len(response.body())}))
    open_room(page, server, "")
    assert all(url.startswith(server.link) for url in sizes)
    assert sum(sizes.values()) < MOST_BYTES
    assert sum(map(len, server.files.values())) < MOST_BYTES


def test_the_first_view_and_a_picture_ask_for_little(new_page: NewPage, server: ExploreServer) -> None:
    """What the page waits for is counted; how long that takes depends on the machine."""
    page = new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(server.link)))
    open_room(page, server, "")
    assert len(asked) <= MOST_FILES + MOST_QUESTIONS
    assert sum(each.startswith("api/") for each in asked) <= MOST_QUESTIONS
    for link in page.locator(".results a").all()[1:6]:
        text = str(link.evaluate("(link) => link.firstChild.textContent"))
        asked.clear()
        link.click()
        wait_for_text(page, "main h2", text)
        assert sum(each.startswith("api/") for each in asked) <= 1, asked
