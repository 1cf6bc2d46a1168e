"""Random calls of `lw.matmul` on torch's tensors: drawn from a seed, and judged by products in float64.

    python -m gpu.random_products --calls 10000 --processes 14 --seconds 450

spreads the seeds over processes that share a cache, and prints each call that is wrong. The first seed is
today's date, and is printed: each day tries other calls, and `--first` tries the same ones again. `--nightly`
begins at a seed of its own, so that a nightly run does not repeat what was tried by day. On a machine without
a GPU it draws smaller calls and computes them there, or, with `--virtual H200`, has the kernels run on a GPU
made of the CPU.
"""

import argparse
import multiprocessing
import queue
import re
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

import lanewise as lw
from lanewise.linalg.launch.prepare import arch_of_device
from lanewise.ptx.host_tensors import host_array

#: What is multiplied: types of a and b, precision, results that it gives, and how often it is drawn.
PRODUCTS = (
    ("float16", "float16", None, ("float16", "bfloat16", "float32", "float8_e4m3fn"), 5),
    ("bfloat16", "bfloat16", None, ("bfloat16", "float16", "float32", "float8_e4m3fn"), 6),
    ("float32", "float32", "f32", ("float32", "float16", "bfloat16"), 3),
    ("float32", "float32", "tf32", ("float32", "float16", "bfloat16"), 3),
    ("float64", "float64", None, ("float64",), 2),
    ("float8_e4m3fn", "float8_e4m3fn", None, ("bfloat16", "float16", "float32", "float8_e4m3fn"), 4),
    ("float8_e5m2", "float8_e4m3fn", None, ("bfloat16", "float32"), 1),
    ("float8_e4m3fn", "float8_e5m2", None, ("bfloat16", "float16"), 1),
    ("float8_e5m2", "float8_e5m2", None, ("float32", "float16"), 1),
    ("int8", "int8", None, ("int32", "float16", "bfloat16", "float32"), 3),
)
#: By what share of the sums of absolute products the sums may be wrong, and how the share grows with K.
SUM_ERRORS = {
    "float16": (2e-6, 4e-8), "bfloat16": (2e-6, 4e-8), "f32": (4e-7, 3e-9), "tf32": (1.2e-3, 4e-8),
    "float64": (1e-14, 1e-17), "float8": (5e-4, 8e-6), "int8": (0.0, 0.0), "f16 sums": (1e-3, 7e-5),
}  # fmt: skip
#: By what share of its own value an activation may be wrong, by the type of the result: docs/matmul.md says
#: so. A residual that is added may cancel the value, and then the error shows.
ACTIVATION_ERRORS = {"float16": 2**-16, "bfloat16": 2**-13, "float8_e4m3fn": 2**-13, "float32": 1e-6}
#: Half the distance of neighbours, relative and absolute (of the smallest), and the largest number.
ROUNDINGS = {
    "float16": (2**-11, 2**-25, 65504.0), "bfloat16": (2**-8, 1e-40, 3.3e38),
    "float32": (2**-22, 1e-40, 3.3e38), "float64": (2**-51, 0.0, 1e300),
    "float8_e4m3fn": (2**-4, 2**-10, 448.0), "int32": (0.0, 0.0, 2.0**31),
}  # fmt: skip
#: K of an instruction of f16.
_DEEP = 16
#: What a GPU before Hopper says of types that it does not multiply, cannot round to, or does not promote.
_LACKS = re.compile(
    r"^sm_(75|80|86) has no (mma.sync that multiplies|instruction that rounds)"
    "|family 'warp' have no sums promoted"
)
#: Characters of a complaint that are printed.
_LONGEST = 1500
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid")


@lw.epilogue
def stripes(value: Any, row: Any, column: Any) -> Any:
    """An epilogue of a user's own: every third diagonal is negated."""
    return lw.where((row + column) % 3 == 0, -value, value)


@dataclass
class Call:
    """A drawn call, as the arguments of `lw.matmul`."""

    a: Any
    b: Any
    keywords: dict[str, Any] = field(default_factory=dict)
    #: What `out` held before, how K is summed, and whether the scales are those of blocks.
    before: Any = None
    sums: str = ""
    blocks: bool = False

    def __str__(self) -> str:
        def shown(value: Any) -> str:
            if not hasattr(value, "stride"):
                return repr(value)
            return f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}/{tuple(value.stride())}"

        given = ", ".join(f"{name}={shown(value)}" for name, value in self.keywords.items())
        return f"matmul({shown(self.a)}, {shown(self.b)}, {given})"


class Draw:
    """Random numbers of one seed, and tensors made of them on a device."""

    def __init__(self, torch: Any, seed: int, device: str) -> None:
        self.torch, self.device = torch, device
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)

    def often(self, share: float) -> bool:
        """Return true with a probability."""
        return bool(self.rng.random() < share)

    def one_of(self, *choices: Any) -> Any:
        """Return one of some values."""
        return choices[int(self.rng.integers(len(choices)))]

    def size(self, most: int) -> int:
        """Return a size of an axis: often a multiple of something, seldom 0 or 1."""
        if self.often(0.06):
            return self.one_of(0, 1, 1, 2, 3)
        found = int(self.rng.integers(1, most + 1))
        if self.often(0.15):
            found = int(self.rng.integers(1, 130))
        if self.often(0.5):
            step = self.one_of(8, 16, 64, 128)
            found = max(step, found // step * step)
        return min(found, most)

    def numbers(self, shape: tuple[int, ...], name: str) -> Any:
        """Return random numbers of a type."""
        torch = self.torch
        if name == "int8":
            return torch.randint(-128, 128, shape, device=self.device, dtype=torch.int8)
        made = torch.randn(
            shape, device=self.device, dtype=getattr(torch, "float64" if name == "float64" else "float32")
        )
        return made.to(getattr(torch, name))

    def strided(self, shape: tuple[int, ...], name: str, result: bool = False) -> Any:
        """Return a tensor: contiguous, transposed, a part of a larger one, with steps, or repeated."""
        turned = len(shape) > 1 and self.often(0.5)
        axes = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
        how = self.rng.random()
        if how < 0.45 or not axes:
            made = self.numbers(axes, name)
        elif how < 0.85:  # a part of a larger one
            pad, ahead = self.one_of(1, 3, 8, 16), self.one_of(0, 0, 1, 8)
            made = self.numbers((*axes[:-1], axes[-1] + pad + ahead), name)[..., ahead : ahead + axes[-1]]
        elif how < 0.9 and len(axes) > 1:  # rows between
            made = self.numbers((*axes[:-2], 2 * axes[-2], axes[-1]), name)[..., ::2, :]
        elif how < 0.95:  # steps between neighbours
            made = self.numbers((*axes[:-1], 2 * axes[-1]), name)[..., ::2]
        elif len(axes) == 2 and not result and 0 not in axes:  # rows that overlap
            flat = self.numbers((axes[0] * 8 + axes[1],), name)
            made = flat.as_strided(axes, (8, 1))
        elif len(axes) > 2 and not result:  # matrices that are repeated
            made = self.numbers(axes[1:], name).expand(axes)
        else:
            made = self.numbers(axes, name)
        return made.transpose(-1, -2) if turned else made


def draw(torch: Any, seed: int, device: str = "cuda", most: int | None = None) -> Call:
    """Return the call of a seed. Every fifth is small, to be compared with the CPU bit for bit."""
    of = Draw(torch, seed, device)
    weights = np.array([each[-1] for each in PRODUCTS], float)
    a_type, b_type, precision, results, _ = PRODUCTS[
        int(of.rng.choice(len(PRODUCTS), p=weights / weights.sum()))
    ]
    limit = most or (160 if seed % 5 == 0 else of.one_of(300, 1200, 5000))
    m, n, k = (of.size(limit) for _ in range(3))
    budget = 2e9 if a_type == "float64" else 1.5e10
    while m * n * k > budget or max(m * n, m * k, n * k) > 2**24:
        m, n, k = ((each + 1) // 2 if each == max(m, n, k) else each for each in (m, n, k))
    batch_a, batch_b = _batches(of, m, n, k, most)
    vector_a, vector_b = (of.often(0.03) and not batch for batch in (batch_a, batch_b))
    m, n = 1 if vector_a else m, 1 if vector_b else n
    a = of.strided((*batch_a, k) if vector_a else (*batch_a, m, k), a_type)
    b = of.strided((*batch_b, k) if vector_b else (*batch_b, k, n), b_type)
    batch = np.broadcast_shapes(batch_a, batch_b)
    shape = (*batch, *(() if vector_a else (m,)), *(() if vector_b else (n,)))
    call = Call(a, b, sums=precision or a_type)
    if a_type.startswith("float8"):
        call.sums = "float8"
    if a_type == "float32" and (precision == "tf32" or of.often(0.5)):
        call.keywords["precision"] = precision
    out_type = results[0] if of.often(0.5) else of.one_of(*results)
    vectors = vector_a or vector_b
    if a_type == "int8":
        _int8_keywords(of, call, out_type, m, n)
    else:
        _float_keywords(of, call, a_type, out_type, (m, n, k), shape, vectors)
    if of.often(0.15):
        call.keywords["batch_invariant"] = True
    if of.often(0.3):
        call.keywords["out"] = of.strided(shape, "float32", result=True).to(getattr(torch, out_type))
        if not call.keywords["out"].is_contiguous() or of.often(0.5):
            call.keywords["out"] = _like(of, shape, out_type)
        if (
            "residual" not in call.keywords
            and a_type != "int8"
            and of.often(0.2)
            and out_type != "float8_e4m3fn"
        ):
            call.keywords["beta"] = of.one_of(1.0, -0.5)
            call.keywords["out"].copy_(of.numbers(shape, "float32"))
            call.before = call.keywords["out"].clone()
    elif out_type != results[0]:
        call.keywords["out_dtype"] = of.one_of(getattr(torch, out_type), out_type)
    _scale_matrices(of, call, seed, batch)
    return call


def _scale_matrices(of: Draw, call: Call, seed: int, batch: tuple[int, ...]) -> None:
    """Give each matrix of a batch scales of its own, in some calls that have scales of rows or blocks.

    The random numbers are others than those of the rest of the call.
    """
    scale = call.keywords.get("scale_a")
    rng = np.random.default_rng([seed, 1])
    if not batch or 0 in batch or getattr(scale, "ndim", 0) != 2 or scale.numel() < 2 or rng.random() < 0.4:
        return
    axes = batch if rng.random() < 0.7 else (1, *batch[1:])
    call.keywords["scale_a"] = _factors(of, (*axes, *scale.shape), 1.0)
    if rng.random() < 0.3 and getattr(call.keywords["scale_b"], "ndim", 0) == 2:
        call.keywords["scale_b"] = _factors(of, (*axes, *call.keywords["scale_b"].shape), 1.0)


def _batches(of: Draw, m: int, n: int, k: int, most: int | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of a's and b's batch: mostly none."""
    if of.often(0.75) or m * n * k > 2e9:
        return (), ()
    largest = max(m * n, m * k, n * k, 1)
    one, two = int(of.rng.integers(1, 7)), int(of.rng.integers(1, 4))
    if largest * one * two > 2**24:
        one, two = 2, 1
    if of.often(0.03):
        one = 0
    return of.one_of(
        ((one,), (one,)), ((one,), ()), ((), (one,)), ((1,), (one,)), ((one,), (1,)),
        ((two, one), (two, one)), ((two, 1), (one,)), ((two, one), (one,)), ((two, 1), (1, one)),
    )  # fmt: skip


def _like(of: Draw, shape: tuple[int, ...], name: str) -> Any:
    """Return memory for a result with strides of its own."""
    torch = of.torch
    dtype = getattr(torch, name)
    turned = len(shape) > 1 and of.often(0.4)
    axes = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
    pad, step = of.one_of(0, 0, 1, 8), 2 if of.often(0.08) else 1
    if not axes:
        return torch.zeros((), dtype=dtype, device=of.device)
    wide = torch.zeros((*axes[:-1], step * axes[-1] + pad), dtype=dtype, device=of.device)
    made = wide[..., : step * axes[-1] : step]
    return made.transpose(-1, -2) if turned else made


def _int8_keywords(of: Draw, call: Call, out_type: str, m: int, n: int) -> None:
    """Draw what products of int8 take: nothing with int32; scales and an epilogue with floats."""
    if out_type == "int32":
        return
    if of.often(0.15):  # without scales
        call.keywords["activation"] = "relu"
        if of.often(0.7):
            del call.keywords["activation"]
        return
    call.keywords["scale_a"] = of.one_of(
        1e-3, of.torch.full((), 1e-3, device=of.device), _factors(of, (m,), 1e-3), _factors(of, (m, 1), 1e-3)
    )
    call.keywords["scale_b"] = of.one_of(0.25, _factors(of, (n,), 0.5), _factors(of, (1, n), 0.5))
    if of.often(0.4):
        call.keywords["bias"] = of.numbers((n,), of.one_of("float32", "float16"))
    if of.often(0.3):
        call.keywords["activation"] = of.one_of(*ACTIVATIONS)


def _factors(of: Draw, shape: tuple[int, ...], size: float) -> Any:
    return of.torch.rand(shape, device=of.device) * size + size / 2


def _float_keywords(
    of: Draw, call: Call, a_type: str, out_type: str, sizes: tuple[int, int, int], shape: tuple[int, ...],
    vectors: bool,
) -> None:  # fmt: skip
    """Draw what products of floats take: scales of small ones, sums, and an epilogue."""
    m, n, k = sizes
    keywords, double = call.keywords, a_type == "float64"
    if call.sums == "float8":
        form = of.one_of("", "number", "tensor", "row", "block")
        blocks = -(-k // 128)
        if form == "number":
            keywords["scale_a"], keywords["scale_b"] = 0.5, 1.5
        elif form == "tensor":
            keywords["scale_a"], keywords["scale_b"] = _factors(of, (), 1.0), _factors(of, (1,), 1.0)
        elif form == "row":
            keywords["scale_a"], keywords["scale_b"] = _factors(of, (m, 1), 1.0), _factors(of, (1, n), 1.0)
        elif form == "block" and k and m and n and not vectors:
            keywords["scale_a"] = _factors(of, (m, blocks), 1.0)
            keywords["scale_b"] = _factors(of, (blocks, -(-n // 128)), 1.0)
            call.blocks = True
        if form != "block" and of.often(0.15):
            keywords["accumulate"] = "f32"
    if a_type == "float16" and of.often(0.12):
        keywords["accumulate"], call.sums = "f16", "f16 sums"
    added = ("float64",) if double else ("float32", "float16", "bfloat16")
    if of.often(0.3):
        keywords["bias"] = of.numbers(of.one_of((n,), (n,), (m, 1)), of.one_of(*added))
    if of.often(0.25):
        keywords["activation"] = "relu" if double else of.one_of(*ACTIVATIONS)
    if of.often(0.2):
        keywords["alpha"] = of.one_of(0.5, -2.0, 0.0, 3)
    if of.often(0.2):
        keywords["residual"] = of.strided(shape, of.one_of(*added))
        if of.often(0.5):
            keywords["beta"] = of.one_of(0.5, -1.0, 0.0)
    if not double and of.often(0.06):
        keywords["scale_out"] = of.one_of(0.25, _factors(of, (1,), 1.0))
    if not double and of.often(0.04):
        keywords["epilogue"] = stripes


# the judgement ----------------------------------------------------------------------------------------------


def computed(call: Call) -> Any:
    """Return the result of a call."""
    return lw.matmul(call.a, call.b, **call.keywords)


def complaint(torch: Any, call: Call, found: Any) -> str:
    """Return what is wrong with a result, or nothing."""
    a, b = _scaled_blocks(call, call.a.double(), call.b.double())
    sizes = _scaled_blocks(call, _aligned(torch, call.a), _aligned(torch, call.b))
    exact, size = torch.matmul(a, b), torch.matmul(*sizes)
    if tuple(found.shape) != tuple(exact.shape):
        return f"the result has shape {tuple(found.shape)}, not {tuple(exact.shape)}"
    name = str(found.dtype).removeprefix("torch.")
    error, growth = SUM_ERRORS[call.sums]
    if call.sums == "f16 sums":  # each of the chain is rounded, and none lie closer together than 2^-24
        size = size + 2.0**-25 * (1 + call.a.shape[-1] // _DEEP) / error
    exact, size, more = _finished(torch, call, exact, size, name)
    relative, smallest, largest = ROUNDINGS[name]
    allowed = (error + growth * call.a.shape[-1]) * size + relative * exact.abs() * 1.01 + smallest * 1.01
    if call.keywords and call.sums != "float64":
        allowed = allowed + 1e-6 * size  # of an epilogue in float32
    allowed = allowed + more
    if name == "float8_e4m3fn":
        exact = exact.clamp(-largest, largest)
    given = found.double()
    wrong = ~((given - exact).abs() <= allowed) & (exact.abs() <= largest * 0.98)
    if not bool(wrong.any()):
        return ""
    where = tuple(int(each) for each in wrong.nonzero()[0])
    return (
        f"{int(wrong.sum())} of {wrong.numel()} are wrong, the first at {where}: {float(given[where])} for "
        f"{float(exact[where])}, {float(allowed[where]):.3g} allowed"
    )


def _aligned(torch: Any, array: Any) -> Any:
    """Return magnitudes as tensor cores align products: a subnormal number has the exponent of the smallest
    normal one, so that a sum of small floats may lose as much as if it were that one."""
    size = array.double().abs()
    if not str(array.dtype).startswith("torch.float8"):
        return size
    smallest = torch.finfo(array.dtype).tiny
    return torch.where((size > 0) & (size < smallest), smallest, size)


def _scaled_blocks(call: Call, a: Any, b: Any) -> tuple[Any, Any]:
    """Return both operands times the scales of their blocks, if they have such."""
    if not call.blocks:
        return a, b
    k, n = b.shape[-2:]
    of_a, of_b = (call.keywords[name].double().repeat_interleave(128, -1) for name in ("scale_a", "scale_b"))
    return a * of_a[..., :k], b * of_b.repeat_interleave(128, -2)[..., :k, :n]


def _finished(torch: Any, call: Call, exact: Any, size: Any, result: str) -> tuple[Any, Any, Any]:
    """Return exact sums after the epilogue, how large the terms were that errors are measured by, and by how
    much the activation may be wrong for results of a type."""
    keywords = call.keywords
    more = torch.zeros((), dtype=torch.float64, device=exact.device)
    factor = torch.tensor(float(keywords.get("alpha", 1.0)), dtype=torch.float64, device=exact.device)
    for name, axis in (("scale_a", -2), ("scale_b", -1)):
        scale = keywords.get(name)
        if scale is None or call.blocks:
            continue
        if getattr(scale, "ndim", 0) > 2:  # of each matrix of a batch
            factor = factor * scale.double()
        elif hasattr(scale, "shape") and scale.numel() != 1:
            scale = scale.double().reshape(-1)
            vector = call.a.ndim == 1 if axis == -2 else call.b.ndim == 1
            if not vector:
                scale = scale.reshape(-1, 1) if axis == -2 and call.b.ndim > 1 else scale
            factor = factor * scale
        else:
            factor = factor * (float(scale) if not hasattr(scale, "shape") else scale.double().reshape(()))
    exact, size = exact * factor, size * factor.abs()
    if "bias" in keywords:
        bias = keywords["bias"].double()
        if exact.ndim < 2 or call.a.ndim == 1 or call.b.ndim == 1:
            bias = bias.reshape(-1)
            bias = bias.reshape(()) if exact.ndim == 0 else bias
        exact, size = exact + bias, size + bias.abs()
    if "activation" in keywords:
        exact = _activated(torch, keywords["activation"], exact)
        size = size * 1.2
        if keywords["activation"] != "relu":
            more = ACTIVATION_ERRORS[result] * exact.abs()
    added = keywords.get("residual", call.before)
    if added is not None:
        beta = float(keywords.get("beta", 1.0))
        exact, size = exact + beta * added.double(), size + abs(beta) * added.double().abs()
    if "scale_out" in keywords:
        scale = keywords["scale_out"]
        scale = scale.double().reshape(()) if hasattr(scale, "shape") else scale
        exact, size, more = exact * scale, size * abs(scale), more * abs(scale)
    if "epilogue" in keywords:
        rows = torch.arange(exact.shape[-2] if exact.ndim > 1 and call.a.ndim > 1 else 1, device=exact.device)
        columns = torch.arange(exact.shape[-1] if exact.ndim and call.b.ndim > 1 else 1, device=exact.device)
        if exact.ndim and call.b.ndim == 1:
            rows = torch.arange(exact.shape[-1], device=exact.device)
        negated = ((rows[:, None] + columns) % 3 == 0).reshape(
            exact.shape[-2:] if call.a.ndim > 1 and call.b.ndim > 1 else exact.shape[-1:]
        )
        exact = torch.where(negated, -exact, exact)
    return exact, size, more


def _activated(torch: Any, name: str, values: Any) -> Any:
    if name == "gelu_tanh":
        return torch.nn.functional.gelu(values, approximate="tanh")
    functions = {**torch.nn.functional.__dict__, "sigmoid": torch.sigmoid}
    return functions[name](values)


def bits(tensor: Any) -> bytes:
    """Return the bits of a tensor's elements."""
    return np.ascontiguousarray(host_array(tensor.cpu())).tobytes()


def on_host(tensor: Any) -> Any:
    """Return a tensor in host memory with the same strides: the planner's choice depends on them."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    return (
        tensor.as_strided((elements,), (1,), 0)
        .cpu()
        .as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    )


def on_cpu(call: Call) -> Any:
    """Return the result of the same call on tensors in host memory."""
    keywords = {
        name: on_host(value) if hasattr(value, "as_strided") else value
        for name, value in call.keywords.items()
    }
    if call.before is not None:
        keywords["out"].copy_(call.before.cpu())
    return lw.matmul(on_host(call.a), on_host(call.b), arch=arch_of_device(0), **keywords)


def judged(torch: Any, seed: int, device: str = "cuda", most: int | None = None) -> str:
    """Make the call of a seed, and return what is wrong with its result, or nothing."""
    call = draw(torch, seed, device, most)
    try:
        found = computed(call)
        if device == "cuda":
            torch.cuda.synchronize()  # a kernel that failed says so here
        wrong = complaint(torch, call, found)
        if not wrong and call.before is None and seed % 3 == 0:
            first = bits(found)
            for _ in range(10 if seed % 9 == 0 else 1):  # as a recorded launch, then in machine code
                if bits(computed(call)) != first:
                    wrong = "another call gives other bits"
        if not wrong and seed % 5 == 0 and device != "cpu" and bits(found) != bits(on_cpu(call)):
            wrong = "the CPU gives other bits"
    except Exception as error:
        if device == "cuda" and _LACKS.search(str(error)):
            return ""
        wrong = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}"
    return f"seed {seed}: {call}\n    {wrong}" if wrong else ""


def main() -> int:
    """Run the calls and print a summary; 1 if one is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--first", type=int, default=None, help="the first seed; today's, unless given")
    parser.add_argument("--nightly", action="store_true", help="begin at the night's own seed")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--most", type=int, default=None, help="the largest size of an axis")
    parser.add_argument("--virtual", default=None, metavar="GPU", help="a GPU made of the CPU, as H200 or T4")
    options = parser.parse_args()
    import torch

    device = "cuda" if torch.cuda.is_available() or options.virtual else "cpu"
    most = options.most or (None if torch.cuda.is_available() and not options.virtual else 90)
    first = first_seed(options.nightly) if options.first is None else options.first
    print(f"first seed {first}", flush=True)
    until = time.time() + options.seconds
    spawn = multiprocessing.get_context("spawn")
    seeds, results = spawn.Value("q", first), spawn.Queue()
    last = first + options.calls

    def worker() -> Any:
        made = spawn.Process(
            target=_spread, args=(seeds, last, results, device, until, most, options.virtual), daemon=True
        )
        made.start()
        return made

    workers = [worker() for _ in range(options.processes)]
    counts: Counter[str] = Counter()
    while workers:
        try:
            wrong = results.get(timeout=1)
            counts["wrong" if wrong else "right"] += 1
            if wrong:
                print(wrong[:_LONGEST], flush=True)
        except queue.Empty:
            ended = [each for each in workers if each.exitcode is not None]
            counts["died"] += sum(each.exitcode != 0 for each in ended)
            workers = [each for each in workers if each.exitcode is None]
            if time.time() < until and seeds.value < last:  # a faulted GPU context takes its process with it
                workers += [worker() for each in ended]
    tried = counts["right"] + counts["wrong"]
    print(
        f"seeds from {first} on: {counts['right']} right, {counts['wrong']} wrong, {counts['died']} died, "
        f"{options.calls - tried} not tried for lack of time"
    )
    return 1 if counts["wrong"] or counts["died"] or tried < options.calls else 0


def first_seed(nightly: bool = False, day: date | None = None) -> int:
    """Return the seed that a day's calls begin with, or those of its night.

    >>> first_seed(day=date(2026, 1, 31)), first_seed(True, date(2026, 1, 31))
    (20260131000000, 20260131500000)
    """
    day = day or datetime.now(UTC).date()
    return int(day.strftime("%Y%m%d")) * 1_000_000 + 500_000 * nightly


def _spread(
    seeds: Any, last: int, results: Any, device: str, until: float, most: int | None, virtual: str | None
) -> None:
    """Take seeds until there are none, or until time is up."""
    import torch

    if virtual is not None:
        with lw.virtual_gpu(virtual):
            _spread(seeds, last, results, device, until, most, None)
        return
    while time.time() < until:
        with seeds.get_lock():
            seed = seeds.value
            seeds.value += 1
        if seed >= last:
            break
        wrong = judged(torch, seed, device, most)
        results.put(wrong)
        if "CUDA error" in wrong or "CUDA_ERROR" in wrong:
            results.close()
            results.join_thread()
            sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
