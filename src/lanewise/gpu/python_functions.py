"""Machine code as functions of Python: each finds what it needs in a table of words, its `self`.

`native.py` launches by one, and products repeat their launches by others.
"""

import ctypes
import hashlib
import sys
from collections.abc import Mapping, Sequence
from ctypes import c_char_p, c_int, c_uint64, c_void_p, py_object
from typing import Any

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
