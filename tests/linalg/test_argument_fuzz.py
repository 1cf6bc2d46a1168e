"""Arguments of products drawn at random from what nobody should pass: each call works, or says what is wrong.

An exception that is not a LanewiseError is a defect: one of NumPy's, torch's or Python's own that a person
who passed a wrong argument would have to look up in the library's source.
"""

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING
from lanewise.errors import InternalError, LanewiseError

#: Calls that are drawn for each function.
CALLS = 3000 if EVERYTHING else 40
KEYWORDS = (
    "out", "bias", "activation", "residual", "alpha", "beta", "scale_a", "scale_b", "scale_out", "epilogue",
    "out_dtype", "accumulate", "precision", "batch_invariant", "arch", "plan", "stream",
)  # fmt: skip
TYPES = (np.float16, np.float32, np.float64, np.int8, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)


class Interface:
    """An object with nothing but an interface of arrays."""

    def __init__(self, name: str, value: Any) -> None:
        setattr(self, name, value)


class Only:
    """An array of which nothing is known but DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **given: Any) -> Any:
        return self.array.__dlpack__(**given)


class Broken:
    """An object whose DLPack raises, or says something else than DLPack does."""

    def __init__(self, device: Any, error: BaseException | None = None) -> None:
        self.device, self.error = device, error

    def __dlpack_device__(self) -> Any:
        if isinstance(self.device, Exception):
            raise self.device
        return self.device

    def __dlpack__(self, **_: Any) -> Any:
        raise self.error or RuntimeError("nothing to give")


class Hostile:
    """An object that raises whatever it is asked."""

    @property
    def shape(self) -> Any:
        raise RuntimeError("no shape")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    def __hash__(self) -> int:
        raise TypeError("no hash")

    def __repr__(self) -> str:
        return "<hostile>"


class Stream:
    """An object whose stream is none."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def __cuda_stream__(self) -> Any:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def _good(shape: tuple[int, ...] = (4, 4), dtype: Any = np.float16) -> Any:
    return np.ones(shape, dtype)


def _of_device(**changed: Any) -> Interface:
    fields = {"shape": (4, 4), "typestr": "<f2", "data": (4096, False), "version": 3, **changed}
    found = {name: value for name, value in fields.items() if value != "absent"}
    return Interface("__cuda_array_interface__", found)


def _of_host(**changed: Any) -> Interface:
    fields = {"shape": (4, 4), "typestr": "<f2", "data": (0, False), "version": 3, **changed}
    return Interface(
        "__array_interface__", {name: value for name, value in fields.items() if value != "absent"}
    )


def _scalars() -> list[Any]:
    return [
        None, True, False, 0, 1, -1, 3, 1.5, float("nan"), float("inf"), 10**400, 1j, "", "x", "relu", "gelu",
        "tf32", "f16", "float32", ">f4", "sm_80", "sm_90a", "sm_999", "H100", b"ab", [], [1, 2], [2, 4], (1,),
        {}, {"a": 1}, set(), range(4), iter([1]), [2.5, 4], [10**30], [-1, 4], [True, False], object(), int,
        Hostile(), lambda value: value, np.float16, np.dtype(">f2"), np.dtype("f4,i4"), np.float16(2),
        np.int64(3),
        np.bool_(True), np.str_("relu"), np.float64("inf"), np.uint64(2**63), memoryview(b"1234"),
        Stream(None), Stream((0, "x")), Stream((7, 0)), Stream(KeyError("stream")), Stream((0, 5)),
    ]  # fmt: skip


def _host_arrays() -> list[Any]:
    wide = np.zeros((1,) * 30 + (4, 4), np.float16)
    return [
        _good(), _good(dtype=np.float32), _good((1,), np.float32), _good((4,)), _good((4, 1)), _good((0,)),
        _good((4, 0)), _good((0, 4)), _good(()), _good((2, 4, 4)), _good((3, 2, 4, 4)),
        _good((2, 1, 4, 4)), wide,
        _good(dtype=complex), _good(dtype=bool), _good(dtype=">f2"), _good(dtype=">f4"), _good(dtype=">i4"),
        np.array(["a"]), np.array([None]), np.zeros((4, 4), "<M8[s]"), np.zeros((4, 4), [("x", "f4")]),
        np.ma.zeros((4, 4), np.float16), _good((4, 8))[:, ::-2],
        np.zeros(100, np.uint8)[1:33].view(np.float16).reshape(4, 4), np.broadcast_to(np.float16(0), (4, 4)),
        np.array([2.0, 4.0]), np.array([2, 4]), np.array([[2, 4]]), np.array([2, 4], ">i4"), [[1.0] * 4] * 4,
    ]  # fmt: skip


#: Fields of a `__cuda_array_interface__` and of an `__array_interface__` that make them wrong.
_WRONG_ON_DEVICE: tuple[dict[str, Any], ...] = (
    {"shape": "absent"}, {"shape": "ab"}, {"shape": (4, -4)}, {"shape": (4.0, 4)}, {"shape": None},
    {"typestr": "absent"}, {"typestr": 3}, {"typestr": "bogus"}, {"typestr": ">f2"}, {"typestr": "|O"},
    {"data": "absent"}, {"data": None}, {"data": ("x", False)}, {"data": (0, False)}, {"data": (1,)},
    {"strides": (1,)}, {"strides": "ab"}, {"strides": (8, 1)}, {"mask": 3}, {"shape": (0, 4), "data": (0, 0)},
    {"shape": ()}, {"version": "x"}, {},
)  # fmt: skip
_WRONG_ON_HOST: tuple[dict[str, Any], ...] = (
    {}, {"shape": "absent"}, {"shape": (4, -4)}, {"typestr": "absent"}, {"typestr": 5}, {"data": b"1"},
    {"data": "absent"}, {"strides": (1,)}, {"version": 0},
)  # fmt: skip


def _other_arrays() -> list[Any]:
    nothing: tuple[Any, ...] = (None, {}, 7, [1])
    found: list[Any] = [_of_device(**each) for each in _WRONG_ON_DEVICE]
    found += [Interface("__cuda_array_interface__", each) for each in nothing]
    found += [_of_host(**each) for each in _WRONG_ON_HOST]
    found += [Interface("__array_interface__", each) for each in nothing]
    devices = [5, (1,), (1, 0), ("a", "b"), RuntimeError("x"), (2, 0), (13, 7), (99, 0), None, (1, 2, 3)]
    found += [Broken(each) for each in devices]
    found += [
        Broken((1, 0), each) for each in (MemoryError(), KeyError("k"), BufferError("b"), TypeError("t"))
    ]
    found += [Only(_good()), Only(_good((2, 4, 4))), Only(_good((3, 2, 4, 4))), Only(_good(dtype=np.float64))]
    found += [lw.sparsify(_good()), lw.plan(_good(), _good()), lw.plan(_good(), _good()).plan]
    found.append(lw.epilogue(_unchanged))
    return found


def _unchanged(value: Any, row: Any, column: Any) -> Any:
    return value


def _tensors() -> list[Any]:
    try:
        import torch
    except ImportError:
        return []
    half = torch.zeros(4, 4, dtype=torch.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.zeros(4), torch.zeros(2)])
        quantized = torch.quantize_per_tensor(torch.zeros(4, 4), 0.1, 0, torch.qint8)
    return [
        half, torch.zeros(4, 4), torch.zeros(4, 4, requires_grad=True), torch.zeros(4, 4).to_sparse(), nested,
        quantized, torch.zeros(4, 4, dtype=torch.complex64),
        torch.zeros(4, 4, dtype=torch.complex64).conj().imag,
        torch.zeros(4, 4, device="meta"), torch.zeros(()), torch.tensor([2, 4]), torch.tensor([2.0, 4.0]),
        torch.zeros(4, 4, dtype=torch.uint16), torch.zeros(4, 4, dtype=torch.bool), half.expand(2, 4, 4),
        torch.zeros(3, 2, 4, 4, dtype=torch.float16), torch.float16, torch.float64, torch.device("cpu"),
        torch.zeros(2, dtype=torch.int64, device="meta"),
    ]  # fmt: skip


class Draw:
    """Random arguments of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pools = [_scalars(), _host_arrays(), _other_arrays(), _tensors()]

    def anything(self) -> Any:
        """Return something from a pool."""
        return self.rng.choice(self.rng.choice([each for each in self.pools if each]))

    def operands(self) -> tuple[Any, Any]:
        """Return two arrays that go together, one of them often replaced."""
        dtype = self.rng.choice(TYPES)
        batch = self.rng.choice([(), (), (), (2,), (3, 2)])
        sizes = [self.rng.choice([0, 1, 4, 4, 4, 130]) for _ in range(3)]
        a, b = np.ones((*batch, sizes[0], sizes[1]), dtype), np.ones((*batch, sizes[1], sizes[2]), dtype)
        if self.rng.random() < 0.5:
            a, b = np.ones((4, 4), dtype), np.ones((4, 4), dtype)
        if self.rng.random() < 0.3:
            a = self.anything()
        if self.rng.random() < 0.3:
            b = self.anything()
        return a, b

    def keywords(self, *more: str) -> dict[str, Any]:
        """Return up to three keywords."""
        names = self.rng.sample((*KEYWORDS, *more), self.rng.choice([0, 1, 1, 2, 3]))
        return {name: self.anything() for name in names}


def multiply(draw: Draw) -> Callable[[], Any]:
    """lw.matmul."""
    (a, b), keywords = draw.operands(), draw.keywords()
    return lambda: lw.matmul(a, b, **keywords)


def multiply_sparse(draw: Draw) -> Callable[[], Any]:
    """lw.matmul with a sparse b."""
    sparse, keywords = lw.sparsify(_good()), draw.keywords()
    a = draw.rng.choice([draw.anything(), _good(), _good((3, 2, 4, 4))])
    return lambda: lw.matmul(a, sparse, **keywords)


def multiply_groups(draw: Draw) -> Callable[[], Any]:
    """lw.grouped_matmul."""
    a, b = draw.operands()
    if draw.rng.random() < 0.7:
        a, b = _good(), _good((2, 4, 4))
    offsets, keywords = draw.rng.choice([[2, 4], draw.anything()]), draw.keywords("counts")
    return lambda: lw.grouped_matmul(a, b, offsets, **keywords)


def plan(draw: Draw) -> Callable[[], Any]:
    """lw.plan, and what it prints."""
    (a, b), keywords = draw.operands(), draw.keywords("nonsense")
    return lambda: lw.plan(a, b, **keywords).with_()


def tune(draw: Draw) -> Callable[[], Any]:
    """lw.tune, which measures nothing where there is no GPU."""
    (a, b), keywords = draw.operands(), draw.keywords("nonsense")
    return lambda: lw.tune(a, b, progress=False, **keywords)


def sparsify(draw: Draw) -> Callable[[], Any]:
    """lw.sparsify, its dense form, and a product with it."""
    b = draw.anything()
    if draw.rng.random() < 0.5:
        shape = draw.rng.choice([0, 4, 8, 3]), draw.rng.choice([0, 1, 5])
        b = np.ones(shape, draw.rng.choice(TYPES))

    def call() -> None:
        found = lw.sparsify(b)
        assert found.dense().shape == found.shape
        lw.matmul(np.ones((3, found.k), found.format.dtype), found)

    return call


@pytest.mark.parametrize("function", [multiply, multiply_sparse, multiply_groups, plan, tune, sparsify])
def test_wrong_arguments_are_refused_in_sentences(function: Callable[[Draw], Callable[[], Any]]) -> None:
    seed = 20261116 if not EVERYTHING else random.SystemRandom().randrange(1 << 32)
    draw = Draw(seed)
    refused = 0
    for number in range(CALLS):
        call = function(draw)
        try:
            call()
        except LanewiseError as error:
            assert not isinstance(error, InternalError), error
            assert len(str(error).split()) > 3, f"call {number}: {error}"
            refused += 1
        except Exception as error:
            pytest.fail(f"seed {seed}, call {number}: {type(error).__name__}: {error}")
    assert 0 < refused < CALLS or function is tune


def test_degenerate_sparse_matrices() -> None:
    """(K, 0), (0, N) and (0, 0) are matrices, and products with them have their shape."""
    for k, n in ((8, 0), (0, 5), (0, 0), (4, 1)):
        sparse = lw.sparsify(np.ones((k, n), np.float16))
        assert sparse.shape == (k, n) and sparse.dense().shape == (k, n)
        assert sparse.values.shape == sparse.indices.shape == (n, k // 2)
        result = lw.matmul(np.ones((3, k), np.float16), sparse, bias=np.ones(n, np.float32))
        assert result.shape == (3, n) and (result == 1 + k // 2).all()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
@pytest.mark.parametrize("name", ["a", "b", "out", "bias", "residual", "scale_a", "scale_out", "out_dtype"])
def test_one_byte_order(dtype: str, name: str) -> None:
    """Elements in another byte order than the machine's own are refused: of every type, and everywhere."""
    swapped = np.dtype(dtype).newbyteorder()
    array = np.ones((4, 4), swapped)
    small = np.ones((4, 4), ml_dtypes.float8_e4m3fn)
    own = np.ones((4, 4), {"f8": "f8", "f4": "f4"}.get(dtype, "f2"))
    given: dict[str, Any] = {"a": own, "b": own, "out_dtype": None}
    given[name] = swapped if name == "out_dtype" else array[0] if name == "bias" else array
    if name in ("scale_a", "scale_out"):
        given |= {"a": small, "b": small, name: array[:1, 0] if name == "scale_out" else array[:, :1]}
    with pytest.raises(LanewiseError) as caught:
        lw.matmul(given.pop("a"), given.pop("b"), **given)
    if dtype != "i4":  # an int32 is refused for its type
        assert "byte order" in str(caught.value)


@pytest.mark.parametrize("name", ["alpha", "beta", "scale_a", "scale_b", "scale_out"])
def test_integers_that_are_no_floats(name: str) -> None:
    small = np.ones((4, 4), ml_dtypes.float8_e4m3fn)
    given: dict[str, Any] = {name: 10**400, "residual": np.ones((4, 4), np.float32)}
    with pytest.raises(LanewiseError, match=f"{name} must be at most"):
        lw.matmul(small, small, **given)


def test_negative_views_of_torch_are_refused() -> None:
    """The imaginary part of a conjugate has the numbers with the other sign in its memory."""
    torch = sys.modules.get("torch") or pytest.importorskip("torch")
    view = torch.ones(4, 4, dtype=torch.complex64).conj().imag
    with pytest.raises(LanewiseError, match="resolve_neg"):
        lw.matmul(view, view)
    assert (lw.matmul(view.resolve_neg(), view.resolve_neg()) == 0).all()
