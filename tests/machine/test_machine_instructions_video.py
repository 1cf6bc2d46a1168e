"""Video instructions against Python's integers.

After the pseudo-code of the PTX ISA, but where ptxas 13.0 has them computed in another way on every GPU.
"""

import itertools
import operator
from collections.abc import Callable

import numpy as np
import pytest

from machine.integers import clamp, signed
from machine.kernels import Case, edges, run_cases, some

COUNT = 128
SIGNS = ("u32", "s32")
COMPARE = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "ge": operator.ge}
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda a, b: (a + b + 1) >> 1 if a + b >= 0 else (a + b) >> 1,
}


def part(word: int, which: str, kind: str) -> int:
    """A byte or half of a word, or all of it, as a number."""
    bits = {"": 32, "b": 8, "h": 16}[which[:1]]
    place = int(which[1:]) if which else 0
    field = word >> (bits * place) & ((1 << bits) - 1)
    return signed(field, bits) if kind == "s32" else field


def saturated(value: int, kind: str, where: str) -> int:
    """.sat of sums and choices: into a part, a negative number is too large; u32 has no upper limit."""
    bits = {"": 32, "b": 8, "h": 16}[where[:1]]
    largest = (1 << bits - (kind == "s32")) - 1
    if where:
        return value if value in range(largest + 1) else largest
    return clamp(value, 32, True) if kind == "s32" else max(value, 0)


def finished(value: int, kind: str, second: str, where: str, c: int) -> int:
    """The merge, of which .h1 takes the upper half, or the second operation: it compares 64 bits."""
    word = value & 0xFFFFFFFF
    if where:
        bits = {"b": 8, "h": 16}[where[:1]]
        place, mask = bits * int(where[1:]), (1 << bits) - 1
        chosen = word >> 16 if where == "h1" else word & mask
        return (c & ~(mask << place)) | chosen << place
    if second == "add":
        return word + c
    if second:
        a, b = (signed(value % (1 << 64), 64), signed(c, 32)) if kind == "s32" else (value % (1 << 64), c)
        return word if (a < b) == (second == "min") and a != b else c
    return word


def words(seed: int, places: int = 3) -> dict[int, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {32: [edges(32, rng, COUNT) for _ in range(places)]}


def hold(cases: list[tuple[Case, Callable[..., int]]], given: dict[int, list[np.ndarray]]) -> None:
    wrong = []
    cases = some(cases, 13)
    for (case, oracle), got in zip(cases, run_cases([case for case, _ in cases], given), strict=True):
        for row, found in enumerate(got):
            operands = [int(given[32][place][row]) for place in range(len(case.sources))]
            expected = oracle(*operands) & 0xFFFFFFFF
            if expected != int(found):
                shown = [hex(each) for each in operands]
                wrong.append(f"{case.text} {case.form} {shown}: {int(found):#x}, expected {expected:#x}")
                break
    assert not wrong, "\n".join(wrong)


#: Parts of (d, a, b), and the operation after the first.
SHAPES = (
    ("", "", "", ""), ("", "b2", "h1", ""), ("", "h0", "b3", "add"), ("", "", "", "min"),
    ("", "b0", "", "max"), ("b1", "", "b1", ""), ("h1", "h1", "", ""),
)  # fmt: skip


def form(where: str, a: str, b: str, third: bool) -> str:
    dot = [f".{each}" if each else "" for each in (where, a, b)]
    return f"{{d}}{dot[0]}, {{0}}{dot[1]}, {{1}}{dot[2]}" + (", {2}" if third else "")


def test_sums_differences_and_choices_of_parts() -> None:
    cases: list[tuple[Case, Callable[..., int]]] = []
    names = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset")
    for number, (name, *kinds) in enumerate(itertools.product(names, SIGNS, SIGNS, SIGNS)):
        for sat, (where, asel, bsel, second) in itertools.product((False, True), SHAPES):
            third = bool(where or second)
            result = kinds[0]
            if name == "vset":
                if sat or result == "s32":
                    continue
                compare = list(COMPARE)[number % len(COMPARE)]
                text = f"vset.{kinds[1]}.{kinds[2]}.{compare}{'.' * bool(second)}{second}"
                operation: Callable[[int, int], int] = COMPARE[compare]
            else:
                text = f"{name}.{'.'.join(kinds)}{'.sat' * sat}{'.' * bool(second)}{second}"
                operation = OPERATIONS[name]

            def oracle(  # type: ignore[no-untyped-def]  # defaults bind the loop's values
                a: int, b: int, c: int = 0, name=name, kinds=kinds, sat=sat, where=where, asel=asel,
                bsel=bsel, second=second, operation=operation, result=result,
            ) -> int:  # fmt: skip
                value = int(operation(part(a, asel, kinds[1]), part(b, bsel, kinds[2])))
                value = saturated(value, result, where) if sat else value
                if name in ("vadd", "vsub"):
                    value = signed(value & 0xFFFFFFFF, 32)
                return finished(value, kinds[1] if name == "vset" else result, second, where, c)

            cases.append((Case(text, (32,) * (2 + third), 32, form(where, asel, bsel, third)), oracle))
    hold(cases, words(6))


def test_shifts_of_parts() -> None:
    cases: list[tuple[Case, Callable[..., int]]] = []
    for name, first, result, sat, mode, (where, second) in itertools.product(
        ("vshl", "vshr"), SIGNS, SIGNS, (False, True), ("clamp", "wrap"),
        (("", ""), ("b3", ""), ("h1", ""), ("", "min"), ("", "max")),
    ):  # fmt: skip

        def oracle(  # type: ignore[no-untyped-def]  # defaults bind the loop's values
            a: int, b: int, c: int = 0, name=name, first=first, result=result, sat=sat, mode=mode,
            where=where, second=second,
        ) -> int:  # fmt: skip
            count = b & 31 if mode == "wrap" else min(b, 32)
            value = part(a, "h1", first)
            value = value << count if name == "vshl" else value >> count
            if sat:  # of 34 bits, to 32, of a part too
                value = signed(clamp(signed(value % (1 << 34), 34), 32, result == "s32") & 0xFFFFFFFF, 32)
            return finished(value % (1 << 64), result, second, where, c)

        text = f"{name}.{result}.{first}.u32{'.sat' * sat}.{mode}{'.' * bool(second)}{second}"
        third = bool(where or second)
        cases.append((Case(text, (32,) * (2 + third), 32, form(where, "h1", "", third)), oracle))
    hold(cases, words(7))


def test_multiply_add_of_parts() -> None:
    cases: list[tuple[Case, Callable[..., int]]] = []
    minuses = (("", "", ""), ("-", "", ""), ("", "-", ""), ("-", "-", ""), ("", "", "-"))
    for kinds, sat, scale in itertools.product(
        itertools.product(SIGNS, repeat=2), (False, True), ("", "shr7", "shr15")
    ):
        for minus, extra in [*((each, False) for each in minuses), (("", "", ""), True)]:
            is_signed = "s32" in kinds or minus not in (minuses[0], minuses[3])

            def oracle(  # type: ignore[no-untyped-def]  # defaults bind the loop's values
                a: int, b: int, c: int, kinds=kinds, sat=sat, scale=scale, minus=minus, extra=extra,
                is_signed=is_signed,
            ) -> int:  # fmt: skip
                # Words are signed, whatever the types say.
                product = signed(a, 32) * part(b, "h1", kinds[1])
                product = -product if minus[0] != minus[1] else product
                third = signed(c, 32)
                total = product + (-third if minus[2] else third) + extra
                total = total if is_signed else total % (1 << 64)
                total >>= {"": 0, "shr7": 7, "shr15": 15}[scale]
                return clamp(signed(total % (1 << 64), 64), 32, is_signed) if sat else total

            result = "s32" if is_signed else "u32"
            text = f"vmad.{result}.{'.'.join(kinds)}{'.po' * extra}{'.sat' * sat}{'.' * bool(scale)}{scale}"
            pattern = f"{{d}}, {minus[0]}{{0}}, {minus[1]}{{1}}.h1, {minus[2]}{{2}}"
            cases.append((Case(text, (32, 32, 32), 32, pattern), oracle))
    hold(cases, words(8))


@pytest.mark.parametrize("count", [2, 4])
def test_parts_in_parallel(count: int) -> None:
    bits, letter = 32 // count, "h" if count == 2 else "b"
    own, other = ("31", "02") if count == 2 else ("7654", "0246")
    masks = ("", "1", "10") if count == 2 else ("", "0", "31", "3210")
    cases: list[tuple[Case, Callable[..., int]]] = []
    for name, kinds, ending in itertools.product(
        [*OPERATIONS, "vset"], itertools.product(SIGNS, repeat=3), ("", "sat", "add")
    ):
        if name == "vset" and (kinds[0] == "s32" or ending == "sat"):
            continue
        mask = "" if ending == "add" else masks[len(cases) % len(masks)]
        picks = (own, other) if len(cases) % 2 else ("", "")

        def oracle(  # type: ignore[no-untyped-def]  # defaults bind the loop's values
            a: int, b: int, c: int, name=name, kinds=kinds, ending=ending, mask=mask, picks=picks
        ) -> int:
            both = a | b << 32
            orders = [
                [int(each) for each in pick[::-1]] or list(range(start, start + count))
                for pick, start in zip(picks, (0, count), strict=True)
            ]
            total, merged = c, 0
            for place in range(count):
                x, y = (
                    signed(field, bits) if kind == "s32" else field
                    for field, kind in (
                        (both >> bits * order[place] & ((1 << bits) - 1), kind)
                        for order, kind in zip(orders, kinds[1:], strict=True)
                    )
                )
                value = int(COMPARE["lt"](x, y)) if name == "vset" else OPERATIONS[name](x, y)
                if ending == "sat":
                    value = clamp(value, bits, kinds[0] == "s32")
                total += value
                chosen = not mask or str(place) in mask
                field = (value if chosen else c >> bits * place) & ((1 << bits) - 1)
                merged |= field << bits * place
            return total if ending == "add" else merged

        types = ".".join(kinds[1:]) + ".lt" if name == "vset" else ".".join(kinds)
        text = f"{name}{count}.{types}{'.' * bool(ending)}{ending}"
        dots = [f".{letter}{each}" if each else "" for each in (mask, *picks)]
        pattern = f"{{d}}{dots[0]}, {{0}}{dots[1]}, {{1}}{dots[2]}, {{2}}"
        cases.append((Case(text, (32, 32, 32), 32, pattern), oracle))
    hold(cases, words(9 + count))
