"""`lanewise compute`: the product of arrays in files with the bits an arch returns, or two archs compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from lanewise.cli.input.options import (
    ASource,
    Descriptor,
    InstructionText,
    StyleOptions,
    flag,
    valued,
    with_groups,
)
from lanewise.cli.terminal.answer import Answer, Cell, Table, facts, show, style_of
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.formats import Format
    from lanewise.isa import Instruction
    from lanewise.numpy_types import AnyArray

#: The most elements or rows that are shown as text; JSON and CSV are never cut.
_SHOWN = 64
#: The most columns of D that are shown as text.
_SHOWN_COLUMNS = 16


def _file(option: str, what: str) -> object:
    return valued(option, "FILE", what)


def _array(name: str) -> object:
    return typer.Argument(metavar=name, help=f"{name}, a .npy file.")


@dataclass(frozen=True)
class ProductOptions:
    """How a product is computed, and its operands besides A, B and C."""

    metadata: Annotated[
        Path | None, _file("--metadata", "Sparse A: indices of the packed elements in their groups.")
    ] = None
    scale_a: Annotated[Path | None, _file("--scale-a", "Block-scaled: the scale factors of A.")] = None
    scale_b: Annotated[Path | None, _file("--scale-b", "Block-scaled: the scale factors of B.")] = None
    gemm: Annotated[bool, flag("--gemm", "Whole matrices: repeat the instruction along M, N and K.")] = False
    satfinite: Annotated[bool, flag("--satfinite", "wmma: results clamped, as satf = true in CUDA C++.")] = (
        False
    )
    convert: Annotated[bool, flag("--convert", "Round numbers of other dtypes to the operands' formats.")] = (
        False
    )
    a_source: ASource = None
    descriptor: Descriptor = None


@with_groups
def compute(
    instruction: InstructionText,
    a: Annotated[Path, _array("A")],
    b: Annotated[Path, _array("B")],
    c: Annotated[Path | None, _array("C")] = None,
    arch: Annotated[
        str | None, valued("--arch", "ARCH", "The arch or GPU whose bits are wanted, such as sm_90 or H100.")
    ] = None,
    versus: Annotated[
        str | None,
        valued(
            "--versus",
            "ARCH|all",
            "A second arch: show where the results differ. 'all' compares a GPU of each generation.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Save D, as .npy.")
    ] = None,
    *,
    options: ProductOptions,
    shown: StyleOptions,
) -> Callable[[], None]:
    """Compute D = A·B + C with the very bits that a GPU returns.

    A is (M, K), B (K, N), C and D (M, N), with any batch dimensions in front; C is zero if it is left out.
    A file has the operand's dtype. Unsigned integers of the operand's width are taken for its bits, and so
    are the bytes as which NumPy saves bfloat16, float8 and the like. --convert rounds numbers of any other
    dtype to nearest even.

    \b
    MMA=mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    lanewise compute $MMA a.npy b.npy --arch sm_80                    print D
    lanewise compute $MMA a.npy b.npy c.npy --arch sm_80 -o d.npy     save it
    lanewise compute $MMA a.npy b.npy --arch sm_80 --versus sm_90     where an A100 and an H100 differ
    lanewise compute $MMA a.npy b.npy --versus all                    where V100 … B200 part, and why
    lanewise compute $MMA a.npy b.npy --arch sm_90 --gemm -o d.npy    matrices of any size
    lanewise compute "tcgen05 m128n64k16 f16" a.npy b.npy --arch B200   what a B200 computes
    """
    from lanewise.cli.input.arrays import check_name, save
    from lanewise.cli.input.encoded import instruction_descriptor
    from lanewise.cli.input.subject import instruction_named

    style = style_of(**vars(shown))
    everywhere = versus == "all"
    if output is not None:
        check_name(output)
    if arch is None and not everywhere:
        raise LanewiseError("give the arch whose bits are wanted: --arch sm_80, --arch H100, …")
    bits = instruction_descriptor(options.descriptor)
    if not a.suffix and not a.exists():
        raise LanewiseError(
            f"{a} is no file: an instruction of several words is written in quotes here, "
            f'lanewise compute "{instruction} {a}" a.npy b.npy'
        )
    subject = instruction_named(instruction, arch=arch, a_source=options.a_source, descriptor=bits)
    if not subject.multiplies:
        raise LanewiseError(
            f"{subject.text} moves data and computes nothing; compute takes mma, wmma.mma, wgmma and "
            "tcgen05.mma"
        )
    archs = [subject.require(name) for name in (arch, versus) if name not in (None, "all")]
    more = {"metadata": options.metadata, "scale_a": options.scale_a, "scale_b": options.scale_b}
    inputs = _read(subject, {"a": a, "b": b, "c": c, **more}, options.convert)
    if everywhere:
        for name in (name for name, value in {**more, "satfinite": options.satfinite}.items() if value):
            option = f"--{name.replace('_', '-')}"
            raise LanewiseError(f"--versus all compares plain products; leave {option} out")
        return partial(show, _everywhere(subject, inputs), style)
    if options.satfinite:
        inputs["satfinite"] = True
    multiply: Callable[..., AnyArray] = subject.gemm if options.gemm else subject
    results = [multiply(**inputs, arch=name) for name in archs]
    if output is not None:
        save(output, results[0])
    if versus is not None:
        return partial(show, Comparison(subject, archs, results).answer(style), style)
    if output is not None and style == "text":
        what = f"{results[0].dtype}{list(results[0].shape)}"
        return partial(print, f"{output}: D, {what}, as {archs[0]} computes it")
    return partial(show, _result(subject, archs[0], results[0], style), style)


def _read(instruction: Instruction, files: dict[str, Path | None], convert: bool) -> dict[str, object]:
    """The arrays in the files, by operand; those that the instruction takes and no others."""
    from lanewise.cli.input.arrays import load, read_array

    inputs: dict[str, object] = {}
    for name, path in files.items():
        option = f"--{name.replace('_', '-')}"
        operand = instruction.operands.get(name)
        if path is None:
            if operand is not None and name != "c":
                raise LanewiseError(f"{instruction.text} needs {option} FILE")
        elif operand is None:
            raise LanewiseError(f"{instruction.text} takes no {name.replace('_', ' ')}; leave {option} out")
        elif name == "metadata":
            inputs[name] = load(path)
        else:
            inputs[name] = read_array(path, operand.name, operand.format, convert=convert)
    return inputs


def _everywhere(instruction: Instruction, inputs: dict[str, object]) -> Answer:
    """The product on a GPU of each generation, with the instruction that each has for it."""
    from lanewise.arith.comparison import compare

    comparison = compare(**inputs, archs="all", d=instruction.d.format)
    data = {
        "differ": int(comparison.differing.sum()),
        "elements": int(comparison.differing.size),
        "missing": comparison.missing,
        "archs": [
            {
                "arch": result.arch,
                "instruction": result.instruction.text,
                "model": str(result.model),
                "fidelity": result.model.fidelity,
                "source": result.model.source,
                "bits": result.instruction.d.format.to_bits(result.d).tolist(),
            }
            for result in comparison.results
        ],
    }
    rows = [(result.arch, result.instruction.text, str(result.model)) for result in comparison.results]
    return Answer((), data, (str(comparison),), Table("", ("arch", "instruction", "model"), rows))


@dataclass(frozen=True)
class Comparison:
    """The results of two archs, element by element."""

    instruction: Instruction
    archs: list[str]
    results: list[AnyArray]

    def answer(self, style: str) -> Answer:
        """The elements whose bits differ, side by side, and how many they are."""
        import numpy as np

        fmt = self.instruction.d.format
        bits = [fmt.to_bits(result) for result in self.results]
        places = np.argwhere(bits[0] != bits[1])
        total = self.results[0].size
        shown = places[:_SHOWN] if style in ("text", "markdown") else places
        rows: list[tuple[Cell, ...]] = []
        differing = []
        for place in map(tuple, shown.tolist()):
            words = [_hex(bit[place], fmt) for bit in bits]
            values = [result[place] for result in self.results]
            rows.append((_index(place), *words, *map(str, values)))
            numbers = [_json(_number(value, fmt)) for value in values]
            differing.append({"index": list(place), "bits": words, "values": numbers})
        count = f"{len(places)} of {total} elements differ between {self.archs[0]} and {self.archs[1]}"
        columns = ("D", *(f"{name} bits" for name in self.archs), *self.archs)
        table = Table("", columns, rows)
        data = {
            "instruction": self.instruction.text,
            "archs": self.archs,
            "fidelity": [self.instruction.fidelity(name) for name in self.archs],
            "elements": total,
            "differ": len(places),
            "differing": differing,
        }
        more = (
            [f"The first {_SHOWN} are shown; --json and --csv write all."] if len(shown) < len(places) else []
        )
        trust = [f"{name}: {self.instruction.fidelity(name)}." for name in self.archs]
        return Answer((table,) if rows else (), data, (f"{count}.", *more, *trust), table)


def _result(instruction: Instruction, arch: str, d: AnyArray, style: str) -> Answer:
    import numpy as np

    fmt = instruction.d.format
    bits = fmt.to_bits(d)
    if style == "text" and (d.ndim != 2 or d.size == 0):
        about = facts("", [("D", f"{d.dtype}{list(d.shape)}"), ("arch", arch)])
        much = "Too large to print" if d.size else "Nothing to print"
        return Answer((about,), None, (f"{much}: save it with -o, or take --json or --csv.",))
    data = {"instruction": instruction.text, "arch": arch, "fidelity": instruction.fidelity(arch)}
    places = [tuple(place) for place in np.ndindex(d.shape)]
    flat = Table("", ("D", "bits", "value"), [(_index(p), _hex(bits[p], fmt), str(d[p])) for p in places])
    if style != "text":
        words = _nested([_hex(word, fmt) for word in bits.flat], d.shape)
        values = _nested([_json(_number(value, fmt)) for value in d.flat], d.shape)
        return Answer((flat,), data | {"d": values, "bits": words}, (), flat)
    shown = d[:_SHOWN, :_SHOWN_COLUMNS]
    rows: list[list[Cell]] = [[row, *(str(value) for value in shown[row])] for row in range(shown.shape[0])]
    table = Table(
        f"D of {instruction.text} on {arch}", ("row", *map(str, range(shown.shape[1]))), rows, grid=True
    )
    notes = [f"Bits on {arch}: {instruction.fidelity(arch)}."]
    if shown.shape != d.shape:
        corner, whole = (" × ".join(map(str, array.shape)) for array in (shown, d))
        notes.insert(
            0, f"The first {corner} of {whole} elements are shown; -o FILE, --json and --csv have all."
        )
    return Answer((table,), data, tuple(notes), flat)


def _nested(items: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Return items as lists within lists, as an array of this shape has them.

    >>> _nested([1, 2, 3, 4], (2, 2))
    [[1, 2], [3, 4]]
    """
    import numpy as np

    array = np.empty(len(items), object)
    array[:] = items
    return cast("list[Any]", array.reshape(shape).tolist())


def _index(place: tuple[int, ...]) -> str:
    return "".join(f"[{i}]" for i in place)


def _hex(word: Any, fmt: Format) -> str:
    return f"0x{int(word):0{-(-fmt.bits // 4)}x}"


def _number(value: Any, fmt: Format) -> Any:
    return float(value) if fmt.kind == "float" else int(value)


def _json(number: Any) -> object:
    """JSON has no infinities and NaNs: these are written as text."""
    return number if isinstance(number, int) or isfinite(number) else str(number)
