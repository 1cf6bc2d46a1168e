"""Calls that machine code makes by itself, with functions of Python in the driver's place."""

import ctypes
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from lanewise.jit.restricted_python import compiled
from lanewise.linalg.launch import native_calls
from lanewise.linalg.launch.native_calls import NativeCalls

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)
torch: Any


@pytest.fixture(scope="module", autouse=True)
def _import_torch() -> None:
    """Import torch where these tests run, not in every worker that collects them."""
    global torch
    import torch


STREAM, DEVICE, NAME = 77, 3, 9
EXTENTS = [(0, 128), (0, 128), (0, 64), (0, 16), (0, 64)]  # first and last bytes of a, b, out, bias, residual


class Launch:
    """A launch with three parameters, in which an address of a, of the result and of the workspace change."""

    class kernel:
        function = 1234

    def parts(self) -> Any:
        return bytes(range(48)), [0, 16, 32], bytes(56), [(0, 0, 5), (16, 2, 0), (32, 8, 7)]


class Driver:
    """What machine code calls: a launch that is noted, the current stream, and whether it is captured."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, ...]] = []
        self.made: list[int] = []
        self.status, self.captured, self.last = 0, 0, ctypes.c_uint64()
        launch = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
        word = ctypes.POINTER(ctypes.c_uint64)
        stream = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, word)
        capturing = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_int))
        self.functions = launch(self._launch), stream(self._stream), capturing(self._capturing)

    def _launch(self, config: int, function: int, places: int, extra: Any) -> int:
        values = [
            ctypes.c_uint64.from_address(each).value for each in (ctypes.c_uint64 * 3).from_address(places)
        ]
        self.seen.append((ctypes.c_uint64.from_address(config + 32).value, *values))
        return self.status

    def _stream(self, kind: int, device: int, place: Any) -> int:
        place[0] = STREAM
        return 0 if (kind, device) == (2, DEVICE) else 1

    def _capturing(self, stream: int, place: Any) -> int:
        place[0] = self.captured
        return 0

    def empty(self, shape: Any, strides: Any, dtype: Any) -> Any:
        """Make a tensor and note its address."""
        found = torch.empty_strided(shape, strides, dtype=dtype)
        self.made.append(found.data_ptr())
        return found

    def calls(self, empty: Any = None) -> NativeCalls:
        """Return calls on this driver."""
        launch, stream, capturing = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in self.functions)
        found = NativeCalls(
            (torch.Tensor, torch.nn.Parameter), empty or self.empty, torch.is_grad_enabled, launch=launch,
            capturing=capturing, last=ctypes.addressof(self.last), stream=stream,
        )  # fmt: skip
        if not found.possible:
            pytest.skip("this torch has no exchange API of DLPack's")
        return found


def add(calls: NativeCalls, *arguments: Any, launches: int = 1, workspace: Any = None, **more: Any) -> None:
    """Have machine code make a call with these arguments."""
    shape = (arguments[0].shape[0], arguments[1].shape[1])
    each: Any = [Launch() for _ in range(launches)]
    result = (shape, (shape[1], 1), torch.float32)
    calls.add(arguments, each, DEVICE, NAME, result, workspace, EXTENTS, **more)


def test_kinds_tell_calls_apart() -> None:
    kind = Driver().calls().kind
    a, b, row = torch.randn(4, 8), torch.randn(8, 4), torch.randn(4)
    assert kind(a, b, None) == kind(torch.randn(4, 8), torch.nn.Parameter(b), None) != b""
    nothing = (None,) * 3
    different = [
        (a, b, None), (b, a, None), (a.half(), b, None), (a, b.t().contiguous().t(), None),
        (a[:, :4], b[:4], None), (a[:1], b, None), (a, b, b), (a, b, None, row, None, *nothing, 0),
        (a, b, None, None, row, *nothing, 0), (a, b, None, row, None, *nothing, 1),
    ]  # fmt: skip
    assert len({kind(*each) for each in different} - {b""}) == len(different)
    for wrong in ((a, 3, None), ([1], b, None), (a, b), (a, b, None, 2.0, None, *nothing, 0)):
        assert kind(*wrong) == b""
    assert kind(a, b, None, row, None, *nothing, None) == b""


@compiled()
def seven(seen: int, more: int) -> int:
    """Return a hash that is the same for all."""
    return 7


def test_calls_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash only says where to look: with one hash for all, each call still makes its own launches."""
    monkeypatch.setattr(native_calls, "mixed", seven)
    monkeypatch.setattr(native_calls, "_PROGRAM", "native call with one hash")
    native_calls._program.cache_clear()
    try:
        driver = Driver()
        calls = driver.calls()
        wide = (torch.randn(4, 8), torch.randn(8, 4), None)
        tall = (torch.randn(8, 4), torch.randn(4, 2), None)
        half = (torch.randn(4, 8).half(), torch.randn(8, 4).half(), None)
        biased = (*wide, torch.randn(4), None, None, None, None, 3)
        other = (*wide, torch.randn(4), None, None, None, None, 4)
        kinds: tuple[Any, ...] = (wide, tall, half, biased, other)
        assert len({calls.kind(*each)[-8:] for each in kinds}) == 1, "the hashes differ"

        class Own(Launch):
            """A launch that adds a number of its own to the address of a."""

            def __init__(self, number: int) -> None:
                self.number = number

            def parts(self) -> Any:
                return bytes(48), [0, 16, 32], bytes(56), [(0, 0, self.number), (16, 2, 0), (32, 1, 0)]

        shapes = [(len(a), b.shape[1]) for a, b, *_ in kinds]
        for number in (1, 2):  # made again with other launches: these replace the first
            for place, (each, shape) in enumerate(zip(kinds, shapes, strict=True)):
                launches: Any = [Own(100 * number + place)]
                result = (shape, (shape[1], 1), torch.float32)
                calls.add(each, launches, DEVICE, NAME, result, None, EXTENTS)
        for place, (each, shape) in enumerate(zip(kinds, shapes, strict=True)):
            result = calls.call(*each)
            assert result.shape == shape
            first = each[0].data_ptr() + 200 + place
            assert driver.seen.pop() == (STREAM, first, result.data_ptr(), each[1].data_ptr())
        assert calls.call(torch.randn(4, 8), torch.randn(8, 5), None) is None, "a sixth kind, not added"
        calls.clear()
        assert all(calls.call(*each) is None for each in kinds)
    finally:
        native_calls._program.cache_clear()


def test_tensors_of_many_axes_are_left_to_python() -> None:
    """A key has room for some axes; a call with more is not taken, and none is taken for another."""
    kind = Driver().calls().kind
    for axes in (2, 8, 20, 40, 64):
        a = torch.zeros((1,) * (axes - 2) + (4, 8))
        b = torch.zeros((1,) * (axes - 2) + (8, 4))
        key = kind(a, b, None)
        assert (key != b"") == (axes <= 40)
        many = (a, b, a, a, a, a, a, a, 1)
        assert (kind(*many) != b"") == (axes <= 8)


def test_results_and_workspaces_are_made_and_given_back() -> None:
    driver = Driver()
    calls = driver.calls()
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    assert calls.call(a, b, None) is None
    add(calls, a, b, None, launches=2, workspace=((100,), (1,), torch.uint8))
    for x in (a, torch.randn(4, 8)):
        driver.seen.clear()
        driver.made.clear()
        found = calls.call(x, b, None)
        assert found.shape == (4, 4) and driver.last.value == NAME
        assert sys.getrefcount(found) == 2
        assert driver.seen == [(STREAM, x.data_ptr() + 5, found.data_ptr(), driver.made[0] + 7)] * 2


def test_calls_with_a_sparse_matrix_pass_its_metadata() -> None:
    """Machine code takes what is kept of b and its metadata as tensors, beside all other operands."""

    class WithMetadata(Launch):
        """A launch in which the addresses of b, of the metadata and of the bias change."""

        def parts(self) -> Any:
            return bytes(range(48)), [0, 16, 32], bytes(56), [(0, 1, 0), (16, 11, 3), (32, 3, 0)]

    driver = Driver()
    calls = driver.calls()
    a, bias, nothing = torch.randn(4, 8), torch.randn(4), (None,) * 4
    kept, other = ([torch.zeros(size, dtype=torch.uint8) for size in (64, 256)] for _ in range(2))
    arguments = (a, kept[0], None, bias, *nothing, 5, kept[1])
    each: Any = [WithMetadata()]
    calls.add(arguments, each, DEVICE, NAME, ((4, 4), (4, 1), torch.float32), None, EXTENTS)
    for values, metadata in (kept, other):
        found = calls.call(a, values, None, bias, *nothing, 5, metadata)
        assert found.shape == (4, 4)
        assert driver.seen.pop() == (STREAM, values.data_ptr(), metadata.data_ptr() + 3, bias.data_ptr())
    for wrong in (
        (a, kept[0], None, bias, *nothing, 5), (a, kept[0], None, bias, *nothing, 6, kept[1]),
        (a, kept[0], None, bias, *nothing, 5, kept[0]), (a, kept[0], None, bias, *nothing, 5, None),
        (a, kept[0], None, None, *nothing, 5, kept[1]), (a, kept[0], None),
    ):  # fmt: skip
        assert calls.call(*wrong) is None
    assert not driver.seen


def test_out_is_returned_unless_it_overlaps() -> None:
    driver = Driver()
    calls = driver.calls()
    memory = torch.empty(200)
    a, b = memory[:32].view(4, 8), torch.randn(8, 4)
    out, over = memory[32:48].view(4, 4), memory[28:44].view(4, 4)
    add(calls, a, b, out)
    before = sys.getrefcount(out)
    for _ in range(5):
        calls.call(a, b, out)
    assert sys.getrefcount(out) == before
    assert calls.call(a, b, out) is out
    assert calls.call(a, b, over) is None and calls.call(a, b, None) is None
    assert len(driver.seen) == 6


def test_what_python_has_to_do_is_left_to_it() -> None:
    driver = Driver()
    calls = driver.calls()
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    add(calls, a, b, None)
    others: tuple[tuple[Any, ...], ...] = (
        (a.requires_grad_(), b, None), (3, b, None), (a, None, None), (b, a, None), (a.half(), b, None),
        (a, b),
    )  # fmt: skip
    for arguments in others:
        assert calls.call(*arguments) is None
    with torch.no_grad():  # a weight of a model that is served
        assert calls.call(a.requires_grad_(), b, None) is not None
    driver.seen.clear()
    a = a.detach()
    driver.status = 700
    assert calls.call(a, b, None) == 700
    calls.clear()
    assert calls.call(a, b, None) is None and len(driver.seen) == 1


def test_other_operands_and_keywords() -> None:
    driver = Driver()
    calls = driver.calls()
    a, b, row = torch.randn(4, 8), torch.randn(8, 4), torch.randn(4)
    out, rest = torch.randn(4, 4), torch.randn(4, 4)
    add(calls, a, b, None, row, rest, None, None, None, 5)
    assert calls.call(a, b, None, row, rest, None, None, None, 5).shape == (4, 4)
    assert calls.call(a, b, None, row, rest, None, None, None, 6) is None
    assert calls.call(a, b, None, row, None, None, None, None, 5) is None
    assert calls.call(a, b, None, row, rest, 2.0, None, None, 5) is None
    add(calls, a, b, out, row, None, None, None, None, 7, adds_out=True)
    assert calls.call(a, b, out, row, None, None, None, None, 7) is out
    add(calls, a, b, out, None, rest, None, None, None, 8)
    assert calls.call(a, b, out, None, rest, None, None, None, 8) is out
    assert calls.call(a, b, out, None, out, None, None, None, 8) is None  # it is written while it is read


def test_counting_workspaces_belong_to_a_stream() -> None:
    driver = Driver()
    calls = driver.calls()
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    add(calls, a, b, None, counting=(STREAM + 1, 4096, None))
    assert calls.call(a, b, None) is None
    add(calls, a, b, None, counting=(STREAM, 4096, None))
    assert calls.call(a, b, None) is not None and driver.seen[-1][3] == 4096 + 7
    driver.captured = 1
    assert calls.call(a, b, None) is None


def test_errors_of_the_allocator_and_many_kinds() -> None:
    def empty(*_: Any) -> Any:
        raise MemoryError("none left")

    driver = Driver()
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    failing = driver.calls(empty)
    add(failing, a, b, None)
    with pytest.raises(MemoryError, match="none left"):
        failing.call(a, b, None)
    calls = driver.calls()
    for size in range(1, 500):
        row = torch.empty(1, size)
        add(calls, row, row.t(), None)
    row = torch.empty(1, 321)
    assert calls.call(row, row.t(), None).shape == (1, 1)
