"""One-instruction kernels: many instructions in one PTX module, each with its own output, launched once."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.launch import launch
from lanewise.ptx import parse

REGISTER = {"pred": "pred", 8: "b8", 16: "b16", 32: "b32", 64: "b64"}


@dataclass(frozen=True)
class Case:
    """An instruction: its text, bits of its sources and of its result (0: a predicate)."""

    text: str
    sources: tuple[int, ...]
    result: int
    #: Where the operands are not just the result and the sources: `{d}`, `{0}`, `{1}`, …
    form: str = ""

    def written(self, result: str) -> str:
        """The instruction on the registers of the kernel."""
        operands = [f"%s{source}_{place}" for place, source in enumerate(self.sources)]
        form = self.form or ", ".join(["{d}", *(f"{{{place}}}" for place in range(len(operands)))])
        return f"{self.text} {form.format(*operands, d=result)};"


def run_cases(
    cases: list[Case], inputs: dict[int, list[np.ndarray]], target: str = "sm_90"
) -> list[np.ndarray]:
    """The results of each instruction on inputs (by bits: one array for each operand place)."""
    count = len(next(iter(inputs.values()))[0])
    names = {
        (bits, place): f"in_{bits}_{place}" for bits, arrays in inputs.items() for place in range(len(arrays))
    }
    body, outputs = [], []
    parameters = [f".param .u64 {name}" for name in names.values()]
    for number, case in enumerate(cases):
        bits = case.result or 32
        outputs.append(np.zeros(count, f"uint{bits}"))
        parameters.append(f".param .u64 out_{number}")
        if case.result:
            body.append(case.written(f"%d{bits}"))
        else:
            body += [case.written("%p0"), "selp.b32 %d32, 1, 0, %p0;"]
        size = max(bits // 8, 1)
        body += [
            f"ld.param.u64 %rd0, [out_{number}];",
            f"mad.wide.u32 %rd0, %i, {size}, %rd0;",
            f"st.global.b{bits} [%rd0], %d{bits};",
        ]
    loads, registers = [], []
    for (bits, place), name in names.items():
        registers.append(f".reg .{REGISTER[bits]} %s{bits}_{place};")
        loads += [
            f"ld.param.u64 %rd0, [{name}];",
            f"mad.wide.u32 %rd0, %i, {bits // 8}, %rd0;",
            f"ld.global.b{bits} %s{bits}_{place}, [%rd0];",
        ]
    text = f"""
.version 8.7
.target {target}
.address_size 64
.visible .entry k({", ".join(parameters)})
{{
    .reg .b64 %rd0; .reg .b32 %i; .reg .b32 %c; .reg .pred %p0;
    .reg .b8 %d8; .reg .b16 %d16; .reg .b32 %d32; .reg .b64 %d64;
    {chr(10).join(registers)}
    mov.u32 %i, %tid.x;
    mov.u32 %c, %ctaid.x;
    mad.lo.u32 %i, %c, 64, %i;
    {chr(10).join(loads)}
    {chr(10).join(body)}
    ret;
}}
"""
    arrays: list[Any] = [inputs[bits][place] for bits, place in names]
    assert count % 64 == 0
    launch(parse(text)["k"], (count // 64, 64))(*arrays, *outputs)
    return outputs


#: Whether every combination of modifiers is tried (with --on-gpu), or some of them.
everything = False


def some(cases: list[Any], step: int) -> list[Any]:
    """Every so many of the cases: compiling them all takes its time."""
    return cases if everything else cases[::step]


def edges(bits: int, rng: np.random.Generator, count: int, floats: str = "") -> np.ndarray:
    """Random words with special ones among them."""
    words = rng.integers(0, 1 << bits, count, dtype=np.uint64)
    top = 1 << bits - 1
    special = [0, 1, 2, top - 1, top, top + 1, (1 << bits) - 1, 31, 32, 33, 63, 64, 8]
    if floats:
        from machine.exact import FMTS

        fmt = FMTS[floats]
        one = fmt.bias << fmt.mantissa
        magnitudes = [
            0,
            1,
            1 << fmt.mantissa,
            (1 << fmt.mantissa) - 1,
            one,
            one + 1,
            one - 1,
            fmt.inf - 1,
            fmt.inf,
            fmt.inf + 1,
            fmt.inf | 1 << fmt.mantissa - 1,
            one + (1 << fmt.mantissa) * 3,
        ]
        special = [word | sign for word in magnitudes for sign in (0, top)]
        near = rng.integers(
            max(one - (8 << fmt.mantissa), 0), one + (8 << fmt.mantissa), count, dtype=np.uint64
        )
        near |= rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(bits - 1)
        words = np.where(rng.random(count) < 0.6, near, words)
    chosen = rng.choice(np.array(special, np.uint64), count)
    words = np.where(rng.random(count) < 0.35, chosen, words)
    return words.astype(f"uint{bits}")
