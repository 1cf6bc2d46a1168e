"""The launches of a call that was made before, repeated by machine code.

torch's tensors are read through DLPack's C exchange API, as in `gpu/native.py`. `repeat` reads operands and
makes the launches by what is in `launch_text.py`. Where Python or torch are of another make, it is not there,
and `warm.py` does it in Python. `quick_call.py` makes a whole call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from lanewise.gpu.native import exchange_function
from lanewise.gpu.python_functions import can_be_made, load, made, places_in_python, with_places
from lanewise.jit import machine_code
from lanewise.linalg.launch.launch_text import LAUNCH_TEXT, launch_records

if TYPE_CHECKING:
    from lanewise.gpu.recorded import RecordedLaunch

#: What of Python's C interface is called: the first words of the table.
_PYTHON = (
    "PyLong_FromUnsignedLongLong", "PyLong_AsUnsignedLongLong", "PyErr_Clear", "PyEval_SaveThread",
    "PyEval_RestoreThread",
)  # fmt: skip
#: Then the function that reads a tensor, None, cuLaunchKernelEx, where the last kernel's number goes, the
#: number, how many launches, and the address of each one's record.
_READ = len(_PYTHON)
#: `repeat` returns the driver's status; this one where a tensor could not be read.
NOT_READ = (1 << 64) - 1
_MOST_OPERANDS = 16

_REPEAT_TEXT = """
; A method of Python: the stream's handle, then the operands; None where there is none. Returns the status.
define ptr @repeat(ptr %self, ptr %arguments, i64 %given) {
entry:
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %number = call ptr @address(ptr %table, i64 0)
  %as_unsigned = call ptr @address(ptr %table, i64 1)
  %clear = call ptr @address(ptr %table, i64 2)
  %save = call ptr @address(ptr %table, i64 3)
  %restore = call ptr @address(ptr %table, i64 4)
  %read = call ptr @address(ptr %table, i64 READ)
  %none = call ptr @address(ptr %table, i64 NONE)
  %start = call ptr @address(ptr %table, i64 LAUNCH)
  %last = call ptr @address(ptr %table, i64 LAST)
  %name = call i64 @word(ptr %table, i64 NAME)
  %launches = call i64 @word(ptr %table, i64 LAUNCHES)
  %operands = alloca [MOST x i64], align 16
  %tensor = alloca [6 x i64], align 16
  call void @llvm.memset.p0.i64(ptr %operands, i8 0, i64 MOST_BYTES, i1 false)
  %stream_object = load ptr, ptr %arguments
  %stream = call i64 %as_unsigned(ptr %stream_object)
  br label %loop
loop:
  %n = phi i64 [ 1, %entry ], [ %n1, %next ]
  %done = icmp uge i64 %n, %given
  br i1 %done, label %begin, label %item
item:
  %at = getelementptr ptr, ptr %arguments, i64 %n
  %object = load ptr, ptr %at
  %absent = icmp eq ptr %object, %none
  br i1 %absent, label %next, label %look
look:
  %place = sub i64 %n, 1
  %operand_at = getelementptr i64, ptr %operands, i64 %place
  %good = call i1 @read_tensor(ptr %read, ptr %object, ptr %tensor, ptr %operand_at)
  br i1 %good, label %next, label %wrong
next:
  %n1 = add i64 %n, 1
  br label %loop
begin:
  store i64 %name, ptr %last
  %thread = call ptr %save()
  %records = getelementptr i64, ptr %table, i64 FIRST_RECORD
  %status = call i32 @launch_all(ptr %records, i64 %launches, ptr %operands, i64 %stream, ptr %start)
  call void %restore(ptr %thread)
  %code = sext i32 %status to i64
  %result = call ptr %number(i64 %code)
  ret ptr %result
wrong:
  call void %clear()
  %unread = call ptr %number(i64 -1)
  ret ptr %unread
}
"""
#: Places in the tables, by their names in the text.
_PLACES = {
    "READ": _READ, "NONE": _READ + 1, "LAUNCH": _READ + 2, "LAST": _READ + 3, "NAME": _READ + 4,
    "LAUNCHES": _READ + 5, "FIRST_RECORD": _READ + 6,
}  # fmt: skip


@cache
def _program() -> machine_code.Program | None:
    """Return the compiled functions; None where Python has no global lock, and objects look otherwise."""
    if not can_be_made():
        return None
    text = (LAUNCH_TEXT + _REPEAT_TEXT).replace("MOST_BYTES", str(8 * _MOST_OPERANDS))
    text = with_places(text.replace("[MOST x", f"[{_MOST_OPERANDS} x"), _PLACES)
    return load("replay", text)


def _first_words(read: int) -> list[int]:
    return [*places_in_python(_PYTHON), read]


def repeat_function(
    launches: Sequence[RecordedLaunch], type_: type, *, launch: int, last: int, name: int
) -> Callable[..., int] | None:
    """Return a function of a stream's handle and the operands' tensors that repeats launches.

    It returns the driver's status, or NOT_READ. `launch` is the place of cuLaunchKernelEx; `last` and `name`
    say where the number of the kernel that was launched last is noted.
    """
    read = exchange_function(type_)
    program = _program()
    if not read or program is None:
        return None
    records, held = launch_records(launches)
    words_of_table = [*_first_words(read), id(None), launch, last, name, len(records), *records]
    repeating: Callable[..., int] = made(program, "repeat", words_of_table, tuple(held))
    return repeating
