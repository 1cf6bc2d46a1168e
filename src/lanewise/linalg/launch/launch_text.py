"""What functions of machine code do with the launches of a product, in LLVM's language.

`replay.py` and `quick_call.py` begin with it: recorded launches are made on the operands' addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_uint64
from typing import TYPE_CHECKING

from lanewise.gpu.python_functions import TABLE_TEXT

if TYPE_CHECKING:
    from lanewise.gpu.recorded import RecordedLaunch

#: Bytes of CUlaunchConfig.
_CONFIG_BYTES = 56

LAUNCH_TEXT = (
    TABLE_TEXT
    + """
; All launches of a call, whose records' addresses lie at %records. Returns the status of the last one made.
define internal i32 @launch_all(ptr %records, i64 %count, ptr %operands, i64 %stream, ptr %start) {
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %launch ]
  %before = phi i32 [ 0, %entry ], [ %status, %launch ]
  %all = icmp uge i64 %n, %count
  %failed = icmp ne i32 %before, 0
  %done = or i1 %all, %failed
  br i1 %done, label %end, label %launch
launch:
  %record = call ptr @address(ptr %records, i64 %n)
  %status = call i32 @one(ptr %record, ptr %operands, i64 %stream, ptr %start)
  %n1 = add i64 %n, 1
  br label %loop
end:
  ret i32 %before
}

; One launch: the record has the values, their bytes, how many parameters, where each begins among the values,
; the configuration, how many words change, these (place, operand, what is added), and the function.
define internal i32 @one(ptr %record, ptr %operands, i64 %stream, ptr %start) noinline {
entry:
  %from = call ptr @address(ptr %record, i64 0)
  %size = call i64 @word(ptr %record, i64 1)
  %count = call i64 @word(ptr %record, i64 2)
  %offsets = call ptr @address(ptr %record, i64 3)
  %template = call ptr @address(ptr %record, i64 4)
  %changes = call i64 @word(ptr %record, i64 5)
  %rows = call ptr @address(ptr %record, i64 6)
  %function = call ptr @address(ptr %record, i64 7)
  %values = alloca i8, i64 %size, align 64
  %places = alloca ptr, i64 %count, align 16
  %config = alloca [7 x i64], align 16
  call void @llvm.memcpy.p0.p0.i64(ptr %values, ptr %from, i64 %size, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %config, ptr %template, i64 56, i1 false)
  %handle_at = getelementptr i64, ptr %config, i64 4
  store i64 %stream, ptr %handle_at
  br label %parameters
parameters:
  %p = phi i64 [ 0, %entry ], [ %p1, %parameter ]
  %all_placed = icmp uge i64 %p, %count
  br i1 %all_placed, label %words, label %parameter
parameter:
  %offset = call i64 @word(ptr %offsets, i64 %p)
  %value = getelementptr i8, ptr %values, i64 %offset
  %place_at = getelementptr ptr, ptr %places, i64 %p
  store ptr %value, ptr %place_at
  %p1 = add i64 %p, 1
  br label %parameters
words:
  %w = phi i64 [ 0, %parameters ], [ %w1, %change ]
  %all_changed = icmp uge i64 %w, %changes
  br i1 %all_changed, label %go, label %change
change:
  %row = mul i64 %w, 3
  %row1 = add i64 %row, 1
  %row2 = add i64 %row, 2
  %place = call i64 @word(ptr %rows, i64 %row)
  %operand = call i64 @word(ptr %rows, i64 %row1)
  %addend = call i64 @word(ptr %rows, i64 %row2)
  %base = call i64 @word(ptr %operands, i64 %operand)
  %address = add i64 %base, %addend
  %at = getelementptr i8, ptr %values, i64 %place
  store i64 %address, ptr %at
  %w1 = add i64 %w, 1
  br label %words
go:
  %status = call i32 %start(ptr %config, ptr %function, ptr %places, ptr null)
  ret i32 %status
}
"""
)


def launch_records(launches: Sequence[RecordedLaunch]) -> tuple[list[int], list[object]]:
    """Return the addresses of what LAUNCH_TEXT reads of each launch, and the memory that holds it."""
    records: list[int] = []
    held: list[object] = []
    for each in launches:
        values, offsets, config, changes = each.parts()
        content = ctypes.create_string_buffer(values, max(len(values), 1))
        places = (c_uint64 * max(len(offsets), 1))(*offsets)
        settings = ctypes.create_string_buffer(config, _CONFIG_BYTES)
        rows = (c_uint64 * max(3 * len(changes), 1))(*(number for change in changes for number in change))
        words = (
            ctypes.addressof(content), len(values), len(offsets), ctypes.addressof(places),
            ctypes.addressof(settings), len(changes), ctypes.addressof(rows), each.kernel.function,
        )  # fmt: skip
        record = (c_uint64 * len(words))(*words)
        records.append(ctypes.addressof(record))
        held.append((content, places, settings, rows, record, each))
    return records, held
