"""A warm launch in machine code: arguments read, checked and handed to the driver without a step of Python.

Arrays are read through DLPack's C exchange API, which torch has on its tensor type. LLVM compiles one
function, kept on disk, and makes it a function of Python, which finds what it needs in a table of words, its
`self`: a launch's own table tells it what to expect. Products repeat their launches by others of this kind.
The rest is left to `plan.py`.
"""

import ctypes
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_char_p, c_int, c_uint64, c_void_p, py_object
from functools import cache
from typing import Any, NamedTuple

from lanewise.jit import machine_code

#: What texts of functions begin with: a word of a table is read as a number and as an address, and an array
#: through DLPack's C exchange API. Words in capital letters are places in tables, for `with_places`.
TABLE_TEXT = """
define internal i64 @word(ptr %table, i64 %place) alwaysinline {
  %at = getelementptr i64, ptr %table, i64 %place
  %value = load i64, ptr %at
  ret i64 %value
}

define internal ptr @address(ptr %table, i64 %place) alwaysinline {
  %value = call i64 @word(ptr %table, i64 %place)
  %pointer = inttoptr i64 %value to ptr
  ret ptr %pointer
}

; Whether a tensor can be read: what DLPack says of it goes to %tensor, the address of its first element to
; %place. If not, an error of Python's is left.
define internal i1 @read_tensor(ptr %read, ptr %object, ptr %tensor, ptr %place) alwaysinline {
entry:
  %failed = call i32 %read(ptr %object, ptr %tensor)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %told, label %end
told:
  %data = call i64 @word(ptr %tensor, i64 0)
  %offset = call i64 @word(ptr %tensor, i64 5)
  %first = add i64 %data, %offset
  store i64 %first, ptr %place
  br label %end
end:
  ret i1 %good
}

declare ptr @PyLong_AsVoidPtr(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
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


def can_be_made() -> bool:
    """Return whether Python has a global lock, and objects look as CPython's do."""
    return getattr(sys, "_is_gil_enabled", lambda: True)() is True and sys.implementation.name == "cpython"


def with_places(text: str, places: Mapping[str, int]) -> str:
    """Return a text with the numbers of places in tables for their names in capital letters.

    >>> with_places("call ptr @address(ptr %table, i64 READ)", {"READ": 5})
    'call ptr @address(ptr %table, i64 5)'
    """
    for name in sorted(places, key=len, reverse=True):
        number = str(places[name])
        text = text.replace(f"i64 {name})", f"i64 {number})").replace(f", {name}\n", f", {number}\n")
        text = text.replace(f", i64 {name}\n", f", i64 {number}\n")
    return text


def load(name: str, text: str) -> machine_code.Program:
    """Return the program of some functions' text, from the disk if it was compiled before."""
    from llvmlite import binding as llvm

    llvm.add_symbol("PyLong_AsVoidPtr", place(ctypes.pythonapi.PyLong_AsVoidPtr))
    key = hashlib.sha256(text.encode()).hexdigest()
    return machine_code.load(f"{name} {key}", lambda: text)


def place(function: Any) -> int:
    """Return the address of a function of C."""
    return ctypes.cast(function, c_void_p).value or 0


def places_in_python(names: Sequence[str]) -> list[int]:
    """Return the addresses of functions of Python's C interface."""
    return [place(getattr(ctypes.pythonapi, name)) for name in names]


def made(program: machine_code.Program, name: str, words: Sequence[int], held: tuple[object, ...]) -> Any:
    """Return a function of a program as one of Python's, with a table of words; it keeps `held` alive."""
    table = (c_uint64 * len(words))(*(word % (1 << 64) for word in words))
    method = _Method(name.encode(), program.place(name), _FASTCALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes, make.restype = (c_void_p, py_object, c_void_p), py_object
    address = _Table(ctypes.addressof(table))
    address.held = (table, method, program, held)
    return make(ctypes.addressof(method), address, None)


#: Returned where the arguments are not as expected; else the driver's status.
NOT_TAKEN = -1
_CUDA = 2
#: How a parameter is read: an array's address, a number as the C type that it becomes, a tensor map.
ARRAY, SIGNED, UNSIGNED, FLOAT, DOUBLE, TENSOR_MAP = range(6)

#: What of Python's C interface is called, in the order of the table.
_PYTHON = (
    "PyTuple_Size", "PyTuple_GetItem", "PyLong_AsLongLong", "PyLong_AsUnsignedLongLong", "PyFloat_AsDouble",
    "PyErr_Occurred", "PyErr_Clear", "PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLong",
    "PyObject_GetAttrString", "PyBytes_AsString", "PyBytes_Size", "Py_DecRef",
)  # fmt: skip
#: The table: Python's functions; then these, a word each; then CUlaunchConfig in seven words; then of each
#: parameter how it is read, its Python type, the least and the greatest value; of a tensor map, in place of
#: the least, the type of its array.
_TABLE = (
    "READ", "LAUNCH", "CURRENT", "CONTEXT", "FUNCTION", "DEVICE", "LOW_BITS", "COUNT", "LAST", "NAME",
    "CONFIG",
)  # fmt: skip
_PLACES = {name: place for place, name in enumerate(_TABLE, len(_PYTHON))}
_PLACES |= {"PARAMETERS": _PLACES["CONFIG"] + 7, "WORDS": 4}

#: In a DLTensor: data 0, device 8, dimensions 16, shape 24, strides 32, offset 40. In an object: its type 8.
_TEXT = """
; Whether strides grow as sizes multiply, from dimension %first on by %step.
define internal i1 @grows(ptr %shape, ptr %strides, i64 %count, i64 %first, i64 %step) {
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %i = phi i64 [ %first, %entry ], [ %i1, %next ]
  %expected = phi i64 [ 1, %entry ], [ %product, %next ]
  %done = icmp sge i64 %n, %count
  br i1 %done, label %yes, label %look
look:
  %size = call i64 @word(ptr %shape, i64 %i)
  %stride = call i64 @word(ptr %strides, i64 %i)
  %single = icmp eq i64 %size, 1
  %fits = icmp eq i64 %stride, %expected
  %good = or i1 %single, %fits
  br i1 %good, label %next, label %no
next:
  %product = mul i64 %expected, %size
  %n1 = add i64 %n, 1
  %i1 = add i64 %i, %step
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i1 @dense(ptr %tensor) {
entry:
  %at = getelementptr i8, ptr %tensor, i64 16
  %dimensions = load i32, ptr %at
  %count = sext i32 %dimensions to i64
  %shape = call ptr @address(ptr %tensor, i64 3)
  %strides = call ptr @address(ptr %tensor, i64 4)
  %unsaid = icmp eq ptr %strides, null
  br i1 %unsaid, label %yes, label %look
look:
  %last = sub i64 %count, 1
  %by_rows = call i1 @grows(ptr %shape, ptr %strides, i64 %count, i64 %last, i64 -1)
  br i1 %by_rows, label %yes, label %other
other:
  %by_columns = call i1 @grows(ptr %shape, ptr %strides, i64 %count, i64 0, i64 1)
  ret i1 %by_columns
yes:
  ret i1 true
}

@array_name = private constant [6 x i8] c"array\\00"
@encoded_name = private constant [8 x i8] c"encoded\\00"

; Copies the bytes of a tensor map to %to; whether its array is as expected and where it was when encoded.
define internal i1 @take_map(ptr %table, ptr %object, i64 %array_type, ptr %tensor, ptr %to) {
entry:
  %first_at = alloca i64
  %get = call ptr @address(ptr %table, i64 10)
  %as_bytes = call ptr @address(ptr %table, i64 11)
  %length = call ptr @address(ptr %table, i64 12)
  %free = call ptr @address(ptr %table, i64 13)
  %read = call ptr @address(ptr %table, i64 READ)
  %device = call i64 @word(ptr %table, i64 DEVICE)
  %array = call ptr %get(ptr %object, ptr @array_name)
  %has_array = icmp ne ptr %array, null
  br i1 %has_array, label %typed, label %no
typed:
  %its_type = call i64 @word(ptr %array, i64 1)
  %same = icmp eq i64 %its_type, %array_type
  br i1 %same, label %look, label %let_go
look:
  %was_read = call i1 @read_tensor(ptr %read, ptr %array, ptr %tensor, ptr %first_at)
  br label %let_go
let_go:
  %known = phi i1 [ false, %typed ], [ %was_read, %look ]
  call void %free(ptr %array)
  br i1 %known, label %where, label %no
where:
  %its_device = call i64 @word(ptr %tensor, i64 1)
  %on_device = icmp eq i64 %its_device, %device
  br i1 %on_device, label %encoding, label %no
encoding:
  %first = load i64, ptr %first_at
  %encoded = call ptr %get(ptr %object, ptr @encoded_name)
  %has_encoded = icmp ne ptr %encoded, null
  br i1 %has_encoded, label %size, label %no
size:
  %bytes = call i64 %length(ptr %encoded)
  %whole = icmp eq i64 %bytes, 136
  br i1 %whole, label %compare, label %end
compare:
  %from = call ptr %as_bytes(ptr %encoded)
  %encoded_for = call i64 @word(ptr %from, i64 0)
  %there = icmp eq i64 %encoded_for, %first
  br i1 %there, label %copy, label %end
copy:
  %map = getelementptr i8, ptr %from, i64 8
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %map, i64 128, i1 false)
  br label %end
end:
  %taken = phi i1 [ false, %size ], [ false, %compare ], [ true, %copy ]
  call void %free(ptr %encoded)
  ret i1 %taken
no:
  ret i1 false
}

; A method of Python: self is the table's address, the arguments a tuple and the stream's handle.
define ptr @launch(ptr %self, ptr %arguments, i64 %given) {
entry:
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %tuple_size = call ptr @address(ptr %table, i64 0)
  %tuple_item = call ptr @address(ptr %table, i64 1)
  %as_signed = call ptr @address(ptr %table, i64 2)
  %as_unsigned = call ptr @address(ptr %table, i64 3)
  %as_double = call ptr @address(ptr %table, i64 4)
  %occurred = call ptr @address(ptr %table, i64 5)
  %clear = call ptr @address(ptr %table, i64 6)
  %save = call ptr @address(ptr %table, i64 7)
  %restore = call ptr @address(ptr %table, i64 8)
  %from_long = call ptr @address(ptr %table, i64 9)
  %read = call ptr @address(ptr %table, i64 READ)
  %start = call ptr @address(ptr %table, i64 LAUNCH)
  %ask = call ptr @address(ptr %table, i64 CURRENT)
  %context = call i64 @word(ptr %table, i64 CONTEXT)
  %function = call ptr @address(ptr %table, i64 FUNCTION)
  %device = call i64 @word(ptr %table, i64 DEVICE)
  %low_bits = call i64 @word(ptr %table, i64 LOW_BITS)
  %count = call i64 @word(ptr %table, i64 COUNT)
  %last = call ptr @address(ptr %table, i64 LAST)
  %name = call i64 @word(ptr %table, i64 NAME)
  %config = alloca [7 x i64], align 16
  %tensor = alloca [6 x i64], align 16
  %there = alloca i64
  %room = mul i64 %count, 16
  %values = alloca i64, i64 %room, align 16
  %places = alloca ptr, i64 %count, align 16
  %template = getelementptr i64, ptr %table, i64 CONFIG
  call void @llvm.memcpy.p0.p0.i64(ptr %config, ptr %template, i64 56, i1 false)
  %tuple = load ptr, ptr %arguments
  %size = call i64 %tuple_size(ptr %tuple)
  %as_many = icmp eq i64 %size, %count
  br i1 %as_many, label %loop, label %refuse

loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %seen = phi i64 [ 0, %entry ], [ %all_bits, %next ]
  %done = icmp sge i64 %n, %count
  br i1 %done, label %check, label %item
item:
  %row0 = mul i64 %n, WORDS
  %row = add i64 %row0, PARAMETERS
  %row1 = add i64 %row, 1
  %row2 = add i64 %row, 2
  %row3 = add i64 %row, 3
  %kind = call i64 @word(ptr %table, i64 %row)
  %type = call i64 @word(ptr %table, i64 %row1)
  %low = call i64 @word(ptr %table, i64 %row2)
  %high = call i64 @word(ptr %table, i64 %row3)
  %value_place = mul i64 %n, 16
  %value_at = getelementptr i64, ptr %values, i64 %value_place
  %place_at = getelementptr ptr, ptr %places, i64 %n
  store ptr %value_at, ptr %place_at
  %object = call ptr %tuple_item(ptr %tuple, i64 %n)
  %its_type = call i64 @word(ptr %object, i64 1)
  %same = icmp eq i64 %its_type, %type
  br i1 %same, label %which, label %refuse
which:
  switch i64 %kind, label %refuse [ i64 0, label %array
                                    i64 1, label %signed
                                    i64 2, label %unsigned
                                    i64 3, label %float
                                    i64 4, label %double
                                    i64 5, label %tensor_map ]

array:
  %was_read = call i1 @read_tensor(ptr %read, ptr %object, ptr %tensor, ptr %value_at)
  br i1 %was_read, label %where, label %wrong
where:
  %its_device = call i64 @word(ptr %tensor, i64 1)
  %on_device = icmp eq i64 %its_device, %device
  br i1 %on_device, label %whole, label %refuse
whole:
  %in_one_piece = call i1 @dense(ptr %tensor)
  br i1 %in_one_piece, label %pointer, label %refuse
pointer:
  %first = load i64, ptr %value_at
  %more = or i64 %seen, %first
  br label %keep

signed:
  %s = call i64 %as_signed(ptr %object)
  %not_low = icmp sge i64 %s, %low
  %not_high = icmp sle i64 %s, %high
  %fits = and i1 %not_low, %not_high
  br i1 %fits, label %said, label %wrong
unsigned:
  %u = call i64 %as_unsigned(ptr %object)
  %below = icmp ule i64 %u, %high
  br i1 %below, label %said, label %wrong
said:
  %whole_number = phi i64 [ %s, %signed ], [ %u, %unsigned ]
  %suspect = icmp eq i64 %whole_number, -1
  br i1 %suspect, label %ask_error, label %keep
ask_error:
  %error = call ptr %occurred()
  %none = icmp eq ptr %error, null
  br i1 %none, label %keep, label %wrong

float:
  %f64 = call double %as_double(ptr %object)
  %f32 = fptrunc double %f64 to float
  %f_bits = bitcast float %f32 to i32
  %f_word = zext i32 %f_bits to i64
  br label %real
double:
  %d = call double %as_double(ptr %object)
  %d_word = bitcast double %d to i64
  br label %real
real:
  %real_word = phi i64 [ %f_word, %float ], [ %d_word, %double ]
  %real_value = phi double [ %f64, %float ], [ %d, %double ]
  %minus_one = fcmp oeq double %real_value, -1.0
  br i1 %minus_one, label %ask_real, label %keep
ask_real:
  %real_error = call ptr %occurred()
  %no_error = icmp eq ptr %real_error, null
  br i1 %no_error, label %keep, label %wrong

tensor_map:
  %taken = call i1 @take_map(ptr %table, ptr %object, i64 %low, ptr %tensor, ptr %value_at)
  br i1 %taken, label %next, label %wrong

keep:
  %word = phi i64 [ %first, %pointer ], [ %whole_number, %said ], [ %whole_number, %ask_error ],
                  [ %real_word, %real ], [ %real_word, %ask_real ]
  %bits = phi i64 [ %more, %pointer ], [ %seen, %said ], [ %seen, %ask_error ], [ %seen, %real ],
                  [ %seen, %ask_real ]
  store i64 %word, ptr %value_at
  br label %next
next:
  %all_bits = phi i64 [ %bits, %keep ], [ %seen, %tensor_map ]
  %n1 = add i64 %n, 1
  br label %loop

check:
  %stray = and i64 %seen, %low_bits
  %aligned = icmp eq i64 %stray, 0
  br i1 %aligned, label %current, label %refuse
current:
  %not_asked = icmp eq ptr %ask, null
  br i1 %not_asked, label %stream, label %look
look:
  store i64 0, ptr %there
  %asked = call i32 %ask(ptr %there)
  %now = load i64, ptr %there
  %ours = icmp eq i64 %now, %context
  br i1 %ours, label %stream, label %refuse
stream:
  %stream_at = getelementptr ptr, ptr %arguments, i64 1
  %stream_object = load ptr, ptr %stream_at
  %handle = call i64 %as_unsigned(ptr %stream_object)
  %handle_at = getelementptr i64, ptr %config, i64 4
  store i64 %handle, ptr %handle_at
  store i64 %name, ptr %last
  %thread = call ptr %save()
  %status = call i32 %start(ptr %config, ptr %function, ptr %places, ptr null)
  call void %restore(ptr %thread)
  %status_word = sext i32 %status to i64
  %result = call ptr %from_long(i64 %status_word)
  ret ptr %result

wrong:
  call void %clear()
  br label %refuse
refuse:
  %refusal = call ptr %from_long(i64 -1)
  ret ptr %refusal
}
"""


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
    """Return the compiled function; None where Python has no global lock, and objects look otherwise."""
    if not can_be_made():
        return None
    return load("launch", with_places(TABLE_TEXT + _TEXT, _PLACES))


class LaunchPlaces(NamedTuple):
    """The words of a launch in machine code: addresses of the driver's functions, and handles."""

    #: The function that reads arrays, those of the driver that launch and that return the current context.
    read: int
    launch: int
    current: int
    context: int
    function: int
    #: The device of arrays, and the bits that addresses must not have.
    ordinal: int
    low_bits: int
    #: Where the name of the last launch is kept, and the number of this one's.
    last: int
    name: int
    device_type: int = _CUDA


def compiled(
    parameters: Sequence[tuple[int, type, int, int]], config: bytes, places: LaunchPlaces
) -> Callable[[tuple[object, ...], int], int] | None:
    """A function of arguments and a stream's handle that launches: it returns the status, or NOT_TAKEN."""
    program = _program()
    if program is None or not places.read:
        return None
    words = places_in_python(_PYTHON)
    words += [places.read, places.launch, places.current, places.context, places.function]
    words += [places.device_type | places.ordinal << 32, places.low_bits, len(parameters)]
    words += [places.last, places.name]
    words += [int.from_bytes(config[start : start + 8], "little") for start in range(0, 56, 8)]
    for kind, type_, low, high in parameters:
        words += [kind, id(type_), low, high]
    launching: Callable[[tuple[object, ...], int], int] = made(
        program, "launch", words, tuple(type_ for _, type_, _, _ in parameters)
    )
    return launching
