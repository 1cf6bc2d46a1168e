"""`lanewise explore --static DIR`: the page as a site without Python, with its answers written as files.

Every question that the rooms Instructions and Tour ask is answered; of Layouts, the examples with what is
proposed for them. The page finds the file of an answer by the question's body: `file_name` here and
`fileName` in shell.js are the same.
"""

import html
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lanewise.explore.answers import Session, answer
from lanewise.explore.instructions import catalogue
from lanewise.explore.layouts import EXAMPLES
from lanewise.explore.server import PAGE, TYPES
from lanewise.explore.tour import tour
from lanewise.isa import Operand, instruction
from lanewise.isa.matrix_descriptor import SWIZZLE_MODES
from lanewise.isa.operands import VOLTA_ARCHS, has_volta_fragments

Asked = tuple[str, str, dict[str, Any]]
#: How lanes access an example of the room Layouts, and how many elements each reads.
_ACCESSES, _VECTORS = ("ldmatrix", "along", "across"), (1, 2, 4, 8, 16)
#: The type of a tensor map for a format of wgmma; others are copied as bytes.
MAP_TYPES = {"f16": "f16", "bf16": "bf16", "tf32": "f32"}


def file_name(body: dict[str, object]) -> str:
    """Return the name of the file that has the answer to a question with this body.

    >>> file_name({"text": "m16n8k16 bf16"})
    'm16n8k16_20_bf16'
    """
    text = "~".join(_spelled(body[name]) for name in sorted(body))
    return re.sub(r"[^A-Za-z0-9.~-]", lambda match: f"_{ord(match[0]):x}_", text) or "all"


def _spelled(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def write_site(folder: Path, saved_traces: Sequence[Path] = ()) -> int:
    """Write the site into a folder and return how many answers it has."""
    for path in sorted(PAGE.rglob("*")):
        if path.is_file() and path.suffix in TYPES:
            target = folder / path.relative_to(PAGE)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    index = folder / "index.html"
    index.write_text(
        index.read_text(encoding="utf-8").replace('<html lang="en">', '<html lang="en" data-static>'),
        encoding="utf-8",
    )
    written = _write_answers(folder / "data")
    _write_traces(folder, saved_traces)
    return written


def _write_answers(folder: Path) -> int:
    """Ask every question that the page can ask without a server, and write the answers."""
    session = Session()
    waiting = list(questions())[::-1]
    done: set[tuple[str, str, str]] = set()
    while waiting:
        room, name, body = waiting.pop()
        key = room, name, file_name(body)
        if key in done:
            continue
        done.add(key)
        reply = answer(session, room, name, json.dumps(body).encode())
        path = folder / room / name / f"{key[2]}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(reply.content)
        if name == "banks":
            for proposal in json.loads(reply.content).get("proposals", ()):
                waiting.append((room, "evaluate", {"text": proposal["text"]}))
                waiting.append((room, name, {**body, "text": proposal["text"]}))
    return len(done)


def questions() -> Iterator[Asked]:
    """Yield the questions that the page asks without a server."""
    yield "tour", "pages", {}
    for page in tour():
        yield from map(tuple, page.get("widget", {}).get("asks", ()))
    yield from _about_layouts()
    yield from _about_instructions()


def _about_layouts() -> Iterator[Asked]:
    yield "layouts", "about", {}
    for example in EXAMPLES:
        text = {"text": example["text"]}
        yield "layouts", "evaluate", {**text, "tv": example["tv"]} if "tv" in example else text
        yield "layouts", "evaluate", text
        for access in _ACCESSES:
            for vector in _VECTORS if access != "ldmatrix" else (8,):
                if vector * example["bits"] <= 128 or access == "ldmatrix":
                    yield (
                        "layouts",
                        "banks",
                        {**text, "bits": example["bits"], "access": access, "vector": vector},
                    )


def _about_instructions() -> Iterator[Asked]:
    yield "instructions", "catalogue", {}
    listed = catalogue()
    for entry in listed["entries"]:
        sizes = listed["sizes"][entry["sizes"]] if "sizes" in entry else ()
        for text in [entry["text"].replace("n*", f"n{size}") for size in sizes] or [entry["text"]]:
            yield "instructions", "about", {"text": text}
            if "sources" in entry:
                yield "instructions", "about", {"text": text, "source": "registers"}
            if text.startswith("wmma") and has_volta_fragments(instruction(text)):
                yield "instructions", "about", {"text": text, "arch": VOLTA_ARCHS[0]}
            if text.startswith("wgmma"):
                yield from _about_descriptors(text)


def _about_descriptors(text: str) -> Iterator[Asked]:
    """Yield what the page asks of the matrices that a wgmma reads through descriptors."""
    operands = instruction(text).operands
    for key in ("a", "b"):
        operand: Operand = operands[key]
        rows, depth = operand.shape if key == "a" else operand.shape[::-1]
        bits = 32 if operand.format.name == "tf32" else operand.format.bits
        for mode in SWIZZLE_MODES:
            matrix = {"rows": rows, "k": depth, "bits": bits, "swizzle": mode.name}
            for major in ("K", "MN") if bits == 16 else ("K",):
                yield "instructions", "descriptor", {**matrix, "major": major}
            width = 8 * (mode.row_bytes if mode.name != "none" else 128) // bits
            kind = MAP_TYPES.get(operand.format.name, "u8")
            box = [rows, width]
            yield "instructions", "tensor_map", {"type": kind, "shape": box, "box": box, "swizzle": mode.name}


def _write_traces(folder: Path, saved: Sequence[Path]) -> None:
    """Copy saved traces, and write the list of them that the room Kernels shows."""
    listed = []
    for number, path in enumerate(saved):
        name = f"{number}-{re.sub(r'[^A-Za-z0-9.-]', '-', path.name)}"
        target = folder / "traces" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        title = re.search(r"<title>([^<]{1,200})</title>", path.read_text(encoding="utf-8", errors="replace"))
        listed.append({"file": f"traces/{name}", "title": html.unescape(title[1]) if title else path.name})
    path = folder / "data" / "traces.json"
    path.write_text(json.dumps(listed), encoding="utf-8")
