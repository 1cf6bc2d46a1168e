"""What checks are told of torch's own operators: the memory that they read and write, and on which stream.

A mode of torch's sees each operator with its schema, which says which operands it changes. Memory of
`torch.empty` counts as never written until an operator, a copy or a kernel writes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lanewise.machine.program.source_lines import short_place
from lanewise.machine.runtime.initialised_bytes import INITIALISED, WRITTEN
from lanewise.virtual_gpu.frameworks.torch_cuda import current_handle
from lanewise.virtual_gpu.order.host_lines import host_line
from lanewise.virtual_gpu.order.stream_races import Access, AccessKind, Ranges, one_range, ranges_of

if TYPE_CHECKING:
    from lanewise.numpy_types import AnyArray
    from lanewise.virtual_gpu.driver.driver import Driver

_weak_reference: Any = StorageWeakRef
_DispatchMode: Any = TorchDispatchMode
#: Functions of torch's that return memory in which nothing was written.
_EMPTY = {
    torch.empty,
    torch.empty_like,
    torch.empty_strided,
    torch.empty_permuted,
    torch.Tensor.new_empty,
    torch.Tensor.new_empty_strided,
}
#: Operators that copy elements as they are, by the name of their schema.
_COPIES = ("aten::copy_", "aten::clone", "aten::_to_copy")
#: Operators whose result, or its size, the host has to wait for.
_WAITED = (
    "aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::nonzero", "aten::masked_select",
    "aten::_unique2", "aten::unique_dim",
)  # fmt: skip
#: The most bytes that a tensor with gaps may span before it is taken as one range.
_MOST_SPAN = 1 << 24


class _Schema:
    """What an operator does with its operands, from its schema."""

    def __init__(self, function: Any) -> None:
        schema = function._schema
        self.name: str = schema.name
        self.title = f"torch.{schema.name.removeprefix('aten::')}"
        self.changed = {
            argument.name if argument.kwarg_only else number
            for number, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        }
        self.is_view = not self.changed and any(result.alias_info is not None for result in schema.returns)
        self.is_empty = self.name.startswith(("aten::empty", "aten::new_empty"))
        self.is_waited = self.name in _WAITED
        gives_tensors = any("Tensor" in str(result.type) for result in schema.returns)
        #: Whether it answers without a look at the elements, as is_pinned does.
        self.is_question = not (self.changed or gives_tensors or self.is_waited)


_schema = cache(_Schema)


class TorchChecks(_DispatchMode):  # type: ignore[misc]  # torch's class has no types
    """Sees every operator of torch's, for checks of memory and of streams."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return that torch's compiler need not know of it: it would be imported, which takes seconds."""
        return False

    def __init__(self, storages: Container[object], driver: Driver) -> None:
        super().__init__()
        self.storages, self.driver = storages, driver
        self._lock = threading.Lock()
        #: Storages whose bytes are followed, by where they begin, with the lines that made them.
        self._followed: dict[int, tuple[Any, str | None]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., object], types: object, args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:  # fmt: skip
        """Let an operator compute, and note what it has read and written."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not hasattr(func, "_schema"):
            return result
        schema = _schema(func)
        if not (schema.is_view or schema.is_empty or schema.is_question):
            changed = [
                tensor
                for key in schema.changed
                for tensor in _tensors(kwargs.get(key) if isinstance(key, str) else _at(args, key))
            ]
            if self._followed:
                self._mark(schema, changed, args, result)
            if self.driver.races is not None:
                self._note(schema, changed, _tensors((args, kwargs)), result)
        return result

    # memory that nothing was written to ---------------------------------------------------------------------

    def made(self, function: object, result: object, asked: bool) -> None:
        """Note new tensors on the device; `asked` if the program named the device, and operands did not."""
        for tensor in _tensors(result):
            if function in _EMPTY:
                self._follow(tensor)
            elif asked and self.driver.races is not None:
                self._forget_past(tensor)
                title = f"torch.{getattr(function, '__name__', 'a function')}"
                self._operation(title, [self._access(tensor, AccessKind.WRITE)])

    def _follow(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        start, size = int(storage.data_ptr()), int(storage.nbytes())
        if start and size:
            with self._lock:
                self._followed[start] = _weak_reference(storage), host_line()
                INITIALISED.follow(start, size)

    def forget_expired(self) -> None:
        """Follow memory no longer whose storages are gone: torch may give it to others."""
        with self._lock:
            for start, (reference, _) in list(self._followed.items()):
                if reference.expired():
                    del self._followed[start]
                    INITIALISED.forget(start)

    def made_at(self, start: int) -> str:
        """Return where the program made the memory at an address, as a part of its title."""
        _, line = self._followed.get(start, (None, None))
        return f", made at {short_place(line)}" if line else ""

    def _mark(self, schema: _Schema, changed: list[torch.Tensor], args: tuple[Any, ...], result: Any) -> None:
        """Mark what an operator has written; a copy of memory that nothing was written to stays so."""
        copied = None
        if schema.name in _COPIES:
            source = args[1] if schema.name == "aten::copy_" else args[0]
            copied = _marks(source) if source.dtype == result.dtype else None
            if copied is not None and not changed and not copied.all():
                self._follow(result)
                changed = [result]
        for tensor in changed:
            marks = _marks(tensor)
            if marks is None and copied is not None and not copied.all():
                self._follow(tensor)
                storage = tensor.untyped_storage()
                followed = INITIALISED.marks(int(storage.data_ptr()), int(storage.nbytes()))
                if followed is not None:
                    followed[:] = WRITTEN
                marks = _marks(tensor)
            if marks is not None:
                marks[...] = WRITTEN if copied is None else copied
                storage = tensor.untyped_storage()
                INITIALISED.settle(int(storage.data_ptr()), int(storage.nbytes()))

    # streams ------------------------------------------------------------------------------------------------

    def _note(
        self, schema: _Schema, changed: list[torch.Tensor], operands: list[torch.Tensor], result: object
    ) -> None:
        """Note an operator on tensors of the device as an operation on the current stream."""
        on_device = [operand for operand in operands if operand in self.storages]
        if not on_device:
            return
        own = {id(tensor) for tensor in changed}
        accesses = [
            self._access(tensor, AccessKind.WRITE if id(tensor) in own else AccessKind.READ)
            for tensor in on_device
        ]
        for tensor in _tensors(result):
            if id(tensor) not in own:
                self._forget_past(tensor)
                accesses.append(self._access(tensor, AccessKind.WRITE))
        self._operation(schema.title, accesses)
        if schema.is_waited:
            self.wait()

    def _operation(self, title: str, accesses: list[Access]) -> None:
        self.driver.note(title, current_handle(), accesses)

    def _access(self, tensor: torch.Tensor, kind: AccessKind) -> Access:
        return Access(int(tensor.untyped_storage().data_ptr()), kind, _ranges(tensor))

    def _forget_past(self, tensor: torch.Tensor) -> None:
        """Forget who used the memory of a new tensor before: torch gives it to others only when it may."""
        if self.driver.races is not None:
            self.driver.races.forget(int(tensor.untyped_storage().data_ptr()))

    def wait(self) -> None:
        """Note that the host waits for the current stream, as it does when it reads a result."""
        if self.driver.races is not None:
            self.driver.wait_for(current_handle())


def _at(args: tuple[object, ...], number: int) -> object:
    return args[number] if number < len(args) else None


def _tensors(values: object) -> list[torch.Tensor]:
    """Return the tensors with memory of their own among values."""
    return [
        leaf
        for leaf in tree_leaves(values)
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and leaf.device.type == "cpu"
    ]


def _elements(tensor: torch.Tensor, memory: AnyArray, first: int) -> AnyArray:
    """Return a byte for each byte of a tensor's elements, as a view of an array that begins at an address."""
    size = tensor.element_size()
    return np.lib.stride_tricks.as_strided(
        memory[int(tensor.data_ptr()) - first :],
        (*tensor.shape, size),
        (*(stride * size for stride in tensor.stride()), 1),
    )


def _marks(tensor: torch.Tensor) -> AnyArray | None:
    """Return the marks of a tensor's bytes, to be read or written; None if all of them are written."""
    storage = tensor.untyped_storage()
    start = int(storage.data_ptr())
    marks = INITIALISED.marks(start, int(storage.nbytes()))
    return None if marks is None or not tensor.numel() else _elements(tensor, marks, start)


def _ranges(tensor: torch.Tensor) -> Ranges:
    """Return the bytes of a tensor."""
    first, size = int(tensor.data_ptr()), tensor.element_size()
    if not tensor.numel():
        return np.zeros((0, 2), np.int64)
    span = size + size * sum(
        (extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    if span <= tensor.numel() * size or span > _MOST_SPAN:
        return one_range(first, span)
    marks = np.zeros(span, np.uint8)
    _elements(tensor, marks, first)[...] = 1
    return ranges_of(marks.view(np.bool_), first, 1)
