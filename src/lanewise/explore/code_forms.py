"""An instruction as code to copy: a statement of PTX, inline assembly in CUDA C++, CuTe's atom, lanewise."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from lanewise.atoms.copy_names import copy_operations
from lanewise.atoms.names import operations
from lanewise.isa import Instruction, Operand
from lanewise.isa.statement import Expected, expected_operands


class Held(NamedTuple):
    """How a register of an operand is declared: in PTX, in C++, and the constraint of inline assembly."""

    ptx: str
    cpp: str
    constraint: str


_HELD = {"f32": Held(".f32", "float", "f"), "f64": Held(".f64", "double", "d")}
_WORD = Held(".b32", "uint32_t", "r")
_HALFWORD = Held(".b16", "uint16_t", "h")
_DESCRIPTOR = Held(".b64", "uint64_t", "l")


class Part(NamedTuple):
    """An operand as code: its name, its registers (0 for what is written as it is), and their kind."""

    name: str
    registers: int
    held: Held
    written: str = ""
    is_vector: bool = False
    is_result: bool = False


def forms_of_code(instruction: Instruction) -> dict[str, str]:
    """Return the instruction as PTX, CUDA C++, CuTe and lanewise; what there is none of is left out.

    >>> from lanewise.isa import instruction
    >>> forms_of_code(instruction("movmatrix.sync.aligned.m8n8.trans.b16"))["PTX"].splitlines()[-1]
    'movmatrix.sync.aligned.m8n8.trans.b16 %d, %a;'
    """
    parts = list(_parts(instruction))
    forms = {"PTX": _ptx(instruction, parts), "CUDA C++": _cuda(instruction, parts)}
    names = atom_names().get(_key(instruction))
    if names:
        forms["CuTe"] = _cute(instruction, names)
    return forms | {"lanewise": _lanewise(instruction)}


def _held(operand: Operand) -> Held:
    return _HELD.get(operand.format.name, _WORD)


def _parts(instruction: Instruction) -> Iterator[Part]:
    """Yield the operands of a statement, in order."""
    in_operands = {operand.name: operand for operand in instruction.operands.values()}
    accumulates = instruction.family.startswith("wgmma")
    result = {"wmma.store": "", "stmatrix": ""}.get(instruction.family, "D")
    for expected in expected_operands(instruction):
        name = expected.name
        if name in in_operands and (expected.registers or instruction.family == "movmatrix"):
            operand = in_operands[name]
            is_result = name == result or instruction.family in ("wmma.load", "ldmatrix")
            count = expected.registers or 1
            written = "+" if is_result and accumulates else "=" if is_result else ""
            yield Part(name.lower(), count, _held(operand), written, expected.registers > 0, is_result)
        else:
            yield _single(expected)


def _single(expected: Expected) -> Part:
    """Return an operand that is no matrix in registers."""
    match expected.name:
        case "address":
            return Part("address", 1, _WORD, "[]")
        case "stride":
            return Part("stride", 1, _WORD)
        case "A's descriptor":
            return Part("desc_a", 1, _DESCRIPTOR)
        case "B's descriptor":
            return Part("desc_b", 1, _DESCRIPTOR)
        case "metadata":
            return Part("e", 1, _WORD)
        case "scale A" | "scale B":
            return Part(f"scale_{expected.name[-1].lower()}", 1, _WORD, is_vector=True)
        case "byte-id and thread-id of A" | "byte-id and thread-id of B":
            return Part(f"ids_{expected.name[-1].lower()}", 2, _HALFWORD, is_vector=True)
        case "scale-d":
            return Part("scale_d", 0, _WORD, "p")
        case "imm-scale-a" | "imm-scale-b":
            return Part(expected.name, 0, _WORD, "1")
    return Part(expected.name, 0, _WORD, "0")  # a sparsity selector, imm-trans-a and -b


def _is_shared(instruction: Instruction) -> bool:
    return "shared" in instruction.space


def _ptx(instruction: Instruction, parts: list[Part]) -> str:
    """Return declarations of registers and the statement."""
    declared: dict[str, list[str]] = {}
    written = []
    wide = not _is_shared(instruction)
    for part in parts:
        if not part.registers:
            written.append(f"%{part.written}" if part.written == "p" else part.written)
            continue
        kind = ".b64" if part.name == "address" and wide else part.held.ptx
        declared.setdefault(kind, []).append(
            f"%{part.name}<{part.registers}>" if part.is_vector else f"%{part.name}"
        )
        names = [f"%{part.name}{number}" for number in range(part.registers)]
        one = f"[%{part.name}]" if part.written == "[]" else f"%{part.name}"
        written.append(f"{{{', '.join(names)}}}" if part.is_vector else one)
    if any(part.written == "p" for part in parts):
        declared[".pred"] = ["%p"]
    lines = [f".reg {kind} {', '.join(names)};" for kind, names in declared.items()]
    if instruction.family.startswith("wgmma"):
        lines += ["setp.ne.b32 %p, 1, 0;  // 0 leaves D out of the sum", "wgmma.fence.sync.aligned;"]
    lines.append(f"{instruction.text} {', '.join(written)};")
    if instruction.family.startswith("wgmma"):
        lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    return "\n".join(lines)


def _cuda(instruction: Instruction, parts: list[Part]) -> str:
    """Return a function of CUDA C++ with the statement as inline assembly."""
    wide = not _is_shared(instruction)
    parameters: list[str] = []
    outputs: list[str] = []
    inputs: list[str] = []
    written: list[str] = []
    # Outputs are numbered before inputs.
    ordered = sorted((part for part in parts if part.registers), key=lambda part: not part.is_result)
    numbers: dict[str, int] = {}
    count = 0
    for part in ordered:
        numbers[part.name] = count
        count += part.registers
    for part in parts:
        if not part.registers:
            written.append(part.written)
            continue
        first = numbers[part.name]
        names = [f"%{first + number}" for number in range(part.registers)]
        one = f"[{names[0]}]" if part.written == "[]" else names[0]
        written.append(f"{{{', '.join(names)}}}" if part.is_vector else one)
        held = _DESCRIPTOR if part.name == "address" and wide else part.held
        several = part.registers > 1
        constant = "" if part.is_result else "const "
        if several:
            parameters.append(f"{constant}{held.cpp} (&{part.name})[{part.registers}]")
        else:
            parameters.append(f"{held.cpp} {'&' * part.is_result}{part.name}")
        items = [f"{part.name}[{register}]" for register in range(part.registers)] if several else [part.name]
        sign = part.written if part.is_result else ""
        line = ", ".join(f'"{sign}{held.constraint}"({item})' for item in items)
        (outputs if part.is_result else inputs).append(line)
    statement = f"{instruction.text} {', '.join(written)};"
    if "p" in written:
        statement = f"{{ .reg .pred p; setp.ne.b32 p, %{count}, 0; {statement} }}"
        parameters.append("int scale_d")
        inputs.append('"r"(scale_d)')
    name = "".join(part.split("::")[0] + "_" for part in instruction.family.split("."))
    memory = ' : "memory"' if "address" in numbers or "p" in written else ""
    between = ",\n          "
    return "\n".join(
        [
            "#include <cstdint>",
            "",
            f"__device__ void {name}{instruction.shape_text}({', '.join(parameters)}) {{",
            f'    asm volatile("{statement}"',
            f"        : {between.join(outputs)}",
            f"        : {between.join(inputs)}{memory});",
            "}",
        ]
    )


def _key(instruction: Instruction) -> tuple[str, str]:
    return instruction.text, instruction.a_source


@cache
def atom_names() -> dict[tuple[str, str], tuple[str, ...]]:
    """Return CUTLASS's names of the operations for each instruction, by its text and A's source."""
    atoms: dict[tuple[str, str], list[str]] = {}
    for operation in operations():
        if not operation.composed:
            atoms.setdefault(_key(operation.instruction), []).append(operation.name)
    for name, copy in copy_operations().items():
        if copy.instruction is not None:
            atoms.setdefault(_key(copy.instruction), []).append(name)
    return {key: tuple(names) for key, names in atoms.items()}


def _cute(instruction: Instruction, names: tuple[str, ...]) -> str:
    name = names[0]
    if instruction.family in ("ldmatrix", "stmatrix", "movmatrix"):
        kind = "half_t" if instruction.types[0] == "b16" else "uint8_t"
        return f"#include <cute/tensor.hpp>\n\nusing Atom = cute::Copy_Atom<cute::{name}, cute::{kind}>;"
    if instruction.family.startswith("wgmma") and "<" not in name:
        name += "<cute::GMMA::Major::K, cute::GMMA::Major::K>"
    return (
        f"#include <cute/tensor.hpp>\n\nusing Atom = cute::MMA_Atom<cute::{name}>;\n"
        "auto tiled = cute::make_tiled_mma(Atom{});"
    )


def _lanewise(instruction: Instruction) -> str:
    source = ', a_source="registers"' if instruction.a_source == "registers" else ""
    lines = ["import lanewise as lw", "", f'inst = lw.instruction("{instruction.text}"{source})']
    held = next((operand for operand in instruction.operands.values() if operand.where == "registers"), None)
    if held is not None:
        key = next(key for key, operand in instruction.operands.items() if operand is held)
        lines.append(f"print(inst.{key}.holder(0, 0), inst.{key}.layout)")
    if instruction.multiplies and not (instruction.sparse or instruction.scale_type):
        arch = instruction.archs[-1] if "sm_90a" not in instruction.archs else "sm_90a"
        lines += [
            "",
            "import numpy as np",
            "",
            "rng = np.random.default_rng(0)",
            "a = inst.a.format.array(rng.integers(0, 2, inst.a.shape))",
            "b = inst.b.format.array(rng.integers(0, 2, inst.b.shape))",
            f'print(inst(a, b, arch="{arch}"))  # D, bit for bit',
        ]
    return "\n".join(lines)
