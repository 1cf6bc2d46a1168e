"""Parameters of a kernel: read from annotations, declared in PTX, and loaded when the kernel begins.

The arguments that a launch gives for them are checked in `launching.py`.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from reprlib import repr
from typing import Any

from lanewise.formats import Format
from lanewise.lang.frontend.source import RewrittenFunction
from lanewise.lang.frontend.structs import Struct, struct_of
from lanewise.lang.memory.array import Array, ArrayType
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import Address, Builder, Symbol
from lanewise.lang.trace.errors import KernelError
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import (
    SCALARS,
    Constexpr,
    Ptr,
    TensorMapType,
    meant_format,
    parameter_type,
    pred,
    register_kind,
    storage_bytes,
)
from lanewise.records import record

#: Names that PTX allows.
_PTX_NAME = re.compile(r"[a-zA-Z]\w*|_\w+", re.ASCII)
_NO_NAME = "is no name in PTX: use letters from a to z, digits and _"
#: Bytes of parameters that a kernel has at most, and from which on it needs a newer PTX.
_MOST_BYTES, _MANY_BYTES = 32764, 4352


@record(frozen=True)
class Parameter:
    """A parameter of a kernel: `kind` is a Ptr, a dtype, Constexpr or a Struct of parameters.

    An array is a Ptr with a layout. The name of a parameter in a struct begins with that of the struct:
    `steps.row`.
    """

    name: str
    kind: Any
    default: object = inspect.Parameter.empty
    layout: Any = None

    @property
    def ptx_name(self) -> str:
        """The name in the PTX."""
        return self.name.replace(".", "_")

    @property
    def required(self) -> bool:
        """Whether a launch has to give an argument for it."""
        return self.default is inspect.Parameter.empty

    @property
    def is_constexpr(self) -> bool:
        """Whether its value is known when the kernel is traced."""
        return self.kind is Constexpr


def built(parameter: Parameter, value_of: Callable[[Parameter], object]) -> object:
    """Return the value of a parameter: of structs, one of the values of its fields."""
    if not isinstance(parameter.kind, Struct):
        return value_of(parameter)
    fields = parameter.kind.fields.values()
    return parameter.kind.build([None if field is None else built(field, value_of) for field in fields])


def singles(parameters: Iterable[Parameter]) -> list[Parameter]:
    """Return parameters with those that structs are made of in place of the structs."""
    found: list[Parameter] = []
    for parameter in parameters:
        if isinstance(parameter.kind, Struct):
            found += singles(field for field in parameter.kind.fields.values() if field is not None)
        else:
            found.append(parameter)
    return found


def opened(parameter: Parameter, value: object, kernel: str) -> Iterator[tuple[str, object]]:
    """Give the arguments of the single parameters of which a parameter consists, with their names."""
    if not isinstance(parameter.kind, Struct):
        yield parameter.name, value
        return
    where, fields = f"{kernel}: {parameter.name}", parameter.kind.fields
    given = parameter.kind.open(value, where)
    for (name, field), each in zip(fields.items(), given, strict=True):
        if field is not None:
            yield from opened(field, each, kernel)
        elif each is not None:
            raise KernelError(f"{where}.{name} is None in this kernel, not {repr(each)}")


def _written(kind: object) -> str:
    """Return what to write in place of a type of Python or NumPy, as the end of a message."""
    if kind is int or kind is float:
        return f"write {'lw.i32' if kind is int else 'lw.f32'}"
    name = meant_format(kind)
    if name:
        return f"write lw.{name}, or lw.Ptr[lw.{name}] for an array"
    return "write lw.Ptr[lw.f16], lw.i32, lw.f32, lw.TensorMap[lw.f16, (64, 64)] or lw.Constexpr"


def read_signature(rewritten: RewrittenFunction) -> list[Parameter]:
    """Return the parameters that a function's signature and annotations declare, structs among them."""
    signature: list[Parameter] = []
    for name in (rewritten.original.__name__, *rewritten.signature.parameters):
        if not _PTX_NAME.fullmatch(name):
            raise rewritten.error(f"{name} {_NO_NAME}")
    for name, parameter in rewritten.signature.parameters.items():
        kind = rewritten.annotations.get(name)
        if kind is None and name == "self" and not signature:
            raise rewritten.error(
                "a kernel is a plain function, not a method: define it outside of the class"
            )
        if kind is None:
            raise rewritten.error(
                f"parameter {name} has no type: write {name}: lw.Ptr[lw.f16], lw.i32, lw.f32 or lw.Constexpr"
            )
        signature.append(_read(rewritten, name, kind, parameter.default))
    _require_ptx_names(rewritten, signature)
    return signature


def _require_ptx_names(rewritten: RewrittenFunction, signature: list[Parameter]) -> None:
    """Raise an error if two parameters have one name in the PTX, or a field has none there."""
    parameters = [single for single in singles(signature) if not single.is_constexpr]
    names = [parameter.ptx_name for parameter in parameters]
    for parameter in parameters:
        if not _PTX_NAME.fullmatch(parameter.ptx_name):
            raise rewritten.error(f"{parameter.name} {_NO_NAME}")
        if names.count(parameter.ptx_name) > 1:
            raise rewritten.error(
                f"two parameters are {parameter.ptx_name} in the PTX: rename one, or a field of a struct"
            )


def _read(
    rewritten: RewrittenFunction, name: str, kind: Any, default: object, outer: tuple[object, ...] = ()
) -> Parameter:
    """Return a parameter that is annotated so; `outer` are the structs in which it is a field."""
    if isinstance(kind, type) and kind in outer:
        raise rewritten.error(f"parameter {name}: {kind.__name__} is a field of itself")
    try:
        struct = struct_of(kind)
    except KernelError as error:
        raise rewritten.error(f"parameter {name}: {error}") from None
    if struct is not None:
        fields = {
            of: None
            if field is None
            else _read(rewritten, f"{name}.{of}", field, inspect.Parameter.empty, (*outer, kind))
            for of, field in struct.fields.items()
        }
        return Parameter(name, Struct(struct.name, fields, struct.made), default)
    if kind is Constexpr and "." in name:
        raise rewritten.error(f"parameter {name}: a Constexpr is a parameter of the kernel, and no field")
    layout = None
    if isinstance(kind, ArrayType):
        layout, kind = kind.layout, kind.pointer
    if isinstance(kind, Format) and kind not in SCALARS:
        mend = "pass an lw.i32" if kind is pred else f"lw.Ptr[lw.{kind.name}] is a pointer"
        raise rewritten.error(f"parameter {name}: {kind.name} is not a scalar type; {mend}")
    if kind is not Constexpr and not isinstance(kind, Ptr | Format | TensorMapType):
        raise rewritten.error(
            f"parameter {name}: {kind!r} is no type of the kernel language; {_written(kind)}"
        )
    return Parameter(name, kind, default, layout)


def note_bytes(builder: Builder, parameters: Iterable[Parameter]) -> None:
    """Note what a kernel needs if it has many bytes of parameters; too many are an error."""
    size = 0
    for parameter in parameters:
        one, alignment = _size(parameter)
        size = -(-size // alignment) * alignment + one
    if size > _MOST_BYTES:
        raise builder.error(
            f"the parameters have {size:,} bytes, and a kernel has {_MOST_BYTES:,} at most: put some of them "
            "into an array"
        )
    if size > _MANY_BYTES:
        builder.need(f"a kernel with more than {_MANY_BYTES:,} bytes of parameters", 70, "8.1")


def _size(parameter: Parameter) -> tuple[int, int]:
    """Return the bytes of a parameter, and what its address is a multiple of."""
    if isinstance(parameter.kind, Ptr):
        return 8, 8
    if isinstance(parameter.kind, TensorMapType):
        from lanewise.isa.tensor_map_fields import MAP_ALIGNMENT, MAP_BYTES

        return MAP_BYTES, MAP_ALIGNMENT
    size = storage_bytes(parameter.kind)
    return size, size


def declaration(parameter: Parameter) -> str:
    """Return the declaration of a parameter in the PTX of its kernel."""
    name = parameter.ptx_name
    if isinstance(parameter.kind, Ptr):
        return f".param .u64 .ptr .global .align {parameter.kind.align} {name}"
    if isinstance(parameter.kind, TensorMapType):
        from lanewise.isa.tensor_map_fields import MAP_ALIGNMENT, MAP_BYTES  # where a kernel needs it

        return f".param .align {MAP_ALIGNMENT} .b8 {name}[{MAP_BYTES}]"
    return f".param .{parameter_type(parameter.kind)} {name}"


def traced_argument(builder: Builder, parameter: Parameter, declared: list[str]) -> object:
    """Return the value of a parameter in the kernel, loaded at its beginning; its declarations are added."""

    def single(parameter: Parameter) -> object:
        declared.append(declaration(parameter))
        value = _loaded(builder, parameter)
        builder.bound[parameter.name] = [value]
        return value

    value = built(parameter, single)
    builder.bound[parameter.name] = [value]
    return value


def _loaded(builder: Builder, parameter: Parameter) -> object:
    """Return the value of a single parameter inside the kernel."""
    name = parameter.ptx_name
    symbol = Symbol(name)
    symbol.name = name
    if isinstance(parameter.kind, TensorMapType):
        builder.need("a tensor map", 90, "8.0")
    with builder.at_entry():
        if isinstance(parameter.kind, Ptr):
            generic = builder.define("ld.param.u64", "b64", Address(symbol))
            base = builder.define("cvta.to.global.u64", "b64", generic, hint=name)
            pointer = Pointer(parameter.kind.dtype, "global", base, 0, parameter.kind.align)
            return pointer if parameter.layout is None else Array(pointer, parameter.layout)
        if isinstance(parameter.kind, TensorMapType):
            return _tensor_map(builder, parameter, symbol)
        kind = register_kind(parameter.kind)
        opcode = f"ld.param.{parameter_type(parameter.kind)}"
        return Scalar(parameter.kind, builder.define(opcode, kind, Address(symbol), hint=name))


def _tensor_map(builder: Builder, parameter: Parameter, symbol: Symbol) -> object:
    """Return a tensor map inside the kernel: the generic address of its parameter."""
    from lanewise.lang.hopper.tma import TensorMap  # loaded where a kernel needs it

    address = builder.define("mov.b64", "b64", symbol)
    generic = builder.define("cvta.param.u64", "b64", address, hint=parameter.ptx_name)
    return TensorMap(parameter.kind, generic, parameter.name)
