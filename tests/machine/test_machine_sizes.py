"""Memory that no GPU has: refused with a word, before anything of that size is set aside."""

import pytest

import lanewise as lw

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def run(declared: str, inside: str = "") -> None:
    text = f"{HEAD}{declared}\n.entry k() {{ {inside} .reg .b32 %r; ld.u32 %r, [x]; ret; }}"
    space = next(each for each in ("local", "shared", "global", "const") if each in declared + inside)
    lw.load(text.replace("ld.u32", f"ld.{space}.u32"))["k"][1, 32](steps=100)


@pytest.mark.parametrize("size", ["1048576", "68719476736", "9223372036854775808", "65536][65536"])
@pytest.mark.parametrize("space", ["local", "shared", "const"])
def test_variables_too_large_within_and_without_functions(space: str, size: str) -> None:
    variable = f".{space} .b8 x[{size}];"
    with pytest.raises(lw.LanewiseError, match=r"at most|more than|may declare"):
        run("", variable) if space == "local" else run(variable)


@pytest.mark.parametrize("size", ["68719476736", "9223372036854775808", "65536][65536"])
def test_global_variables_too_large(size: str) -> None:
    with pytest.raises(lw.LanewiseError, match=r"line 4: x has \d+ bytes"):
        run(f".global .b8 x[{size}];")


@pytest.mark.parametrize("alignment", [3, 24, 1 << 20, 1 << 63])
@pytest.mark.parametrize("space", ["local", "shared", "global", "const"])
def test_alignments(space: str, alignment: int) -> None:
    variable = f".{space} .align {alignment} .b8 x[16];"
    with pytest.raises(lw.LanewiseError, match="power of two"):
        run("", variable) if space == "local" else run(variable)


def test_large_ones_are_not_touched() -> None:
    run(".global .align 128 .b8 x[1073741824];")


def test_a_kernel_has_its_parameters_in_param() -> None:
    kernel = lw.load(f"{HEAD}.entry k(.param .u32 a, .reg .u32 b) {{ ret; }}")["k"]
    with pytest.raises(lw.LanewiseError, match="line 4: b is a parameter"):
        kernel[1, 32](1, 2)
