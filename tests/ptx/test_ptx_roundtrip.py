"""What compilers write: read, printed and read again it is the same, and ptxas makes the same code of it."""

import re
from pathlib import Path

import pytest

from everything import sampled
from lanewise.ptx import Module, Operation, nvdisasm, parse, ptxas
from lanewise.ptx.syntax.body_parser import BodyParser
from lanewise.ptx.tools.toolkit import find_tools

SAMPLES = sorted((Path(__file__).parent.parent / "data" / "ptx").glob("*.ptx"))
needs_ptxas = pytest.mark.skipif(not find_tools("ptxas"), reason="ptxas is not installed (extra `cuda`)")
needs_nvdisasm = pytest.mark.skipif(
    not (find_tools("ptxas") and find_tools("nvdisasm")), reason="nvdisasm is not installed (extra `cuda`)"
)
samples = pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)


def test_there_are_samples() -> None:
    assert len(SAMPLES) >= 7


@samples
def test_printed_and_read_again(path: Path) -> None:
    module = parse(path.read_text())
    assert parse(str(module)) == module
    assert module.entries


def without_debugging(path: Path) -> bool:
    return not re.search("debug|lineinfo|rdc", path.stem)


@sampled(8)
@needs_ptxas
@pytest.mark.parametrize("path", [*filter(without_debugging, SAMPLES)], ids=lambda path: path.stem)
def test_ptxas_makes_the_same_cubin(path: Path) -> None:
    text = path.read_text()
    assert ptxas(str(parse(text))).image == ptxas(text).image


@sampled(8)
@pytest.mark.slow
@needs_nvdisasm
@pytest.mark.parametrize(
    "path", [path for path in SAMPLES if not without_debugging(path)], ids=lambda path: path.stem
)
def test_ptxas_makes_the_same_machine_code(path: Path) -> None:
    """Debugging data and names to be linked hold lines of the PTX: the instructions are compared."""
    text = path.read_text()
    options = {"debug": ["-g"], "rdc": ["-c"]}.get(path.stem.split("_")[-1], [])
    first, second = (instructions(nvdisasm(ptxas(ptx, options=options))) for ptx in (text, str(parse(text))))
    assert first == second
    assert len(first) > 100


def instructions(sass: str) -> list[str]:
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?;)", re.sub(r"__\d+\b", "__", sass))


@samples
def test_short_cuts_read_what_the_grammar_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text()
    quick = parse(text)
    monkeypatch.setattr(BodyParser, "_known", lambda self, text: None)
    assert parse(text) == quick


@samples
def test_white_space_and_comments_do_not_matter(path: Path) -> None:
    text = path.read_text()
    module = parse(text)
    assert parse(text.replace("\n", "\r\n")) == module
    assert parse(re.sub(r"(?<=[;,{}()])(?![^\n]*\")", " /* , ; { */ ", re.sub(r"//.*", "", text))) == module
    assert parse(re.sub(r"\s*\n\s*", " ", re.sub(r"//.*", "", text))) == module


@samples
def test_places_point_at_the_text(path: Path) -> None:
    text = path.read_text()
    lines = text.split("\n")
    module = parse(text)
    for function in (*module.entries.values(), *module.functions.values()):
        assert lines[function.line - 1][function.column - 1] == "."
        for statement in function.body or ():
            rest = lines[statement.line - 1][statement.column - 1 :]
            starts = (re.split(r"[;:\s]", str(statement))[0], getattr(statement, "name", "."))
            assert rest.startswith(starts), (statement, rest)
            assert getattr(statement, "loc", None) is None or statement.loc.line <= statement.line


def operations(module: Module) -> list[Operation]:
    return [operation for entry in module.entries.values() for operation in entry.operations]


@samples
def test_registers_and_branches_resolve(path: Path) -> None:
    """Every name in a compiler's PTX is declared: in the function, in the module, or by PTX itself."""
    module = parse(path.read_text())
    known = {*module.variables, *module.functions, *module.entries, "_", "WARP_SZ"}
    special = re.compile(
        r"%(n?tid|n?ctaid|laneid|clock\w*|dynamic_smem_size|envreg\d+|warpid|lanemask_\w+|reserved_smem_\w+)"
    )
    for function in (*module.entries.values(), *module.functions.values()):
        for operation in function.operations:
            for name in re.findall(
                r"[%$A-Za-z_][\w$]*", re.sub(r"\b0[xfd]\w+|\.\w+", "", operands_text(operation))
            ):
                assert (
                    name in known
                    or special.fullmatch(name)
                    or function.variable(name, operation.scope) is not None
                    or function.label(name, operation.scope) is not None
                ), (operation.line, name)


def operands_text(operation: Operation) -> str:
    return " ".join(map(str, operation.operands))


MATRIX = {
    "tensor_sm80": {
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16",
        "wmma.load.b.sync.aligned.col.m16n16k16.global.f16",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
        "wmma.store.d.sync.aligned.row.m16n16k16.global.f32",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16",
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    },
    "hopper_sm90a": {
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16",
    },
    "language_sm75": set(),
}


@pytest.mark.parametrize("name", MATRIX)
def test_matrix_instructions_are_those_of_the_catalogue(name: str) -> None:
    path = next(path for path in SAMPLES if path.stem == name)
    module = parse(path.read_text())
    found = [operation.instruction() for operation in operations(module)]
    assert {str(instruction) for instruction in found if instruction is not None} == MATRIX[name]
    assert all(instruction is None or module.target in instruction.archs for instruction in found)


def test_an_instruction_that_no_gpu_has_is_named_with_its_line() -> None:
    head = "mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32"
    text = f".version 9.0\n.target sm_80\n.entry k() {{\n {head} {{a}};\n}}"
    (operation,) = parse(text)["k"].body
    with pytest.raises(ValueError, match="line 4: mma"):
        operation.instruction()
    (fence,) = parse(re.sub("mma.*;", "wgmma.fence.sync.aligned;", text))["k"].body
    assert fence.instruction() is None
