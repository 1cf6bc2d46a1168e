"""The pictures of the pages, drawn again: `python docs/images/make.py [folder]`.

Layouts and instructions draw themselves; the pipeline and the plot of the ladder are drawn here, the plot of
the products' speed by `speed.py`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from speed import speed

import lanewise as lw

HERE = Path(__file__).parent
FIGURES = HERE.parents[1] / "benchmarks" / "results" / "h200_ladder.json"
SPEEDS = FIGURES.with_name("h200_matmul.json")
FONT = "DejaVu Sans Mono,Menlo,Consolas,Liberation Mono,monospace"
BLUE, GREEN, YELLOW, GREY, INK = "#a9caf2", "#b7e1a1", "#ffe28a", "#d9d9d9", "#1a1a1a"

mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
TILE = lw.Layout((16, 32), (32, 1))  # the upper half of a tile of A: rows of 32 f16, 64 bytes
#: 8 × 4 tiles of C: the number of the block that computes each, row by row and in groups of four rows.
IN_ROWS = lw.Layout((8, 4), (4, 1))
IN_GROUPS = lw.Layout(((4, 2), 4), ((1, 16), 4))


def pictures() -> dict[str, Any]:
    """What draws itself, by the name of its file, with the options it is drawn with."""
    swizzled = lw.ComposedLayout(lw.Swizzle(2, 3, 3), 0, TILE)
    tiled = lw.make_tiled_mma(lw.atom("SM80_16x8x16_F32F16F16F32_TN"), (2, 2, 1), (32, 32, 16))
    return {
        "fragment.svg": (mma, {"lane": 5}),
        "ldmatrix.svg": (lw.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16"), {}),
        "banks_plain.svg": (lw.draw.bank_map(TILE, 16), {}),
        "banks_swizzled.svg": (lw.draw.bank_map(swizzled, 16), {}),
        "order_rows.svg": (IN_ROWS, {}),
        "order_groups.svg": (IN_GROUPS, {}),
        "tiled_mma.svg": (tiled, {}),
        "tensor_map.svg": (lw.tensor_map(np.zeros((1000, 200), np.float16), (8, 64), swizzle="128B"), {}),
        "descriptor.svg": (lw.draw.described_matrix(0x4000_0040_0000_0040, rows=16), {}),
    }


def text(x: float, y: float, words: str, size: int = 12, **attributes: str) -> str:
    """A line of an SVG."""
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{INK}"{more}>{words}</text>'


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """A rectangle of an SVG."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" fill="{fill}" stroke="#8a8a8a"/>'
    )


def document(width: int, height: int, title: str, lines: list[str]) -> str:
    """An SVG on white."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="{FONT}">'
    )
    body = [head, f"<title>{title}</title>", f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    return "\n".join([*body, text(14, 26, title, 14, font_weight="bold"), *lines, "</svg>"]) + "\n"


def stages(count: int = 4, steps: int = 8) -> str:
    """Which tile is where in a pipeline: multiplied, on its way, or waiting to be overwritten."""
    wide, high, left, top = 84, 30, 90, 62
    lines = [
        text(left + s * wide + wide / 2, top - 8, f"step {s}", text_anchor="middle") for s in range(steps)
    ]
    for stage in range(count):
        y = top + stage * high
        lines.append(text(14, y + 20, f"stage {stage}"))
        for step in range(steps):
            ahead = (stage - step) % count  # 0 is multiplied; count - 1 is asked for in this step
            fill = GREEN if ahead == 0 else YELLOW if ahead == count - 1 else BLUE
            lines.append(box(left + step * wide, y, wide, high, fill))
            lines.append(
                text(left + (step + 0.5) * wide, y + 20, f"tile {step + ahead}", text_anchor="middle")
            )
    y = top + count * high + 16
    legend = (GREEN, "multiplied"), (YELLOW, "its copy begins"), (BLUE, "on its way, or here already")
    for number, (fill, words) in enumerate(legend):
        lines += [box(left + number * 170, y, 16, 16, fill), text(left + 22 + number * 170, y + 13, words)]
    return document(left + steps * wide + 14, y + 30, f"A pipeline of {count} stages", lines)


def plot(figures: dict[str, Any]) -> str:
    """The rungs as bars beside torch.matmul."""
    rows = [
        (f"{row['rung']}  {row['adds']}", row["tflops"], row["share_of_torch"]) for row in figures["rungs"]
    ]
    rows.append(("   torch.matmul", figures["torch_tflops"], 1.0))
    left, wide, high, top = 470, 330, 30, 44
    longest = max(value for _, value, _ in rows)
    lines = []
    for number, (name, value, share) in enumerate(rows):
        y, length = top + number * high, value / longest * wide
        lines.append(text(14, y + 19, name, xml_space="preserve").replace("xml-space", "xml:space"))
        lines.append(box(left, y + 4, length, high - 8, GREY if number == len(rows) - 1 else BLUE))
        lines.append(text(left + length + 8, y + 19, f"{value:.0f} ({share:.0%})"))
    title = f"{figures['device']}, {figures['size']}³ {figures['dtype']}: TFLOP/s (share of torch.matmul)"
    return document(left + wide + 110, top + len(rows) * high + 14, title, lines)


#: Rungs that are drawn as curves, and their colours; torch.matmul is black.
CURVES = {3: "#c9b458", 5: "#7fb069", 7: "#4a90d9", 9: "#b56fc4", 11: "#d1495b"}


def curves(runs: list[dict[str, Any]]) -> str:
    """TFLOP/s by the size of the matrices, a curve for each of some rungs and for torch.matmul."""
    runs = sorted(runs, key=lambda run: run["size"])
    left, top, wide, high = 60, 56, 480, 260
    fastest = [max(run["torch_tflops"], *(row["tflops"] for row in run["rungs"])) for run in runs]
    most = 100 * -(-max(fastest) // 100)
    lines = []
    for value in range(0, int(most) + 1, 200):
        y = top + high - value / most * high
        lines.append(f'<path d="M{left} {y:.1f} H{left + wide}" stroke="{GREY}"/>')
        lines.append(text(left - 8, y + 4, str(value), 11, text_anchor="end"))
    at = {run["size"]: left + n * wide / max(1, len(runs) - 1) for n, run in enumerate(runs)}
    for size, x in at.items():
        lines.append(text(x, top + high + 18, f"{size}³", 11, text_anchor="middle"))

    def curve(name: str, points: list[tuple[int, float]], colour: str, number: int) -> None:
        places = [(at[size], top + high - value / most * high) for size, value in points]
        path = " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)
        lines.append(text(left + wide + 30, top + 14 + 20 * number, name, 12, font_weight="bold"))
        lines.append(box(left + wide + 14, top + 4 + 20 * number, 12, 12, colour))

    curve("torch.matmul", [(run["size"], run["torch_tflops"]) for run in runs], INK, 0)
    for number, (rung, colour) in enumerate(reversed(CURVES.items()), 1):
        rows = [(run["size"], row["tflops"]) for run in runs for row in run["rungs"] if row["rung"] == rung]
        curve(f"rung {rung}", rows, colour, number)
    first = runs[0]
    title = f"{first['device']}: TFLOP/s of {first['dtype']}, sums in {first['accumulate']}"
    return document(left + wide + 150, top + high + 34, title, lines)


#: The life of a kernel: what is done, in which package, what comes out of it, and whether a later process
#: that finds the machine code on disk does it again.
LIFE = (
    ("lw.load, lw.cuda, @lw.kernel", "ptx · lang", "Module: functions, instructions, lines", True),
    ('module["k"][grid, block](…)', "launch", "a kernel, a shape, arguments", True),
    ("resolve names", "machine/program", "Op: an instruction and its record in the table", False),
    ("split into basic blocks", "machine/program", "BasicBlock: ends where lanes branch or wait", False),
    ("write steps and functions", "machine/compile", "threaded code; LLVM IR for the arithmetic", False),
    ("compile, keep on disk", "jit", "machine code under a digest of all sources", False),
    ("lay out memory", "machine/runtime", "records, frames, allocations with addresses", True),
    ("run blocks on all processors", "machine/codegen", "the scheduler follows steps, warp by warp", True),
    ("the last store, or a fault", "machine/runtime", "arrays changed in place; faults in words", True),
)


#: The walk of an operand of `lw.matmul`: what is done, in which file, what it is afterwards, and whether a
#: call that was made before does it again.
WALK = (
    ("lw.matmul(a, b, …)", "matmul.py", "Options: every keyword, once", True),
    ("a call that was made before?", "launch/known_calls.py", "then only addresses go to its launches", True),
    ("look at the array", "operands.py", "View: address, shape, strides, format", False),
    ("hold it to the rules", "rules.py", "Problem: an Operand each, k_major, leading", False),
    ("choose a plan", "planning/planner.py", "Plan: family, tile, stages, cluster, split", False),
    ("prepare launches", "launch/prepare.py", "Pointers: views of device memory", False),
    (
        "copy what TMA cannot take",
        "kernels/copies/launches.py",
        "aligned rows, along K, in a workspace",
        False,
    ),
    ("orient it", "orientation.py", "the kernel's A or B", False),
    ("make the launch", "kernels/hopper/launches.py", "Traits, a tensor map, arguments", False),
    ("load and multiply", "kernels/hopper/kernel.py", "a tile in shared memory, wgmma's operand", True),
)


def stations(title: str, rows: tuple[tuple[str, str, str, bool], ...], legend: tuple[str, str]) -> str:
    """Stations one below the other: what is done, where, and what comes out of it."""
    left, wide, high, gap, top = 14, 300, 34, 16, 48
    lines = []
    for number, (does, where, gives, always) in enumerate(rows):
        y = top + number * (high + gap)
        lines.append(box(left, y, wide, high, BLUE if always else YELLOW))
        lines.append(text(left + 10, y + 22, does))
        lines.append(text(left + wide + 16, y + 14, where, 11, font_weight="bold"))
        lines.append(text(left + wide + 16, y + 29, gives, 11))
        if number + 1 < len(rows):
            middle, end = left + wide / 2, y + high + gap
            arrow = f"M{middle:g} {y + high:g} V{end - 2:g} m-4 -5 l4 5 l4 -5"
            lines.append(f'<path d="{arrow}" stroke="{INK}" fill="none"/>')
    y = top + len(rows) * (high + gap)
    for number, (fill, words) in enumerate(zip((BLUE, YELLOW), legend, strict=True)):
        lines += [box(left + number * 150, y, 16, 16, fill), text(left + 22 + number * 150, y + 13, words)]
    return document(left + wide + 380, y + 30, title, lines)


class Warps:
    """A block of the Hopper kernel over time: its producer, two consumers that share tiles, and TMA's stores.

    Times are in steps of K of both consumers: alone, a consumer multiplies twice as fast.
    """

    stages, steps, tiles, skew = 4, 6, 3, 2
    tick, arrival, storing = 0.25, 1.0, 1.5

    def __init__(self) -> None:
        count = self.steps * self.tiles
        self.loads: list[tuple[float, float, int]] = []
        self.products: list[list[tuple[float, float, int]]] = [[], []]
        self.stores: list[list[tuple[float, float, int]]] = [[], []]
        full = [0.0] * count
        done, left, busy, began = [0, 0], [1.0, 1.0], [0.0, 0.0], [-1.0, -1.0]
        loaded, now = 0, 0.0
        while min(done) < count or max(busy) > now:
            rested = not self.loads or now >= self.loads[-1][0] + self.arrival / 2
            if rested and loaded < min(count, min(done) + self.stages):
                full[loaded] = now + self.arrival
                self.loads.append((now, now + self.arrival, loaded))
                loaded += 1
            working = [own for own in range(2) if self._multiplies(own, done, busy, full, now)]
            for own in working:
                began[own] = now if began[own] < 0 else began[own]
                left[own] -= self.tick if len(working) == 2 else 2 * self.tick
                if left[own] <= 0:
                    self.products[own].append((began[own], now + self.tick, done[own]))
                    done[own], left[own], began[own] = done[own] + 1, 1.0, -1.0
                    if done[own] % self.steps == 0:
                        busy[own] = now + self.tick + self.storing
                        self.stores[own].append((now + self.tick, busy[own], done[own] // self.steps - 1))
            now += self.tick
        self.end = now

    def _multiplies(
        self, own: int, done: list[int], busy: list[float], full: list[float], now: float
    ) -> bool:
        """Return whether a consumer multiplies now: it stores nothing, its stage is full, nobody is ahead."""
        step = done[own]
        if step >= len(full) or busy[own] > now or step >= len(self.loads) or full[step] > now:
            return False
        waits = own == 1 and step % self.steps >= self.steps - self.skew
        return not (waits and done[0] < (step // self.steps + 1) * self.steps)


def warps_over_time() -> str:
    """The warps of one block of the Hopper kernel: who loads, multiplies and stores when."""
    block, left, top, high, wide = Warps(), 210, 56, 44, 34
    colours = (BLUE, GREEN, YELLOW)
    lines = []

    def bars(row: int, spans: list[tuple[float, float, int]], steps: int, shallow: bool = False) -> None:
        for start, end, number in spans:
            y, tall = top + row * high, (high - 10) / (2 if shallow else 1)
            y += number % 2 * tall if shallow else 0
            fill = colours[number // steps % len(colours)]
            lines.append(box(left + start * wide, y, (end - start) * wide, tall, fill))
            label = "store" if steps == 1 else str(number % steps)
            middle = left + (start + end) / 2 * wide
            lines.append(text(middle, y + tall / 2 + 4, label, 10, text_anchor="middle"))

    rows = (
        ("warp 0", "producer: TMA loads"),
        ("warps 1 to 3", "idle, or store, or copy scales"),
        ("warps 4 to 7", "consumer 0: wgmma"),
        ("warps 8 to 11", "consumer 1: wgmma"),
        ("tensor cores", "busy"),
    )
    for number, (name, words) in enumerate(rows):
        y = top + number * high
        lines += [text(14, y + 15, name, 12, font_weight="bold"), text(14, y + 30, words, 10)]
    bars(0, block.loads, block.steps, shallow=True)
    for own in range(2):
        bars(2 + own, block.products[own], block.steps)
        bars(2 + own, block.stores[own], 1)
    spans = sorted(span[:2] for products in block.products for span in products)
    for start, end in spans:
        lines.append(box(left + start * wide, top + 4 * high, (end - start) * wide, 12, GREY))
    y = top + len(rows) * high + 4
    words = (
        f"Numbers are steps of K, colours are tiles: {block.stages} stages, {block.steps} steps, skew "
        f"{block.skew}. A stage is loaded again when both consumers have released it.",
        "Consumer 1 leaves its last two steps until consumer 0 has issued all of its own: one stores while "
        "the other multiplies.",
    )
    for number, line in enumerate(words):
        lines.append(text(14, y + 14 + 16 * number, line, 11))
    width = int(left + block.end * wide + 14)
    return document(width, int(y + 44), "One block of the Hopper kernel: its warps over time", lines)


def hierarchy() -> str:
    """A grid of blocks, one block of four warps, one warp of 32 lanes, and the registers of one lane."""
    lines = []
    top, high = 78, 150

    def zoom(x: float, y: float, height: float, to: float) -> None:
        """Two lines from a small box to the larger picture of it at its right."""
        for start, end in ((y, top), (y + height, top + high)):
            lines.append(
                f'<path d="M{x:g} {start:g} L{to:g} {end:g}" stroke="#8a8a8a" stroke-dasharray="4 3"/>'
            )

    def head(x: float, title: str, words: str) -> None:
        lines.extend([text(x, top - 26, title, 13, font_weight="bold"), text(x, top - 9, words, 11)])

    head(14, "grid", "grid_dim = (3, 2)")
    for number in range(6):
        x, y = 14 + number % 3 * 56, top + number // 3 * 75
        lines += [box(x, y, 52, 71, GREEN if number == 2 else GREY)]
        lines.append(text(x + 26, y + 40, f"{number % 3},{number // 3}", 12, text_anchor="middle"))
    zoom(14 + 2 * 56 + 52, top, 71, 226)
    head(226, "block (2, 0)", "block_dim = 128 threads")
    for number in range(4):
        y = top + number * 38
        lines.append(box(226, y, 130, 34, BLUE if number == 1 else GREY))
        lines.append(text(291, y + 21, f"warp {number}", 12, text_anchor="middle"))
    zoom(356, top + 38, 34, 404)
    head(404, "warp 1", "32 lanes, one instruction")
    for number in range(32):
        x, y = 404 + number % 8 * 26, top + number // 8 * 38
        lines.append(box(x, y, 24, 34, YELLOW if number == 7 else GREY))
        lines.append(text(x + 12, y + 21, str(number), 11, text_anchor="middle"))
    zoom(404 + 7 * 26 + 24, top, 34, 660)
    head(660, "lane 7 of it", "thread_idx = 39")
    for number, words in enumerate(("a: 4 registers", "b: 2 registers", "c, d: 4 each", "…")):
        y = top + number * 38
        lines += [box(660, y, 140, 34, YELLOW), text(730, y + 21, words, 12, text_anchor="middle")]
    y = top + high + 22
    lines.append(text(14, y, "runs anywhere, in any order", 11))
    lines.append(text(226, y, "shared memory, barriers", 11))
    lines.append(text(404, y, "executes mma as one", 11))
    lines.append(text(660, y, "holds its fragment", 11))
    return document(816, y + 18, "Grid, block, warp, lane", lines)


def main(folder: Path) -> None:
    """Write them all; the plot once there are figures to draw."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (thing, options) in pictures().items():
        lw.draw.save(thing, folder / name, hover=False, **options)
    (folder / "stages.svg").write_text(stages())
    (folder / "hierarchy.svg").write_text(hierarchy())
    (folder / "life_of_a_kernel.svg").write_text(
        stations("From lw.load to the last store", LIFE, ("every launch", "once: later from disk"))
    )
    (folder / "walk_of_an_operand.svg").write_text(
        stations("An operand of lw.matmul", WALK, ("every call", "once for a kind of call"))
    )
    (folder / "warps_over_time.svg").write_text(warps_over_time())
    if SPEEDS.exists():
        (folder / "matmul_speed.svg").write_text(speed(json.loads(SPEEDS.read_text())))
    if FIGURES.exists():
        figures = json.loads(FIGURES.read_text())
        (folder / "ladder.svg").write_text(plot(figures))
        runs = [figures, *figures["runs"]]
        for dtype, accumulate in sorted({(run["dtype"], run["accumulate"]) for run in runs}):
            chosen = [run for run in runs if (run["dtype"], run["accumulate"]) == (dtype, accumulate)]
            (folder / f"ladder_{dtype}_{accumulate}.svg").write_text(curves(chosen))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
