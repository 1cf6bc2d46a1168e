"""`module.globals["name"]`: a module's variables as arrays, on the CPU machine and on GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.numpy_types import AnyArray
from lanewise.ptx.arguments import ArrayArgument
from lanewise.ptx.cuda_types import aliased_type, cuda_type, declared_variable, named_number
from lanewise.ptx.host_tensors import host_array
from lanewise.ptx.model.names import demangle, listed, matching_variables, plain_name
from lanewise.tracebacks import short_traceback

if TYPE_CHECKING:
    from lanewise.gpu.device import Context
    from lanewise.ptx import Module, Variable

#: PTX types as NumPy has them; bits are unsigned numbers.
_TYPES = {"f": "f", "s": "i", "u": "u", "b": "u"}
#: The name of the CPU machine among devices.
CPU = "cpu"

Array = AnyArray


class _Place(NamedTuple):
    """Where a variable is: the CPU, or a GPU with its context and the handle of a module there."""

    device: int | str
    context: Context | None = None
    module: int = 0


def _is_asked_for(variable: Variable) -> bool:
    """Return whether a variable is one that people declare: strings and such have names with a dollar."""
    return variable.space in ("global", "const") and "$" not in variable.name and variable.size > 0


class Globals(MutableMapping[str, "GlobalVariable"]):
    """The variables of a module by name, as in the PTX, in C++, or plain where that is enough.

    >>> import lanewise as lw
    >>> module = lw.load(".version 8.0\\n.target sm_80\\n.address_size 64\\n.global .u32 count = 3;")
    >>> module.globals["count"] = 7
    >>> int(module.globals["count"]), list(module.globals)
    (7, ['count'])
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._names = [variable.name for variable in module.variables.values() if _is_asked_for(variable)]

    @short_traceback
    def __getitem__(self, name: str) -> GlobalVariable:
        """The variable of a name."""
        matches = matching_variables(name, self._names) if isinstance(name, str) else []
        if len(matches) != 1:
            problem = f"{name!r} may be any of" if matches else f"no variable {name!r}; there are"
            raise LanewiseError(f"{problem}:\n{listed(matches or self._names)}")
        variable = self._module.variables[matches[0]]
        dtype, shape = _layout(self._module, variable)
        return GlobalVariable(self._module, variable, dtype, shape)

    def __setitem__(self, name: str, value: object) -> None:
        """Write a whole variable: an array of its shape, a number for all of it, or raw bytes of its size."""
        self[name].set(value)

    def __delitem__(self, name: str) -> None:
        """Raise an error: variables belong to their module."""
        raise LanewiseError(f"{name!r} is a variable of the module, which cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names as C++ writes them."""
        return iter([demangle(name) for name in self._names])

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(matching_variables(name, self._names))

    def __repr__(self) -> str:
        return f"<globals: {', '.join(self) or 'none'}>"


def _layout(module: Module, variable: Variable) -> tuple[np.dtype, tuple[int, ...]]:
    """Return the type and shape of a variable: by the source if it tells, else by the PTX."""
    if module.cuda is not None:
        declared = declared_variable(module.cuda.text, plain_name(demangle(variable.name).split("::")[-1]))
        layout = cuda_type(declared.type) if declared is not None else None
        if declared is not None and layout is None:
            layout = cuda_type(aliased_type(module.cuda.text, declared.type))
        if declared is not None and layout is not None:
            known = [named_number(module.cuda.text, size) or 0 for size in declared.sizes]
            shape = _shape(known, variable.size, layout.size)
            if shape is not None:
                return layout.dtype, shape if layout.numbers == 1 else (*shape, layout.numbers)
    bits = variable.element_size // max(variable.vector, 1)
    dims = list(variable.dims)
    if dims and dims[0] == 0:
        dims[0] = variable.size // (variable.element_size * int(np.prod(dims[1:], dtype=np.int64)))
    code = _TYPES.get(variable.type[0], "u")
    is_number = bits in (1, 2, 4, 8) and (code != "f" or bits > 1)
    dtype = np.dtype(f"{code}{bits}" if is_number else "u1")
    shape = tuple(dims) + ((variable.vector,) if variable.vector > 1 else ())
    if int(np.prod(shape, dtype=np.int64)) * dtype.itemsize != variable.size:
        return np.dtype("u1"), (variable.size,)
    return dtype, shape


def _shape(known: list[int], whole: int, size: int) -> tuple[int, ...] | None:
    """Return the shape of an array in the source; one size that is not known, and so 0, the bytes tell."""
    if whole % size:
        return None
    count, product = whole // size, int(np.prod([extent for extent in known if extent], dtype=np.int64))
    if known.count(0) > 1 or not product or count % product:
        return (count,)
    shape = tuple(extent or count // product for extent in known)
    return shape if int(np.prod(shape, dtype=np.int64)) == count else None


class GlobalVariable:
    """A variable of a module, which reads and writes like an array. Its values last from launch to launch.

    What the host writes goes to the CPU machine and to every GPU. It is read where the module's kernels were
    launched; `on` says where if that was in more than one place.
    """

    def __init__(
        self,
        module: Module,
        variable: Variable,
        dtype: np.dtype,
        shape: tuple[int, ...],
        device: int | str | None = None,
    ) -> None:
        self._module, self._variable, self.dtype, self.shape = module, variable, dtype, shape
        self._device = device

    @property
    def name(self) -> str:
        """Its name as C++ writes it."""
        return demangle(self._variable.name)

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return self._variable.size

    @property
    def array(self) -> Array:
        """A copy of its value now, which is read-only: a change of the copy would not reach the variable."""
        value = self._read(self._source())
        value.flags.writeable = False
        return value

    def view(self, dtype: npt.DTypeLike) -> GlobalVariable:
        """The same bytes in one dimension of another type: structs, or what the PTX calls bytes."""
        wanted = np.dtype(dtype)
        if wanted.itemsize == 0 or self.nbytes % wanted.itemsize:
            raise LanewiseError(f"{self.name} has {self.nbytes} bytes, which are not a multiple of {wanted}")
        shape = (self.nbytes // wanted.itemsize,)
        return GlobalVariable(self._module, self._variable, wanted, shape, self._device)

    def on(self, device: int | str) -> GlobalVariable:
        """The variable where a certain device has it: "cpu" for the CPU machine, or a GPU's number."""
        return GlobalVariable(self._module, self._variable, self.dtype, self.shape, device)

    def set(self, value: object) -> None:
        """Write all of it: an array of its shape, a number for every element, bytes or a struct of its size.

        A tensor map is written as its 128 bytes; the module keeps its array.
        """
        value = host_array(value)
        if isinstance(value, ArrayArgument):
            value = self._kept_bytes(value)
        elif isinstance(value, ctypes.Structure | ctypes.Union | ctypes.Array):
            value = bytes(value)
        if isinstance(value, bytes | bytearray) or (
            isinstance(value, np.ndarray | np.generic)
            and value.dtype != self.dtype
            and value.nbytes == self.nbytes
            and (self.dtype == np.uint8 or value.dtype.fields is not None)
        ):
            raw = bytes(value) if isinstance(value, bytes | bytearray) else value.tobytes()
            if len(raw) != self.nbytes:
                raise LanewiseError(f"{self.name} has {self.nbytes} bytes; {len(raw)} were given")
            self.view(np.uint8)[:] = np.frombuffer(raw, np.uint8)
            return
        self[...] = value

    def _kept_bytes(self, value: ArrayArgument) -> bytes:
        """Return the bytes of a tensor map, which the module keeps from now on."""
        from lanewise.machine.runtime.device_memory import module_memory
        from lanewise.ptx.tensor_maps import TensorMap

        if not isinstance(value, TensorMap):
            raise LanewiseError(
                f"{self.name} cannot hold a {type(value).__name__.lower()}: pass it to a kernel"
            )
        raw = bytes(value)
        module_memory(self._module).pointed_to[self._variable.name] = value
        return raw

    # as an array ------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """Elements of it, copied."""
        return self._read(self._source())[key]

    def __iter__(self) -> Iterator[Any]:
        """Its elements along the first dimension, copied."""
        return iter(self._read(self._source()))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write elements of it, everywhere."""
        sizes = "".join(f"[{size}]" for size in self.shape)
        try:
            given = np.asarray(value)
            if self.dtype.kind in "iu" and given.dtype.kind == "f" and (given != np.trunc(given)).any():
                raise ValueError(f"{value!r} is not made of integers")
            self._write(lambda array: array.__setitem__(key, value))
        except (ValueError, TypeError, IndexError, OverflowError, RuntimeError) as error:
            raise LanewiseError(f"{self.name} is {self.dtype}{sizes}: {error}") from None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        value = self._read(self._source())
        return value if dtype is None else value.astype(dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self.name} is a single value, which has no length")
        return self.shape[0]

    def item(self) -> Any:
        """Its value as a Python number, if it is a single one."""
        return self._read(self._source()).item()

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype}{list(self.shape) if self.shape else ''}>"

    # where it lies ----------------------------------------------------------------------------------------

    def _places(self) -> list[_Place]:
        """Return where the variable is: on the CPU machine, and on GPUs that have loaded the module."""
        from lanewise.gpu.loading import loaded_on

        loaded = [copy for module in self._module.family for copy in loaded_on(module)]
        return [_Place(CPU), *(_Place(context.ordinal, context, handle) for context, handle in loaded)]

    def _source(self) -> _Place:
        """Return where to read: where `on` says, or where the module's kernels were launched."""
        from lanewise.gpu.loading import loaded_on
        from lanewise.machine.runtime.device_memory import module_memory

        places = self._places()
        if self._device is None:
            launched = module_memory(self._module).launched
            used = [place for place in places if place.device != CPU or launched] or places[:1]
        else:
            used = [place for place in places if place.device == self._device]
        if not used:
            known = ", ".join(repr(place.device) for place in places)
            raise LanewiseError(f"{self.name} is not on {self._device!r}; the module is on {known}")
        if len({place.device for place in used}) > 1:
            known = " or ".join(f".on({place.device!r})" for place in used)
            raise LanewiseError(
                f"kernels of the module ran on several devices, each with a {self.name} of its own: "
                f"say which to read by {known}"
            )
        # On a GPU each instance of a template has variables of its own; this very module goes first.
        own = [handle for _, handle in loaded_on(self._module)]
        return next((place for place in used if place.module in own), used[0])

    def _read(self, place: _Place) -> Array:
        """Return a copy of the value at a place."""
        if place.context is None:
            from lanewise.machine.runtime.device_memory import variable_bytes

            raw = variable_bytes(self._module, self._variable.name)[: self.nbytes].tobytes()
        else:
            from lanewise.gpu.loading import read_variable

            raw = read_variable(place.context, place.module, self._variable.name, self.nbytes)
        return np.frombuffer(bytearray(raw), self.dtype).reshape(self.shape)

    def _write(self, change: Callable[[Array], None]) -> None:
        """Change the value at every place, or on the device of `on`; GPUs that come later get the CPU's."""
        places = [place for place in self._places() if self._device in (None, place.device)] or [
            self._source()
        ]
        changed = []
        for place in places:
            array = self._read(place)
            change(array)
            changed.append((place, array.tobytes()))
        for place, raw in changed:
            self._store(place, raw)

    def _store(self, place: _Place, raw: bytes) -> None:
        """Write the bytes at a place."""
        if place.context is None:
            from lanewise.machine.runtime.device_memory import variable_bytes

            variable_bytes(self._module, self._variable.name)[: self.nbytes] = np.frombuffer(raw, np.uint8)
            for module in self._module.family:
                module.written_globals[self._variable.name] = raw
            return
        from lanewise.gpu.loading import write_variable

        write_variable(place.context, place.module, self._variable.name, raw)
