"""A warm launch in machine code: arguments read, checked and handed to the driver without a step of Python.

Arrays are read through DLPack's C exchange API, which torch has on its tensor type. Functions in the
restricted Python are compiled, kept on disk, and made functions of Python, which find what they need in a
record, their `self`: a launch's own record tells it what to expect. Products repeat their launches by others
of this kind. The rest is left to `plan.py`.
"""

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_char_p, c_int, c_uint64, c_void_p, py_object
from functools import cache
from typing import Any, ParamSpec, TypeVar

from lanewise.jit import ir, llvm_library, machine_code
from lanewise.jit.compiled_functions import (
    Argument,
    Function,
    Library,
    Primitive,
    Reference,
    as_number,
    primitive,
    signature_only,
)
from lanewise.jit.lane_functions import address_of, unsigned_less
from lanewise.jit.record_layout import RecordLayout, field, numbers, pointer, table
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.jit.simd import Code, Value, f32, f64, i32, i64

P = ParamSpec("P")
T = TypeVar("T")

# functions of C ---------------------------------------------------------------------------------------------

#: The names of those of Python that are called.
_FROM_PYTHON: list[str] = ["PyFloat_AsDouble"]


def _from_python(name: str, signature: Callable[P, T]) -> Primitive[P, T]:
    """Declare a function of Python's C interface: its objects are their addresses."""
    _FROM_PYTHON.append(name)

    def write(code: Code, *arguments: Argument) -> Value:
        function = code.external(name, ir.LONG, [ir.LONG] * len(arguments))
        handles = [as_number(code, argument).handle for argument in arguments]
        return Value(code, i64, code.builder.call(function, handles))

    return Primitive(signature, write)


def _of_nothing() -> int:
    signature_only()


def _of_one(object: int) -> int:
    signature_only()


def _of_two(object: int, other: int) -> int:
    signature_only()


def _of_three(object: int, other: int, last: int) -> int:
    signature_only()


PyErr_Clear = _from_python("PyErr_Clear", _of_nothing)
PyErr_Occurred = _from_python("PyErr_Occurred", _of_nothing)
PyEval_SaveThread = _from_python("PyEval_SaveThread", _of_nothing)
PyEval_RestoreThread = _from_python("PyEval_RestoreThread", _of_one)
PyBytes_AsString = _from_python("PyBytes_AsString", _of_one)
PyBytes_FromStringAndSize = _from_python("PyBytes_FromStringAndSize", _of_two)
PyBytes_Size = _from_python("PyBytes_Size", _of_one)
PyLong_AsLongLong = _from_python("PyLong_AsLongLong", _of_one)
PyLong_AsUnsignedLongLong = _from_python("PyLong_AsUnsignedLongLong", _of_one)
PyLong_AsVoidPtr = _from_python("PyLong_AsVoidPtr", _of_one)
PyLong_FromLongLong = _from_python("PyLong_FromLongLong", _of_one)
PyObject_Call = _from_python("PyObject_Call", _of_three)
PyObject_GetAttr = _from_python("PyObject_GetAttr", _of_two)
PyTuple_GetItem = _from_python("PyTuple_GetItem", _of_two)
PyTuple_Size = _from_python("PyTuple_Size", _of_one)
Py_DecRef = _from_python("Py_DecRef", _of_one)
Py_IncRef = _from_python("Py_IncRef", _of_one)


def _as_double(code: Code, number: Value) -> Value:
    function = code.external("PyFloat_AsDouble", f64.ir, [ir.LONG])
    return Value(code, f64, code.builder.call(function, [number.handle])).view(i64)


@primitive(_as_double)
def PyFloat_AsDouble(number: int) -> int:
    """Return the bits of a number as an f64."""
    signature_only()


@primitive(lambda code, bits: bits.view(f64).to(f32).view(i32).to(i64) & 0xFFFF_FFFF)
def _as_f32(bits: int) -> int:
    """Return the bits of the f32 next to an f64, whose bits are given."""
    signature_only()


def call_status(code: Code, function: Value, *arguments: Argument) -> Value:
    """Write a call of a function of C by its address; it returns an int."""
    type_ = ir.FunctionType(ir.WORD, [ir.LONG] * len(arguments)).as_pointer()
    handles = [as_number(code, argument).handle for argument in arguments]
    answer = code.builder.call(code.builder.inttoptr(function.handle, type_), handles)
    return Value(code, i32, answer).to(i64)


# records that machine code reads ----------------------------------------------------------------------------


class Words(RecordLayout):
    """Words in memory; how many is known elsewhere."""

    words = field(8, 2)


class Object(RecordLayout):
    """How an object of CPython begins."""

    references = field()
    type = field()


class DLTensor(RecordLayout):
    """What DLPack says of an array. The device is its type and its ordinal."""

    data = field()
    device = field()
    axes_and_dtype = field()
    shape = numbers(8)
    strides = numbers(8)
    offset = field()


class LaunchConfig(RecordLayout):
    """The driver's CUlaunchConfig, in words."""

    grid_block_shared = field(8, 4)
    stream = field()
    attributes = field(8, 2)


@primitive(call_status)
def _read_dltensor(function: int, object: int, tensor: DLTensor) -> int:
    """Fill a DLTensor from an array."""
    signature_only()


@inlined
def read_tensor(function: int, object: int, tensor: DLTensor) -> bool:
    """Return whether an array can be read into a record; if not, an error of Python's is left."""
    return _read_dltensor(function, object, tensor) == 0


@inlined
def first_element(tensor: DLTensor) -> int:
    """Return the address of an array's first element."""
    return tensor.data + tensor.offset


@inlined
def axes_of(tensor: DLTensor) -> int:
    """Return how many axes an array has."""
    return tensor.axes_and_dtype & 0xFFFF_FFFF


def _stack_words(code: Code, count: Value) -> Reference:
    memory = code.builder.alloca(ir.LONG, count.handle, align=64)
    return Reference(Words, Value(code, i64, code.builder.ptrtoint(memory, ir.LONG)))


@primitive(_stack_words)
def stack_words(count: int) -> Words:
    """Return words on the stack of the function that calls this."""
    signature_only()


@inlined
def copy_words(target: Words, source: Words, count: int) -> None:
    """Copy words that lie apart from the target."""
    for n in range(count):
        target.words[n] = source.words[n]


@primitive(call_status)
def _launch_kernel(function: int, config: LaunchConfig, kernel: int, parameters: Words, extra: int) -> int:
    """Call cuLaunchKernelEx."""
    signature_only()


@inlined
def launch_kernel(function: int, config: LaunchConfig, stream: int, kernel: int, parameters: Words) -> int:
    """Launch a kernel on a stream by the driver's function; return the status."""
    own = LaunchConfig.on_stack()
    copy_words(Words.at(address_of(own)), Words.at(address_of(config)), 7)
    own.stream = stream
    return _launch_kernel(function, own, kernel, parameters, 0)


# machine code as functions of Python ------------------------------------------------------------------------

_FASTCALL = 0x80


class _Method(ctypes.Structure):
    """CPython's PyMethodDef: how a function in machine code is made callable from Python."""

    _fields_ = (("name", c_char_p), ("function", c_void_p), ("flags", c_int), ("doc", c_char_p))


class _Table(int):
    """The address of a function's table, with all that must live as long as the function.

    Python's function objects point to a PyMethodDef that they do not own, and read it until they are freed;
    they do own their `self`. So this is their `self`, and it holds the rest.
    """

    held: tuple[object, ...]


def load(name: str, *functions: Function[..., int]) -> machine_code.Program | None:
    """Return the program of some functions, from the disk if it was compiled before.

    None where Python has no global lock, and objects look otherwise than CPython's.
    """
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    for symbol in _FROM_PYTHON:
        llvm_library.add_symbol(symbol, ctypes.cast(getattr(ctypes.pythonapi, symbol), c_void_p).value or 0)

    def write() -> str:
        library = Library(name)
        for function in functions:
            library.declared(function)
        library.finish()
        return str(library)

    return machine_code.load(name, write)


def words_of(words: Iterable[int]) -> ctypes.Array[c_uint64]:
    """Return words in memory."""
    given = [word % (1 << 64) for word in words]
    return (c_uint64 * max(len(given), 1))(*given)


def record_of(
    layout: type[RecordLayout], *held: object, **fields: int | ctypes.Array[Any]
) -> ctypes.Array[c_uint64]:
    """Return a record in memory, whose fields are words, or point to arrays; it keeps these and `held`."""
    assert fields.keys() == layout.FIELDS.keys(), layout
    given = (fields[name] for name in layout.FIELDS)
    record = words_of(ctypes.addressof(each) if isinstance(each, ctypes.Array) else each for each in given)
    vars(record)["held"] = fields, held
    return record


def made(program: machine_code.Program, name: str, record: ctypes.Array[c_uint64]) -> Any:
    """Return a function of a program as one of Python's, with its record."""
    method = _Method(name.encode(), program.place(name), _FASTCALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes, make.restype = (c_void_p, py_object, c_void_p), py_object
    address = _Table(ctypes.addressof(record))
    address.held = (record, method, program)
    return make(ctypes.addressof(method), address, None)


# a launch ---------------------------------------------------------------------------------------------------

#: Returned where the arguments are not as expected; else the driver's status.
NOT_TAKEN = -1
_CUDA = 2
#: How a parameter is read: an array's address, a number as the C type that it becomes, a tensor map.
ARRAY, SIGNED, UNSIGNED, FLOAT, DOUBLE, TENSOR_MAP = range(6)
#: Words for the value of a parameter, and of what a tensor map keeps: the address that it was encoded for
#: comes first.
_VALUE_WORDS, _ENCODED_BYTES = 16, 136
#: The bits of the f64 -1.
_MINUS_ONE = 0xBFF << 52


class Parameter(RecordLayout):
    """How a parameter is read, its Python type, and the least and the greatest value.

    In place of the least a tensor map has the type of its array.
    """

    kind = field()
    type = field()
    least = field()
    greatest = field()


class LaunchRecord(RecordLayout):
    """A launch: addresses of functions, handles, and what arguments have to be."""

    #: What reads arrays, and the driver's functions that launch and that return the current context.
    read = field()
    launch = field()
    current = field()
    context = field()
    function = field()
    #: The device of arrays, and the bits that addresses must not have.
    device = field()
    low_bits = field()
    #: Where the name of the last launch is kept, and the number of this one's.
    last = pointer(lambda: Words)
    name = field()
    config = pointer(lambda: LaunchConfig)
    parameters = table(lambda: Parameter)
    count = field()
    array_name = field()
    encoded_name = field()


@compiled()
def _grows(tensor: DLTensor, first: int, step: int) -> bool:
    """Return whether strides grow as sizes multiply, from an axis on by a step."""
    expected = 1
    for n in range(axes_of(tensor)):
        axis = first + n * step
        if tensor.shape[axis] != 1 and tensor.strides[axis] != expected:
            return False
        expected *= tensor.shape[axis]
    return True


@compiled()
def _is_dense(tensor: DLTensor) -> bool:
    """Return whether an array is contiguous, by rows or by columns."""
    by_rows = address_of(tensor.strides) == 0 or _grows(tensor, axes_of(tensor) - 1, -1)
    return by_rows or _grows(tensor, 0, 1)


@compiled()
def _take_map(launch: LaunchRecord, object: int, array_type: int, value: Words) -> bool:
    """Copy a tensor map; return whether its array is as expected, and where it was when it was encoded."""
    tensor = DLTensor.on_stack()
    array = PyObject_GetAttr(object, launch.array_name)
    if array == 0:
        return False
    known = Object.at(array).type == array_type and read_tensor(launch.read, array, tensor)
    Py_DecRef(array)
    if not known or tensor.device != launch.device:
        return False
    encoded = PyObject_GetAttr(object, launch.encoded_name)
    if encoded == 0:
        return False
    taken = False
    if PyBytes_Size(encoded) == _ENCODED_BYTES:
        start = PyBytes_AsString(encoded)
        taken = Words.at(start).words[0] == first_element(tensor)
        if taken:
            copy_words(value, Words.at(start + 8), _VALUE_WORDS)
    Py_DecRef(encoded)
    return taken


@compiled()
def _take_array(launch: LaunchRecord, object: int, value: Words) -> bool:
    """Read the address of an array; return whether it is on the device, contiguous and aligned."""
    tensor = DLTensor.on_stack()
    if not read_tensor(launch.read, object, tensor) or tensor.device != launch.device:
        return False
    value.words[0] = first_element(tensor)
    return _is_dense(tensor) and value.words[0] & launch.low_bits == 0


@compiled()
def _take_number(parameter: Parameter, object: int, value: Words) -> bool:
    """Read a number; return whether it is one, and in range."""
    if parameter.kind == SIGNED:
        number = PyLong_AsLongLong(object)
        suspect = number == -1
        if number < parameter.least or number > parameter.greatest:
            return False
    elif parameter.kind == UNSIGNED:
        number = PyLong_AsUnsignedLongLong(object)
        suspect = number == -1
        if unsigned_less(parameter.greatest, number):
            return False
    else:
        number = PyFloat_AsDouble(object)
        suspect = number == _MINUS_ONE
        if parameter.kind == FLOAT:
            number = _as_f32(number)
    value.words[0] = number
    return not suspect or PyErr_Occurred() == 0


@compiled()
def _take(launch: LaunchRecord, parameter: Parameter, object: int, value: Words) -> bool:
    """Read an argument; return whether it is as expected."""
    if Object.at(object).type != parameter.type:
        return False
    if parameter.kind == ARRAY:
        return _take_array(launch, object, value)
    if parameter.kind == TENSOR_MAP:
        return _take_map(launch, object, parameter.least, value)
    return _take_number(parameter, object, value)


@primitive(call_status)
def _current_context(function: int, context: Words) -> int:
    """Call cuCtxGetCurrent."""
    signature_only()


@compiled()
def _is_current(launch: LaunchRecord) -> bool:
    """Return whether the launch's context is the current one."""
    context = Words.on_stack()
    context.words[0] = 0
    _current_context(launch.current, context)
    return context.words[0] == launch.context


@compiled(name="launch", external=True)
def _launch(self: int, arguments: Words, given: int) -> int:
    """Launch on a tuple of arguments and a stream's handle: a method of Python."""
    launch = LaunchRecord.at(PyLong_AsVoidPtr(self))
    items = arguments.words[0]
    values, places = stack_words(_VALUE_WORDS * launch.count), stack_words(launch.count)
    taken = PyTuple_Size(items) == launch.count
    for n in range(launch.count):
        if taken:
            places.words[n] = address_of(values) + 8 * _VALUE_WORDS * n
            value = Words.at(places.words[n])
            taken = _take(launch, launch.parameters[n], PyTuple_GetItem(items, n), value)
    if not taken or (launch.current != 0 and not _is_current(launch)):
        PyErr_Clear()
        return PyLong_FromLongLong(NOT_TAKEN)
    stream = PyLong_AsUnsignedLongLong(arguments.words[1])
    launch.last.words[0] = launch.name
    thread = PyEval_SaveThread()
    status = launch_kernel(launch.launch, launch.config, stream, launch.function, places)
    PyEval_RestoreThread(thread)
    return PyLong_FromLongLong(status)


#: How a number is read, by the letter that packs it.
_NUMBERS = {
    **{letter: (SIGNED, bits) for letter, bits in (("b", 8), ("h", 16), ("i", 32), ("q", 64))},
    **{letter: (UNSIGNED, bits) for letter, bits in (("B", 8), ("H", 16), ("I", 32), ("Q", 64))},
    "f": (FLOAT, 32),
    "d": (DOUBLE, 64),
}


def parameter(code: str, type_: type, array_type: type | None = None) -> tuple[int, type, int, int] | None:
    """A parameter's row of the table: how it is read, its Python type, least and greatest value.

    `array_type` is the type of a tensor map's array.

    >>> parameter("h6x", int)
    (1, <class 'int'>, -32768, 32767)
    """
    if code == "P":
        return ARRAY, type_, 0, 0
    if code == "128s":
        return TENSOR_MAP, type_, id(array_type), 0
    if code[0] not in _NUMBERS:
        return None
    kind, bits = _NUMBERS[code[0]]
    low = -(1 << bits - 1) if kind == SIGNED else 0
    return kind, type_, low, low + (1 << bits) - 1


def exchange_function(kind: type) -> int:
    """The C function that reads a DLTensor from an array of a type; 0 if the type offers none."""
    # After the version and an older interface: allocate, from and to an object, and this one.
    return _exchange_word(kind, 40)


def stream_function(kind: type) -> int:
    """The C function that tells the current stream of a device for arrays of a type; 0 if there is none."""
    return _exchange_word(kind, 48)


def _exchange_word(kind: type, offset: int) -> int:
    """A word of DLPack's C exchange API of a type of arrays; 0 if the type has none of a known version."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if type(capsule).__name__ != "PyCapsule":
        return 0
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.argtypes, read.restype = (py_object, c_char_p), c_void_p
    try:
        place = read(capsule, b"dlpack_exchange_api")
    except ValueError:  # of another name
        return 0
    major = ctypes.c_uint32.from_address(place).value
    return c_uint64.from_address(place + offset).value if major == 1 else 0


@cache
def _program() -> machine_code.Program | None:
    return load("launch", _launch)


def compiled_launch(
    parameters: Sequence[tuple[int, type, int, int]], config: bytes, ordinal: int, **places: int
) -> Callable[[tuple[object, ...], int], int] | None:
    """A function of arguments and a stream's handle that launches: it returns the status, or NOT_TAKEN.

    `places` are fields of a `LaunchRecord` by name.
    """
    program = _program()
    if program is None or not places["read"]:
        return None
    rows = words_of(word for kind, type_, low, high in parameters for word in (kind, id(type_), low, high))
    array_name, encoded_name = "array", "encoded"
    record = record_of(
        LaunchRecord, parameters, array_name, encoded_name, **places, device=_CUDA | ordinal << 32,
        config=ctypes.create_string_buffer(config, LaunchConfig.BYTES), parameters=rows,
        count=len(parameters), array_name=id(array_name), encoded_name=id(encoded_name),
    )  # fmt: skip
    launching: Callable[[tuple[object, ...], int], int] = made(program, "launch", record)
    return launching
