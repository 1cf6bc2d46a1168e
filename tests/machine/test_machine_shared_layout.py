"""Static shared memory: a kernel is charged for what it and its callees use, as ptxas charges it."""

import random

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine.abi import aligned
from lanewise.machine.program.resolve import resolve

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
KERNELS = 3

Variables = list[tuple[str, int, int]]


def drawn_variables(rng: random.Random, stem: str, most: int) -> Variables:
    """Draw names, alignments and sizes."""
    count = rng.randrange(most + 1)
    alignments = (1, 2, 4, 8, 16, 16, 128, 1024)
    return [(f"{stem}{i}", rng.choice(alignments), rng.randrange(1, 300)) for i in range(count)]


def declared(variables: Variables) -> str:
    return "".join(f".shared .align {alignment} .b8 {name}[{size}];\n" for name, alignment, size in variables)


def drawn_uses(rng: random.Random, variables: Variables) -> str:
    """Name about half of the variables, in one way or another."""
    ways = ("mov.u32 %r1, {};\n", "ld.shared.u8 %r1, [{}];\n", "mov.u32 %r1, {}+1;\n")
    return "".join(rng.choice(ways).format(name) for name, *_ in variables if rng.random() < 0.5)


def drawn_module(rng: random.Random) -> str:
    """Draw a module: kernels and functions that share variables, call each other, some through a pointer."""
    common = drawn_variables(rng, "m", 5)
    text = HEAD + declared(common)
    functions: list[str] = []
    for number in range(rng.randrange(3)):
        own = drawn_variables(rng, f"f{number}_", 2)
        call = f"call {rng.choice(functions)};" if functions and rng.random() < 0.5 else ""
        uses = drawn_uses(rng, own + common)
        text += f".func f{number}() {{ .reg .b32 %r<3>;\n{declared(own)}{uses}{call} ret; }}\n"
        functions.append(f"f{number}")
    if functions:
        text += f".global .u64 table[1] = {{ {rng.choice(functions)} }};\n"
    for number in range(KERNELS):
        own = drawn_variables(rng, f"k{number}_", 3)
        call = f"call {rng.choice(functions)};" if functions and rng.random() < 0.5 else ""
        if functions and rng.random() < 0.3:
            call += "ld.global.u64 %rd1, [table]; P: .callprototype _ (); call %rd1, (), P;"
        uses = drawn_uses(rng, own + common)
        registers = ".reg .b32 %r<3>; .reg .b64 %rd<3>;"
        text += f".visible .entry k{number}() {{ {registers}\n{declared(own)}{uses}{call} ret; }}\n"
    return text


@pytest.mark.parametrize("seed", range(8))
def test_a_kernel_takes_the_shared_memory_that_ptxas_says(seed: int) -> None:
    module = lw.load(drawn_module(random.Random(seed)))
    for number in range(KERNELS):
        kernel = module[f"k{number}"]
        program = resolve(module, kernel.function)
        taken = program.shared_bytes - program.shared_base
        # ptxas rounds up to 16 bytes where a callee has variables of its own.
        assert kernel.resources("sm_90a").shared_bytes in (taken, aligned(taken, 16)), kernel.name


def test_kernels_that_fit_alone_run_from_one_module() -> None:
    """Each has 40 KiB in the module; together they exceed the 48 KiB of static shared memory."""
    text = HEAD + "".join(f".shared .align 16 .b8 s{number}[40960];\n" for number in range(3))
    for number in range(3):
        text += f""".visible .entry k{number}(.param .u64 p) {{
            .reg .b64 %rd1; .reg .b32 %r1;
            ld.param.u64 %rd1, [p];
            st.shared.u32 [s{number}+40956], {number + 7};
            ld.shared.u32 %r1, [s{number}+40956];
            st.global.u32 [%rd1], %r1;
            ret; }}
        """
    module = lw.load(text)
    for number in range(3):
        result = np.zeros(1, np.uint32)
        module[f"k{number}"][1, 1](result)
        assert result[0] == number + 7
