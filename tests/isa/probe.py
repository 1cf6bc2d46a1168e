"""The PTX that asks ptxas about instructions: one kernel a line, so that a complaint's line tells which.

Operands are written by the sizes of the matrices alone, not by the catalogue, which is what is on trial.
"""

import re
from collections.abc import Sequence
from random import Random

from ptxas import assemble

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4,
    "b1": 1, "e4m3": 8, "e5m2": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4, "b16": 16, "b8": 8, "b8x16": 8,
    "b6x16_p32": 6, "b4x16_p64": 4,
}  # fmt: skip
TYPE_NAMES = tuple(BITS)
#: PTX versions that ptxas 13.0 knows, from the first with matrix instructions spelt as today.
VERSIONS = (
    "6.0", "6.1", "6.2", "6.3", "6.4", "6.5", "7.0", "7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "7.7", "7.8",
    "8.0", "8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7", "8.8", "9.0",
)  # fmt: skip
_SHAPE = re.compile(r"m(\d+)n(\d+)(?:k(\d+))?")


class Registers:
    """Hands out vectors of fresh registers by type."""

    def __init__(self) -> None:
        self.used = {"f": 0, "d": 0, "r": 0}

    def vector(self, rows: int, cols: int, name: str, bits: int = 0, least: int = 1) -> str:
        """The registers of one lane for a matrix spread over a warp."""
        bits = bits or BITS[name]
        bank = {"f32": "f", "f64": "d"}.get(name, "r")
        count = max(least, rows * cols * bits // (2048 if name == "f64" else 1024), 1)
        start = self.used[bank]
        self.used[bank] += count
        return "{" + ",".join(f"%{bank}{start + i}" for i in range(count)) + "}"


def operands(text: str, a_source: str = "", stride: bool = True) -> tuple[str, str]:
    """The operands of an instruction's text, and the first result register (empty if it has none)."""
    words = text.split(".")
    shape = next((match for match in map(_SHAPE.fullmatch, words) if match), None)
    m, n, k = (int(size or 0) for size in shape.groups()) if shape else (16, 8, 16)
    types = [word for word in words if word in BITS] or ["f16"]
    registers = Registers()
    vector = registers.vector
    if words[0] in ("ldmatrix", "stmatrix"):
        num = next((int(word[1:]) for word in words if re.fullmatch(r"x\d", word)), 1)
        moved = vector(m * num, n, "b16" if types[0] == "b16" else "b8")
        return (f"{moved},[%rd0]", "%r0") if words[0] == "ldmatrix" else (f"[%rd0],{moved}", "")
    if words[0] == "movmatrix":
        return "%r0,%r1", "%r0"
    if words[0] == "wmma" and words[1] in ("load", "store"):
        matrix = next((word for word in words[2:] if word in "abcd" and word), "d")
        rows, cols = {"a": (m, k), "b": (k, n)}.get(matrix, (m, n))
        least = 8 if types[0] == "f16" and matrix in "ab" else 1
        fragment = vector(rows, cols, types[0], least=least)
        step = ",%s0" if stride else ""
        if words[1] == "load":
            return f"{fragment},[%rd0]{step}", fragment[1:].split(",")[0].rstrip("}")
        return f"[%rd0],{fragment}{step}", ""
    if words[0] == "wgmma":
        return _wgmma(words, types, n, k, a_source, registers)
    if words[0] == "wmma" and len(types) < 4:
        types = [types[0], "f16", "f16", types[-1]]
    d, a, b, c = (*types, *types[-1:] * 3)[:4]
    sparse = any(word.startswith("sp") for word in words)
    contained = 8 if any(word in ("kind::f8f6f4", "kind::mxf8f6f4") for word in words) else 0
    half = 8 if words[0] == "wmma" and a == "f16" else 1
    if words[0] == "mma" and (m, n, k) == (8, 8, 4) and a != "f64":
        m, n = 2 * m, 2 * n  # Volta: four products at once, so four times the elements of each matrix
        k = 2 * k
    result = vector(m, n, d)
    parts = [
        result,
        vector(m, k // 2 if sparse else k, a, max(BITS[a], contained), half),
        vector(k, n, b, max(BITS[b], contained), half),
        vector(m, n, c),
    ]
    if sparse:
        parts += ["%s0", "0"]
    if "block_scale" in words:
        parts += ["%s1", "{0,0}", "%s2", "{0,0}"]
    return ",".join(parts), result[1:].split(",")[0].rstrip("}")


def _wgmma(
    words: Sequence[str], types: Sequence[str], n: int, k: int, a_source: str, registers: Registers
) -> tuple[str, str]:
    d, a = (*types, *types[-1:])[:2]
    result = registers.vector(16, n, d)
    parts = [result, "{%s0,%s1,%s2,%s3}" if a_source == "registers" else "%rd1", "%rd2"]
    if "sp" in words:
        parts += ["%s4", "0"]
    parts.append("1")
    if d != "s32":
        parts += ["1", "1"]
    if a in ("f16", "bf16"):
        parts += ["0"] if a_source == "registers" else ["0", "0"]
    return ",".join(parts), result[1:].split(",")[0].rstrip("}")


def shuffled(text: str, chance: Random) -> str:
    """The same instruction with its modifiers in another order.

    Types keep theirs, and so do layouts; ptxas counts the scale type among the types, and wants .popc after
    the bit operation.
    """
    words = text.split(".")
    opcode = {"wmma": 3 if words[1] in ("load", "store") else 2, "wgmma": 2}.get(words[0], 1)
    order = list(range(opcode, len(words)))
    chance.shuffle(order)
    for group in ((*TYPE_NAMES, "ue8m0", "ue4m3"), ("row", "col"), ("xor", "and", "popc")):
        places = [place for place, index in enumerate(order) if words[index] in group]
        for place, index in zip(places, sorted(order[place] for place in places), strict=True):
            order[place] = index
    return ".".join([*words[:opcode], *(words[index] for index in order)])


def entry(name: str, text: str, a_source: str = "", stride: bool = True) -> str:
    """One kernel, on one line, that executes the instruction and keeps its result alive."""
    written, result = operands(text, a_source, stride)
    kind = {"f": "f32", "d": "f64"}.get(result[1:2], "b32")
    keep = f"st.global.{kind} [%rd0],{result};" if result else ""
    declared = ".reg .b32 %r<160>, %s<8>; .reg .f32 %f<272>; .reg .f64 %d<64>; .reg .b64 %rd<4>;"
    start = "ld.param.u64 %rd0,[p];"
    return f".entry {name}(.param .u64 p) {{ {declared} {start} {text} {written}; {keep} ret; }}"


Probe = tuple[str, str, bool]  # text, a_source, stride


def refused(probes: Sequence[Probe], arch: str, version: str = "9.0") -> dict[int, str]:
    """The probes that ptxas refuses, by their index, with what it says.

    ptxas complains in stages, and a later stage is silent while an earlier one has complaints: what was
    refused is taken out and the rest asked again, until nothing is refused. A complaint that may be another
    instruction's fault (wmma is compiled through functions that all instructions of a module share) or that
    names no line is settled by asking about the instruction alone.
    """
    verdict: dict[int, str] = {}
    doubtful: list[int] = []
    left = list(range(len(probes)))
    while left:
        lines = [f".version {version}", f".target {arch}", ".address_size 64"]
        lines += [entry(f"k{index}", *probes[index]) for index in left]
        complaints = assemble("\n".join(lines) + "\n", arch)
        found = {left[line - 4]: message for line, message in reversed(complaints) if line > 3}
        header = [message for line, message in complaints if 0 < line <= 3]
        if header or (complaints and len(left) == 1):
            return verdict | dict.fromkeys(left, (header or [complaints[0][1]])[0])
        if complaints and not found:
            doubtful += left
            break
        if not found:
            break
        shared = {index for index, message in found.items() if message.startswith("Call to")}
        doubtful += sorted(shared)
        verdict |= {index: message for index, message in found.items() if index not in shared}
        left = [index for index in left if index not in found]
    for index in doubtful:
        for message in refused([probes[index]], arch, version).values():
            verdict[index] = message
    return verdict
