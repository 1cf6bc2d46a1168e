"""What Python objects hold: the contents of lists, dicts, objects, fragments and cells, read and written.

`heap.py` follows these contents from object to object; what branches and loops do with them is in `merge.py`.
"""

import sys
import sysconfig
from collections import deque
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, cached_property
from types import CellType, FunctionType, SimpleNamespace
from typing import Any, TypeGuard

from lanewise.lang.trace.traced import AnyValue, Node, Traced, describe
from lanewise.records import record

#: Packages whose objects are left alone unless a value of a kernel is among their attributes.
_FOREIGN = frozenset(("numpy", "torch", "cupy", "jax", "ml_dtypes"))
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
#: Bytes of the largest NumPy array whose elements are looked after: a larger one is a table of the host's.
_MOST_ARRAY_BYTES = 1 << 20
_PLAIN = (int, float, str, bytes, bool, complex, type(None), FunctionType, range, slice)


class GlobalVariable:
    """A global variable that a function binds, as a container of one value."""

    __slots__ = ("name", "namespace")

    def __init__(self, namespace: dict[str, object], name: str) -> None:
        self.namespace, self.name = namespace, name


@record(frozen=True)
class ArrayForm:
    """What a NumPy array has: dtype, shape and the bytes of its elements; no bytes if they are objects."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def is_array(value: object) -> TypeGuard[Any]:
    """Return whether a value is a NumPy array, or a tensor of torch in host memory: elements can be set."""
    numpy = sys.modules.get("numpy")
    return (numpy is not None and isinstance(value, numpy.ndarray)) or _is_tensor(value)


def _is_tensor(value: object) -> TypeGuard[Any]:
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # None also while torch is being imported
    return (
        tensor is not None and isinstance(value, tensor) and str(value.layout) == "torch.strided"
    ) and value.device.type == "cpu"


def array_in_words(array: object) -> str:
    """Return what an array is, for messages."""
    return "a tensor of torch" if _is_tensor(array) else "a NumPy array"


def _array_contents(array: AnyValue) -> tuple[ArrayForm, list[object]]:
    """Return the form of an array and, of an array of objects, these."""
    if _is_tensor(array):
        return ArrayForm(str(array.dtype), tuple(array.shape), _tensor_bytes(array)), []
    objects = bool(array.dtype.hasobject)
    form = ArrayForm(array.dtype.str, array.shape, b"" if objects else array.tobytes())
    return form, array.ravel().tolist() if objects else []


def _tensor_bytes(tensor: AnyValue) -> bytes:
    """Return the bytes of a tensor's elements; none where torch itself has none, as of a fake tensor."""
    torch = sys.modules["torch"]
    try:
        return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    except (RuntimeError, TypeError):
        return b""


def _set_array(array: AnyValue, form: ArrayForm, values: list[object]) -> None:
    """Give an array other elements; one that has them already may be one that is only read."""
    import numpy as np

    if _is_tensor(array):
        if form.data and _tensor_bytes(array) != form.data:
            torch = sys.modules["torch"]
            made = torch.frombuffer(bytearray(form.data), dtype=array.dtype).reshape(form.shape)
            array.detach().copy_(made)
        return
    if array.dtype.hasobject:
        for index, value in zip(np.ndindex(array.shape), values, strict=True):
            array[index] = value
    elif array.tobytes() != form.data:
        array[...] = np.frombuffer(form.data, array.dtype).reshape(form.shape)


@cache
def _is_package_of_user(name: str) -> bool:
    """Return whether a module is a user's own; one of the user's may have the name of one of Python's."""
    first = name.partition(".")[0]
    if first in _FOREIGN or first in ("lanewise", "builtins"):
        return False
    if first not in sys.stdlib_module_names or first == "__main__":
        return True
    file = getattr(sys.modules.get(first), "__file__", None)
    return file is not None and not file.startswith(_STANDARD_LIBRARY)


def is_of_user(value: object) -> bool:
    """Return whether a class or function is a user's own, not one of Python, this library or another."""
    return _is_package_of_user(value.__module__ or "")  # code that was executed may have none


def _is_object(value: object) -> bool:
    """Return whether a value is an object with attributes that may be set, of a user's class.

    Of another class, as argparse.Namespace, if a value of the kernel is among its attributes.
    """
    kind = type(value)
    attributes = getattr(value, "__dict__", None)
    if kind is SimpleNamespace:
        return True
    if is_of_user(kind):
        return type(attributes) is dict or bool(_slots(kind))
    home = kind.__module__.partition(".")[0]
    if type(attributes) is not dict or home in ("lanewise", "builtins"):
        return False
    return any(map(_is_traced, attributes.values()))


def _is_traced(value: object) -> bool:
    """Return whether something is a value of the kernel, or a tuple or list with one."""
    parts = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(part, Traced) for part in parts)


def _slots(kind: type) -> list[str]:
    """Return the names in the `__slots__` of a class and of those that it inherits from."""
    names: list[str] = []
    for base in reversed(kind.__mro__):
        own = base.__dict__.get("__slots__", ())
        names += (own,) if isinstance(own, str) else own
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _is_frozen(value: object) -> bool:
    frozen = bool(getattr(getattr(value, "__dataclass_params__", None), "frozen", False))
    kind: Any = type(value)
    return frozen and not _keeps_values(kind)


@cache
def _keeps_values(kind: type) -> bool:
    """Return whether a class has attributes that are computed once and kept."""
    return any(isinstance(held, cached_property) for base in kind.__mro__ for held in vars(base).values())


def is_frozen_node(value: object) -> bool:
    """Return whether a value is made of others and never changes: a tuple, a pointer, a frozen dataclass."""
    if isinstance(value, tuple):
        return True
    if isinstance(value, Node):
        return not value.mutable
    return is_dataclass(value) and _is_frozen(value) and is_of_user(type(value))


def is_container(value: object) -> bool:
    """Return whether a value is an object whose contents can be changed in place.

    >>> is_container([]), is_container(()), is_container(3)
    (True, False, False)
    """
    if isinstance(value, _PLAIN):
        return False
    if isinstance(value, list | dict | set | deque | bytearray | CellType | GlobalVariable):
        return True
    if isinstance(value, Node):
        return value.mutable
    if isinstance(value, type):
        return is_of_user(value) and not issubclass(value, Enum)
    if isinstance(value, Traced | tuple):
        return False
    if is_array(value):
        return bool(value.ndim) and value.nbytes <= _MOST_ARRAY_BYTES
    return _is_object(value) and not _is_frozen(value)


def identity(container: object) -> object:
    """Return what tells a container from all others; tensors that share their registers are one."""
    if isinstance(container, Node):
        return id(container.storage)
    if isinstance(container, GlobalVariable):
        return id(container.namespace), container.name
    return id(container)


def contents(container: object) -> tuple[object, list[object]]:
    """Return the form of a container's contents, which branches and loops keep, and its values.

    >>> contents({"a": 1, "b": 2})
    (('a', 'b'), [1, 2])
    """
    if isinstance(container, list | deque):
        return len(container), list(container)
    if isinstance(container, dict):
        return tuple(container), list(container.values())
    if isinstance(container, Node):
        return None, container.children()
    if isinstance(container, set | bytearray):
        return type(container)(container), []
    if isinstance(container, CellType):
        try:
            return 1, [container.cell_contents]
        except ValueError:  # the variable has no value yet
            return 0, []
    if isinstance(container, GlobalVariable):
        held = container.name in container.namespace
        return int(held), [container.namespace[container.name]] if held else []
    if is_array(container):
        return _array_contents(container)
    names = _attributes(container)  # of an object, or of a class
    return tuple(names), list(names.values())


def _attributes(value: object) -> dict[str, AnyValue]:
    """Return the attributes of an object by name, without those that are computed once and kept.

    Of these, values of the kernel are forgotten, and computed anew when they are read again.
    Of a class, its variables: neither its methods nor what Python has put there.
    """
    if isinstance(value, type):
        return {
            name: held
            for name, held in vars(value).items()
            if name[0] != "_" and not callable(held) and not hasattr(held, "__get__")
        }
    kind = type(value)
    attributes = {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
    for name, held in tuple(vars(value).items()) if hasattr(value, "__dict__") else ():
        if not isinstance(getattr(kind, name, None), cached_property):
            attributes[name] = held
        elif _is_traced(held):
            # A branch or loop begins or ends here, and what is computed inside is not there elsewhere.
            del vars(value)[name]
    return attributes


def set_contents(container: AnyValue, form: AnyValue, values: list[AnyValue]) -> None:
    """Give a container other contents, in place."""
    if isinstance(container, list):
        container[:] = values
    elif isinstance(container, deque):
        container.clear()
        container.extend(values)
    elif isinstance(container, dict):
        if tuple(container) != form:
            container.clear()
        container.update(zip(form, values, strict=True))
    elif isinstance(container, Node):
        container.with_children(values)
    elif isinstance(container, set):
        container.clear()
        container |= form
    elif isinstance(container, bytearray):
        container[:] = form
    elif isinstance(container, CellType):
        if values:
            container.cell_contents = values[0]
        else:
            del container.cell_contents
    elif isinstance(container, GlobalVariable):
        if values:
            container.namespace[container.name] = values[0]
        else:
            container.namespace.pop(container.name, None)
    elif is_array(container):
        _set_array(container, form, values)
    else:
        _set_attributes(container, dict(zip(form, values, strict=True)))


def _set_attributes(value: object, attributes: dict[str, object]) -> None:
    """Give an object other attributes; what its class does when one is set is not done again."""
    home = type if isinstance(value, type) else object
    for name in _attributes(value).keys() - attributes:
        home.__delattr__(value, name)
    for name, held in attributes.items():
        home.__setattr__(value, name, held)


def empty_copy(container: AnyValue) -> AnyValue:
    """Return a new container like another, whose contents are still to be set."""
    if _is_tensor(container):
        return container.clone()
    if isinstance(container, list | dict | deque | set | bytearray) or is_array(container):
        return container.copy()
    made = object.__new__(type(container))
    if hasattr(container, "__dict__"):
        vars(made).update(vars(container))
    return made


def in_words(container: object) -> str:
    """Return what a container is, for messages."""
    if isinstance(container, list | dict | tuple | deque | set):
        return f"a {type(container).__name__} of {len(container)}"
    if isinstance(container, Node):
        return container.description
    if isinstance(container, CellType | GlobalVariable):
        return "a variable of a function"
    if is_array(container):
        return f"{array_in_words(container)} of shape {tuple(container.shape)}"
    return describe(container)
