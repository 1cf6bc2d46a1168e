"""Launches of `lw.matmul` without a GPU: recorded, kept on disk, repeated on other memory, found again."""

import ctypes
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.formats import f16
from lanewise.gpu import device, recorded
from lanewise.isa.tensor_map import decode
from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.arrays import DeviceView, batch_of_one, device_view, flat
from lanewise.linalg.attention import AttentionSettings
from lanewise.linalg.attention import _call as attention_call
from lanewise.linalg.kernels.family import Launch, family_of, made_by_constants
from lanewise.linalg.launch import attention as launch_attention
from lanewise.linalg.launch import known_calls, prepare
from lanewise.linalg.launch.known_calls import CallKind, KnownCall, kind_of_tensor
from lanewise.linalg.matmul import product
from lanewise.linalg.matrix_in_two_arrays import OnDevice
from lanewise.linalg.operands import View, view_of
from lanewise.linalg.options import NO_SETTINGS, Options
from lanewise.linalg.planning.planner import plan_of
from lanewise.linalg.rules import problem_of_sizes, request_of
from lanewise.linalg.sparsify import SparseMatrix

MULTIPROCESSORS, MAJOR, MINOR, MOST_SHARED = 16, 75, 76, 97


class NoDriver:
    """A driver that notes launches instead of making them: the parameters, each as bytes."""

    version, places = (13, 0), (0, 0)

    def __init__(self) -> None:
        self.launched: list[tuple[int, list[int]]] = []

    def number(self, name: str, *arguments: Any) -> int:
        known = {MULTIPROCESSORS: 132, MAJOR: 9, MINOR: 0, MOST_SHARED: 232448}
        if name == "cuDeviceGetAttribute":
            return known[arguments[0]]
        if name == "cuFuncGetAttribute":
            return {0: 1024, 1: 0, 4: 168}.get(arguments[0], 0)
        return int(name == "cuDeviceGetCount")

    def handle(self, *_: Any, kernel: str = "") -> int:
        return 7

    def __call__(self, *_: Any, kernel: str = "") -> None:
        pass

    def launch(self, config: Any, function: Any, parameters: Any, extra: Any) -> int:
        stream = ctypes.c_uint64.from_address(config.value + 32).value
        places = (ctypes.c_uint64 * 3).from_address(parameters.value)
        self.launched.append((stream, sorted(decode(ctypes.string_at(place, 128))[0] for place in places)))
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> NoDriver:
    """A GPU that is not there."""
    found = NoDriver()
    monkeypatch.setattr("lanewise.gpu.driver.load", lambda: found)
    there = device.Context(0)
    monkeypatch.setattr(prepare, "context", lambda ordinal: there)
    monkeypatch.setattr("lanewise.gpu.arrays.context", lambda ordinal: there)
    prepare._PREPARED.clear()
    return found


def run(a: Any, b: Any, stream: int) -> list[int]:
    """Launch a product of arrays as if they lay on a GPU; returns the addresses of a, b and the result."""
    request = request_of(a, b, Options())
    for name in ("a", "b", "out"):
        setattr(request, name, getattr(request, name)._replace(device=0))
    assert request.problem is not None
    prepare.run(request, request.problem, None, None, stream)
    return sorted((request.a.address, request.b.address, request.out.address))


def test_launches_are_recorded_repeated_and_kept(driver: NoDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = (64, 128), (128, 64)
    for stream in (5, 9):
        addresses = run(np.ones(shapes[0], np.float16), np.ones(shapes[1], np.float16), stream)
        assert driver.launched.pop() == (stream, addresses)
    prepare._PREPARED.clear()
    monkeypatch.setattr(prepare, "_recorded", None)  # what is on disk needs no family
    addresses = run(np.ones(shapes[0], np.float16), np.ones(shapes[1], np.float16), 3)
    assert driver.launched.pop() == (3, addresses)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on as another process: nothing is in memory, and no kernel's source can be traced."""
    prepare._PREPARED.clear()
    recorded._NAMED.clear()
    recorded._FUNCTIONS.clear()
    monkeypatch.setattr(Launch, "traced", None)


def test_launches_of_other_sizes_need_no_source_of_a_kernel_that_is_kept(
    driver: NoDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    run(np.ones((1000, 128), np.float16), np.ones((128, 512), np.float16), 5)
    first = {path.suffix: path for path in tmp_path.iterdir()}
    assert {".kernel", ".launch", ".cubin"} <= first.keys()
    forget(monkeypatch)
    for rows in (996, 999):
        a, b = np.ones((rows, 128), np.float16), np.ones((128, 512), np.float16)
        addresses = run(a, b, 5)
        assert driver.launched.pop() == (5, addresses)
    first[".kernel"].unlink()
    forget(monkeypatch)
    with pytest.raises(TypeError):  # `traced` is None
        run(np.ones((997, 128), np.float16), np.ones((128, 512), np.float16), 5)


def test_a_process_keeps_the_first_launches_of_a_kernel(
    driver: NoDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(recorded, "_MOST_REQUESTS", 2)
    recorded._NAMED.clear()
    for rows in (1000, 999, 998, 997):
        run(np.ones((rows, 128), np.float16), np.ones((128, 512), np.float16), 5)
    assert len(list(tmp_path.glob("*.launch"))) == 2


def test_sums_of_divided_keys_are_there_until_both_kernels_are_launched(
    driver: NoDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []
    there: list[bool] = []

    def workspace(like: View, size: int) -> Any:
        made = np.empty(size, np.uint8)
        held.append(weakref.ref(made))
        return made

    def launch(*_: Any) -> int:
        there.append(held[0]() is not None)
        return 0

    monkeypatch.setattr(driver, "launch", launch)
    monkeypatch.setattr(launch_attention, "workspace_for", workspace)
    monkeypatch.setattr(launch_attention, "address_of", lambda memory: 0 if memory is None else 1 << 40)
    shapes = {"q": (1, 64), "k": (700, 64), "v": (700, 64), "out": (1, 64)}
    views = [
        view_of(np.zeros(shape, np.float16), name)._replace(device=0, library="torch")
        for name, shape in shapes.items()
    ]
    call = attention_call(views[:3], views[3], None, AttentionSettings(False, 0.125, False, False))
    assert call.tile.parts > 1
    launch_attention.compute(call, 5)
    assert there == [True, True] and held[0]() is None


def test_kernels_with_a_function_of_the_user_have_no_name() -> None:
    class OfUser:
        """What is not of the library."""

        def __repr__(self) -> str:
            return "bf16"

    problem = problem_of_sizes(64, 64, 64, "f16")
    plan = plan_of(problem, "sm_90a")
    family = family_of(plan.family)
    named, kernel = family.kernel(problem, plan), made_by_constants(lambda constant: Kernel(unseen, {}))
    assert named.kept_as.startswith("lanewise.linalg.kernels.")
    assert kernel((4, 1.5, f16)).kept_as.endswith("((4, 1.5, <f16>),)")
    assert not kernel(OfUser()).kept_as and not kernel(unseen).kept_as
    fused = replace(problem, epilogue=replace(problem.epilogue, function=unseen))
    assert not family.kernel(fused, plan).kept_as


def unseen(value: lw.f32, row: lw.i32, column: lw.i32) -> Any:
    """Return a number as it is."""
    return value


def test_machine_code_that_is_not_kept_is_made_once(
    driver: NoDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembled: list[str] = []

    def assemble(module: Any, text: str, *_: object) -> bytes:
        assembled.append(text)
        return b"\x7fELF"

    monkeypatch.setenv("LANEWISE_CACHE_DIR", "")
    monkeypatch.setattr("lanewise.gpu.assemble.assemble", assemble)
    run(np.ones((64, 192), np.float16), np.ones((192, 64), np.float16), 5)
    assert len(assembled) == len(driver.launched) == 1


def test_views_of_memory_are_never_read() -> None:
    """Parts of an operand's memory keep its number; one that only a copy could be is an error."""
    view = device_view(4, 0x7F0000000000, (48,), (1,), f16)
    parts = [
        (view.reshape(2, 3, 8)[:, :, :5], (2, 3, 5), (48, 16, 2), 0),
        (view.reshape(2, 3, 8)[1].swapaxes(-1, -2), (8, 3), (2, 16), 48),
        (view[8:16].view(np.float32), (4,), (4,), 16),
        (flat(view.reshape(6, 8)[:, :5]), (45,), (2,), 0),
        (batch_of_one(view.reshape(6, 8)), (1, 6, 8), (96, 16, 2), 0),
        (np.broadcast_to(view.reshape(1, 48), (5, 48), subok=True), (5, 48), (0, 2), 0),
    ]
    for part, shape, strides, offset in parts:
        assert (part.shape, part.strides, part.ctypes.data - 0x7F0000000000) == (shape, strides, offset)
        assert isinstance(part, DeviceView) and part.operand == 4
    with pytest.raises(lw.LanewiseError, match="not contiguous"):
        view.reshape(6, 8)[:, :5].reshape(30)


def sparse_matrix(torch: Any, k: int, n: int) -> SparseMatrix:
    """Return a sparse matrix whose copy on a GPU is two tensors in host memory."""
    found = lw.sparsify(torch.randn(k, n).half())
    memory = [torch.zeros(size, dtype=torch.uint8) for size in (n * found.leading * 2, 4096)]
    found.copies["torch", 0] = OnDevice(*memory, *(each.data_ptr() for each in memory))
    return found


def test_calls_with_a_sparse_matrix_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """All matrices of one shape and format are of one kind; each call passes the matrix's own memory."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda ordinal: 7, raising=False)
    one, other = sparse_matrix(torch, 64, 8), sparse_matrix(torch, 64, 8)
    assert kind_of_tensor(one) == kind_of_tensor(other)
    dense = torch.zeros(64, 8).half()
    different = [sparse_matrix(torch, 128, 8), sparse_matrix(torch, 64, 16), lw.sparsify(dense.bfloat16())]
    assert len({kind_of_tensor(each) for each in (one, dense, *different)}) == 5
    launched: list[tuple[list[int], int]] = []

    class Launches:
        """A call's launches, which note the addresses and the stream."""

        launches = (SimpleNamespace(kernel=SimpleNamespace(context=SimpleNamespace(alone=False))),)
        workspace_bytes, counts = 0, False

        def __call__(self, addresses: list[int], stream: int) -> None:
            launched.append((addresses, stream))

    a = torch.randn(4, 64).half()
    kept = View((32, 8), (1, 32), lw.f16, one.copies["torch", 0].values_address, "torch", None, None)
    prepared: Any = Launches()
    made = KnownCall(prepared, request_of(a, one, Options(), kept=kept))
    for matrix in (one, other):
        result = made(a, matrix, Options())
        addresses, stream = launched.pop()
        there = matrix.copies["torch", 0]
        wanted = {"a": a, "b": there.values, "out": result, "metadata": there.metadata}
        assert stream == 7 and len(addresses) == len(prepare.OPERANDS)
        for name, address in zip(prepare.OPERANDS, addresses, strict=True):
            assert address == (wanted[name].data_ptr() if name in wanted else 0)
    assert made(a, lw.sparsify(dense), Options()) is None and not launched  # it is not on the GPU yet

    added: list[list[Any]] = []
    calls: Any = SimpleNamespace(add=lambda arguments, *_: added.append(arguments), call=lambda *given: given)
    monkeypatch.setattr(known_calls, "NATIVE_CALLS", [calls])
    monkeypatch.setattr(known_calls, "_NUMBERS", {})
    context: Any = SimpleNamespace(numbered=lambda name: 0)
    made.context, made.quick_empty, made.calls = context, torch.empty_strided, 8
    prepared.launches[0].kernel.name = "sparse"
    assert known_calls.repeated(a, one, None, None, None, {}) is None
    CallKind((), NO_SETTINGS, made).offer(a, one, Options())
    for matrix in (one, other):
        found = known_calls.repeated(a, matrix, None, None, None, {})
        there = matrix.copies["torch", 0]
        assert found[1] is there.values and found[-1] is there.metadata and found[-2] == added[0][-2]
    assert len(found) == len(added[0]) == 10
    for matrix in different:
        assert known_calls.repeated(a, matrix, None, None, None, {}) is None
    assert known_calls.repeated(a, one, None, None, "relu", {}) is None
    assert known_calls.repeated(a, one, None, None, None, {"alpha": 2.0}) is None


class OnGpu:
    """What `lw.matmul` asks of a tensor on a GPU; its memory is that of a tensor in host memory."""

    is_cuda, requires_grad = True, False

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.shape, self.dtype = tensor, tensor.shape, tensor.dtype
        self.stride, self.data_ptr = tensor.stride, tensor.data_ptr

    def get_device(self) -> int:
        return 0

    def is_neg(self) -> bool:
        return bool(self.tensor.is_neg())


class Noted:
    """The launches of a kind of call, which note the addresses and the stream."""

    workspace_bytes, counts = 0, False

    def __init__(self) -> None:
        self.made: list[tuple[list[int], int]] = []
        context = SimpleNamespace(alone=False, numbered=lambda name: 0)
        self.launches = [SimpleNamespace(kernel=SimpleNamespace(context=context, name="product"))]

    def __call__(self, addresses: list[int], stream: int) -> None:
        self.made.append((addresses, stream))


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let tensors of the class above count as torch's; nothing is remembered."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda ordinal: 7, raising=False)
    monkeypatch.setattr(known_calls, "plain_tensors", lambda: (OnGpu,))
    for name, value in (("CALLS", {}), ("_NUMBERS", {}), ("NATIVE_CALLS", [])):
        monkeypatch.setattr(known_calls, name, value)
    return torch


def remembered(a: OnGpu, b: OnGpu, **keywords: Any) -> Noted:
    """Have a call remembered as if it had been made, and return its launches."""

    def in_host_memory(value: Any) -> Any:
        return value.tensor if isinstance(value, OnGpu) else value

    given = {name: in_host_memory(value) for name, value in keywords.items()}
    request = request_of(a.tensor, b.tensor, Options(**given))
    kind, noted = known_calls.known_call(a, b, Options(**keywords)), Noted()
    assert kind is not None and kind.call is None
    prepared: Any = noted
    kind.remember(prepared, request, Options(**keywords))
    return noted


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_a_call_that_was_made_before_is_repeated_in_python(on_gpu: Any, fused: bool) -> None:
    """Launches get the addresses of this call's operands, in their order; nobody looks at the rules again."""
    torch = on_gpu
    a, b = OnGpu(torch.randn(4, 16).half()), OnGpu(torch.randn(16, 8).half())
    bias, residual = OnGpu(torch.randn(8)), OnGpu(torch.randn(4, 8).half())
    keywords: dict[str, Any] = {"bias": bias, "residual": residual, "alpha": 2.0} if fused else {}
    noted = remembered(a, b, **keywords)
    others = {name: OnGpu(value.tensor.clone()) for name, value in keywords.items() if name != "alpha"}
    again = OnGpu(a.tensor.clone())
    result = product(again, b, Options(**{**keywords, **others}))
    (addresses, stream), wanted = noted.made.pop(), {"a": again, "b": b, "out": result, **others}
    assert stream == 7 and tuple(result.shape) == (4, 8)
    for name, address in zip(prepare.OPERANDS, addresses, strict=True):
        assert address == (wanted[name].data_ptr() if name in wanted else 0), name
    for changed in ({"alpha": 3.0}, {"activation": "relu"}, {"batch_invariant": True}):
        kind = known_calls.known_call(a, b, Options(**{**keywords, **changed}))
        assert kind is not None and kind.call is None  # another kind of call


def test_a_call_that_is_made_often_is_given_to_machine_code(on_gpu: Any) -> None:
    torch = on_gpu
    a, b = OnGpu(torch.randn(4, 16).half()), OnGpu(torch.randn(16, 8).half())
    added: list[list[Any]] = []
    machine_code: Any = SimpleNamespace(add=lambda given, *_: added.append(given), call=lambda *given: given)
    known_calls.NATIVE_CALLS.append(machine_code)
    for keywords in ({}, {"activation": "relu"}, {"bias": OnGpu(torch.randn(8)), "alpha": 0.5}):
        remembered(a, b, **keywords)
        kind = known_calls.known_call(a, b, Options(**keywords))
        assert kind is not None and kind.call is not None
        kind.call.quick_empty = lambda shape, strides, dtype: torch.empty(shape, dtype=dtype)
        added.clear()
        for _ in range(20):
            product(a, b, Options(**keywords))
        assert len(added) == 8, "from the eighth call on, some times"
        given = dict(keywords)
        bias, activation = given.pop("bias", None), given.pop("activation", None)
        found = known_calls.repeated(a, b, None, bias, activation, given)
        assert list(found) == added[-1], "machine code is asked by what it was told"
    assert known_calls.repeated(a, b, None, None, None, {"stream": 3}) is None
    assert known_calls.repeated(a, b, None, None, ["relu"], {}) is None  # the rules say what is wrong


def test_out_may_lie_right_behind_the_kept_half_of_a_sparse_matrix() -> None:
    """Only the elements that are kept are in memory."""
    k, n = 64, 8
    memory = np.zeros(k // 2 * n + 4 * n, np.float16)
    a, sparse = np.ones((4, k), np.float16), lw.sparsify(np.ones((k, n), np.float16))
    kept = View((k // 2, n), (1, k // 2), sparse.format, memory.ctypes.data, "numpy", None, memory)
    request = request_of(a, sparse, Options(out=memory[k // 2 * n :].reshape(4, n)), kept=kept)
    assert (request.m, request.n, request.k) == (4, n, k)
    with pytest.raises(lw.LanewiseError, match="out overlaps b"):
        request_of(a, sparse, Options(out=memory[k // 2 * n - 1 : -1].reshape(4, n)), kept=kept)
