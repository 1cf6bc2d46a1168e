"""`lanewise.compare`: one product as the GPUs of several generations compute it, and where they part.

Each arch uses the widest plain `mma` that it has for the formats; its model says how it adds the products up.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lanewise.arith.models import Model, model_of
from lanewise.arith.on_arrays import gemm
from lanewise.errors import LanewiseError
from lanewise.formats import Format, f32, format_of
from lanewise.isa import Instruction, find_arch, instructions
from lanewise.numpy_types import AnyArray
from lanewise.tracebacks import short_traceback

#: One arch of each generation, and a GPU that has it.
GENERATIONS = {
    "sm_70": "V100", "sm_75": "T4", "sm_80": "A100", "sm_89": "L40S", "sm_90": "H100", "sm_100": "B200",
    "sm_120": "RTX 5090",
}  # fmt: skip

#: How one asks for the instruction of tf32, which `compare` does not choose: its arrays are those of f32.
_TF32 = "lw.instruction('mma m16n8k8 tf32')"


@dataclass(frozen=True)
class ArchResult:
    """What one arch returns: D, the instruction that computed it, and the model of its arithmetic."""

    arch: str
    instruction: Instruction
    model: Model
    d: AnyArray


@dataclass(frozen=True, repr=False)
class ArchComparison:
    """The results of several archs for one product; printed, it shows where they differ, and the sources."""

    results: tuple[ArchResult, ...]
    #: Archs that have no instruction for it, or none whose arithmetic is known, and why.
    missing: dict[str, str]

    @property
    def archs(self) -> tuple[str, ...]:
        """The archs that computed it."""
        return tuple(result.arch for result in self.results)

    def __iter__(self) -> Iterator[str]:
        """The archs that computed it."""
        return iter(self.archs)

    def __getitem__(self, arch: str) -> AnyArray:
        """D as an arch returns it."""
        name = find_arch(arch)
        names = (name, name.rstrip("af"))  # a GPU's name is that of its arch-specific target
        results = [result.d for result in self.results if result.arch in names]
        if not results:
            raise LanewiseError(f"{name}: {self.missing.get(name, 'it was not asked for')}")
        return results[0]

    @cached_property
    def differing(self) -> npt.NDArray[np.bool_]:
        """Which elements of D have other bits on some arch than on the first."""
        bits = [result.instruction.d.format.to_bits(result.d) for result in self.results]
        differs = np.zeros(self.results[0].d.shape, bool)
        for other in bits[1:]:
            differs |= other != bits[0]
        return differs

    def __repr__(self) -> str:
        differing = int(self.differing.sum())
        verdict = f"{differing} of {self.differing.size} elements differ" if differing else "all bits agree"
        return f"<comparison of {', '.join(self.archs)}: {verdict}>"

    def __str__(self) -> str:
        first = self.results[0]
        fmt = first.instruction.d.format
        bits = {result.arch: fmt.to_bits(result.d) for result in self.results}
        lines = []
        for result in self.results:
            count = int((bits[result.arch] != bits[first.arch]).sum())
            same = (
                f"{count} of {result.d.size} elements differ from {first.arch}" if result is not first else ""
            )
            gpu = f" ({GENERATIONS[result.arch]})" if result.arch in GENERATIONS else ""
            lines.append(f"{result.arch + gpu:18}{result.instruction.text:54}{same}".rstrip())
        lines += [f"{arch:18}{why}" for arch, why in self.missing.items()]
        places = np.argwhere(self.differing)
        if len(places):
            place = tuple(places[0].tolist())
            lines.append(f"D{list(place)}:")
            lines += [f"    {result.arch:14}{result.d[place]!s:20}{result.model}" for result in self.results]
        else:
            lines.append("all bits agree")
        sources = dict.fromkeys(f"{result.model.fidelity}: {result.model.source}" for result in self.results)
        return "\n".join([*lines, *(f"[{source}]" for source in sources)])


@short_traceback
def compare(
    a: object,
    b: object,
    c: object = None,
    *,
    archs: str | Iterable[str] = "all",
    d: str | Format | None = None,
) -> ArchComparison:
    """Compute A·B + C as GPUs of several generations do, bit for bit, and say where their results differ.

    A and B are (M, K) and (K, N), of any size. Their dtypes say the formats; float32 is f32, not tf32. `d` is
    the format of the result: that of C, or if there is none f32 (s32 for integers, f64 for f64). `archs` are
    archs or GPUs by name.

    >>> import numpy as np
    >>> big = np.array([[2048, 1, 1, 1]], np.float16)
    >>> results = compare(big, np.array([[1024], [1], [1], [1]], np.float16), archs=["V100", "A100"])
    >>> results.archs, float(results["sm_80"][0, 0])
    (('sm_70', 'sm_80'), 2097155.0)
    """
    left, right = np.asarray(a), np.asarray(b)
    if object in (left.dtype, right.dtype):
        raise LanewiseError(
            "compare takes arrays of numbers, whose dtypes choose the instruction: lw.compare(a, b)"
        )
    a_format, b_format = format_of(left.dtype), format_of(right.dtype)
    d_format = _result_format(a_format, c, d)
    wanted = list(GENERATIONS) if isinstance(archs, str) and archs == "all" else archs
    names = [find_arch(name) for name in ([wanted] if isinstance(wanted, str) else wanted)]
    results: list[ArchResult] = []
    missing: dict[str, str] = {}
    for arch in dict.fromkeys(names):
        widest = _widest(arch, a_format, b_format, d_format)
        if widest is None:
            missing[arch] = f"no mma of {a_format} and {b_format} with {d_format} whose arithmetic is known"
            continue
        instruction, model = widest
        results.append(ArchResult(arch, instruction, model, gemm(instruction, left, right, c, arch=arch)))
    if missing and not results:
        hint = "" if a_format == b_format else "; convert A or B, so that both have the same format"
        if a_format == b_format == f32:
            hint = (
                f". Arrays of float32 may also hold tf32: {_TF32}.gemm(a, b, arch='A100') multiplies them so"
            )
        raise LanewiseError(f"{', '.join(missing)}: {next(iter(missing.values()))}{hint}")
    if not results:
        raise LanewiseError("no arch is given")
    return ArchComparison(tuple(results), missing)


def _result_format(a: Format, c: object, d: str | Format | None) -> Format:
    """Return the format of D: as asked, that of C, or the widest for A."""
    if d is not None:
        return format_of(d)
    if c is not None:
        return format_of(np.asarray(c).dtype)
    return format_of("s32" if a.kind != "float" else "f64" if a.name == "f64" else "f32")


def _widest(arch: str, a: Format, b: Format, d: Format) -> tuple[Instruction, Model] | None:
    """Return the mma of an arch for some formats that has the largest K, and its model."""
    candidates = [
        (instruction, model)
        for instruction in instructions(
            arch, "mma", a=a.name, b=b.name, c=d.name, d=d.name, kind="", sparse=False
        )
        if not instruction.satfinite
        and not instruction.rounding
        and (model := model_of(instruction, arch)) is not None
    ]
    rows = [candidate for candidate in candidates if candidate[0].layouts == ("row", "col")] or candidates
    return max(rows, key=lambda row: (row[0].k, row[0].m), default=None)
