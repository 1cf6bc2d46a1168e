"""Vector code: each operation against NumPy's, and loops and conditions against Python's."""

from collections.abc import Callable

import numpy as np
import pytest

from lanewise.jit import ir, machine_code, simd
from lanewise.jit.host_memory import address
from lanewise.jit.simd import Code, Type, Value

DTYPES = {"i": "int", "u": "uint", "f": "float"}
RNG = np.random.default_rng(3)


def dtype(type: Type) -> np.dtype:
    return np.dtype(f"{DTYPES[type.kind]}{type.bits}")


def compile_and_run(write: Callable[[Code], None], arguments: dict[str, int]) -> None:
    module = ir.Module("test")
    code = Code(module, "f", tuple(arguments))
    write(code)
    code.end()
    machine_code.Program([machine_code.compile(str(module))])("f", list(arguments.values()))


def apply(operation: Callable[..., Value], result: Type, *inputs: np.ndarray, lanes: int = 4) -> np.ndarray:
    """The operation on vectors of the inputs' elements."""
    output = np.zeros(inputs[0].size, dtype(result))
    types = [
        Type({"i": "i", "u": "u", "f": "f"}[each.dtype.kind], each.dtype.itemsize * 8)  # type: ignore[arg-type]  # one of three kinds, by the dictionary
        for each in inputs
    ]

    def write(code: Code) -> None:
        with code.loop(code["count"]) as index:
            loaded = [code.pointer(f"in{n}", type).load(index * lanes, lanes) for n, type in enumerate(types)]
            code.pointer("out", result).store(operation(*loaded), index * lanes)

    addresses = {f"in{n}": address(each) for n, each in enumerate(inputs)}
    compile_and_run(write, addresses | {"out": address(output), "count": output.size // lanes})
    return output


def sample(type: Type, size: int = 64) -> np.ndarray:
    if type.kind == "f":
        return (RNG.normal(size=size) * 100).astype(dtype(type))
    info = np.iinfo(dtype(type))
    return RNG.integers(info.min, info.max, size, dtype=dtype(type), endpoint=True)


@pytest.mark.parametrize(
    "type", [simd.i8, simd.i16, simd.i32, simd.u32, simd.f32, simd.f64], ids=lambda t: t.name
)
def test_arithmetic(type: Type) -> None:
    x, y = sample(type), sample(type)
    with np.errstate(over="ignore"):
        assert np.array_equal(apply(lambda a, b: a + b, type, x, y), x + y)
        assert np.array_equal(apply(lambda a, b: a - b, type, x, y), x - y)
        assert np.array_equal(apply(lambda a, b: a * b, type, x, y), x * y)
        assert np.array_equal(apply(lambda a: 3 - a, type, x), dtype(type).type(3) - x)
    assert np.array_equal(apply(lambda a, b: (a < b).select(a, b), type, x, y), np.minimum(x, y))
    assert np.array_equal(apply(lambda a, b: (a >= b).select(a, b), type, x, y), np.maximum(x, y))


@pytest.mark.parametrize("type", [simd.i8, simd.i32, simd.u32, simd.u64], ids=lambda t: t.name)
def test_bits_of_integers(type: Type) -> None:
    x, y = sample(type), sample(type)
    assert np.array_equal(
        apply(lambda a, b: (a & b) ^ (a | 5), type, x, y), (x & y) ^ (x | dtype(type).type(5))
    )
    assert np.array_equal(apply(lambda a: a >> 3, type, x), x >> dtype(type).type(3))  # by its own sign
    assert np.array_equal(apply(lambda a: a << 2, type, x), x << dtype(type).type(2))
    assert np.array_equal(apply(lambda a: ~a, type, x), ~x)
    assert np.array_equal(apply(lambda a, b: a.max(b), type, x, y), np.maximum(x, y))
    same = (x == y) | (x > y)
    assert np.array_equal(apply(lambda a, b: (a.equals(b) | (a > b)).mask(a.type), type, x, y) != 0, same)


def test_saturating_addition() -> None:
    x, y = sample(simd.i8), sample(simd.i8)
    want = np.clip(x.astype(int) + y, -128, 127)
    assert np.array_equal(apply(lambda a, b: a.saturating_add(b), simd.i8, x, y), want)


def test_conversions_keep_values() -> None:
    numbers = sample(simd.f32)
    assert np.array_equal(apply(lambda a: a.to(simd.i32), simd.i32, numbers), np.trunc(numbers))
    assert np.array_equal(apply(lambda a: a.to(simd.f64), simd.f64, numbers), numbers.astype("f8"))
    small, bits = sample(simd.i8), sample(simd.u8)
    assert np.array_equal(apply(lambda a: a.to(simd.i32), simd.i32, small), small.astype("i4"))
    assert np.array_equal(apply(lambda a: a.to(simd.u32), simd.u32, bits), bits.astype("u4"))
    assert np.array_equal(
        apply(lambda a: a.to(simd.f32), simd.f32, bits.astype("u4") << 24),
        (bits.astype("u4") << 24).astype("f4"),
    )
    wide = sample(simd.i32)
    assert np.array_equal(apply(lambda a: a.to(simd.i8), simd.i8, wide), wide.astype("i1"))
    assert np.array_equal(apply(lambda a: a.view(simd.u32), simd.u32, numbers), numbers.view("u4"))


def test_lanes() -> None:
    x = sample(simd.i32)
    rows = x.reshape(-1, 4)
    assert np.array_equal(apply(lambda a: a.lane(2).spread(4), simd.i32, x).reshape(-1, 4), rows[:, [2] * 4])
    halves = apply(lambda a: a.part(2, 2).lane(0).spread(4), simd.i32, x).reshape(-1, 4)
    assert np.array_equal(halves, rows[:, [2] * 4])
    some = apply(lambda a: (a > 0).any().spread(4).mask(a.type), simd.i32, x).reshape(-1, 4)
    assert np.array_equal(some != 0, np.repeat(np.any(rows > 0, axis=1, keepdims=True), 4, axis=1))


def test_loops_and_conditions() -> None:
    output = np.zeros(20, np.int64)

    def write(code: Code) -> None:
        out = code.pointer("out", simd.i64)
        with code.loop(code["last"], 3) as i:
            total = code.variable(code.constant(simd.i64, 0))
            with code.loop(i) as j, code.when((j & 1).equals(0)):
                total.set(total.get() + j)
            out.store(total.get(), i)

    compile_and_run(write, {"out": address(output), "last": 20})
    want = [sum(j for j in range(i) if j % 2 == 0) if i >= 3 else 0 for i in range(20)]
    assert output.tolist() == want


def test_functions_call_one_another() -> None:
    output = np.zeros(4, np.int64)
    module = ir.Module("test")
    inner = Code(module, "inner", ("out", "value"))
    inner.pointer("out", simd.i64).store(inner["value"] * 2)
    inner.end()
    outer = Code(module, "outer", ("out",))
    with outer.loop(4) as i:
        outer.call(inner, out=outer.pointer("out", simd.i64) + i, value=i + 10)
    outer.end()
    machine_code.Program([machine_code.compile(str(module))])("outer", [address(output)])
    assert output.tolist() == [20, 22, 24, 26]
