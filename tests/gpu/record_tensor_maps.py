"""Asks the driver's encoder of tensor maps, and writes what it answers: `python record_tensor_maps.py FILE`.

The record is benchmarks/results/h200_tensor_maps.json: maps in which one field is varied, with their bytes;
random legal maps; and calls at the limits of the rules, with the driver's status.
"""

import ctypes
import datetime
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lanewise.isa.tensor_map_fields import MAP_BYTES, MOST_AXES
from tensor_map_cases import LIMITS, Answer, Call, call_at_limits, digest, packed, random_tensor

LEGAL = 3000
AT_LIMITS = 2500
_U64, _U32 = ctypes.c_uint64 * (MOST_AXES + 1), ctypes.c_uint32 * (MOST_AXES + 1)


class Encoder:
    """cuTensorMapEncodeTiled, in the primary context of the first device."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        for status in (
            self.library.cuInit(0),
            self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
            self.library.cuCtxSetCurrent(context),
        ):
            if status:
                raise RuntimeError(f"CUDA error {status}")
        self.function = self.library.cuTensorMapEncodeTiled
        self.function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, *[ctypes.c_void_p] * 5]
        self.function.argtypes += [ctypes.c_int] * 4
        self.memory = (ctypes.c_uint8 * (MAP_BYTES + 64))()
        self.place = ctypes.addressof(self.memory) + -ctypes.addressof(self.memory) % 64

    def __call__(self, call: Call) -> tuple[int, bytes]:
        """Return the status and the 128 bytes."""
        ctypes.memset(self.place, 0, MAP_BYTES)
        status = self.function(
            self.place,
            call.type,
            call.rank,
            call.address,
            _U64(*call.dims),
            _U64(*call.strides),
            _U32(*call.box),
            _U32(*call.element_strides),
            call.interleave,
            call.swizzle,
            call.l2_promotion,
            call.fill,
        )
        return status, ctypes.string_at(self.place, MAP_BYTES)

    def answer(self, call: Call) -> Answer:
        """Return what the driver answers."""
        status, raw = self(call)
        return Answer(call, status, digest(raw) if not status else 0)

    def about(self) -> dict[str, str]:
        """Return what answers: the device, the driver, the toolkit."""
        name = ctypes.create_string_buffer(128)
        self.library.cuDeviceGetName(name, 128, 0)
        version = ctypes.c_int()
        self.library.cuDriverGetVersion(ctypes.byref(version))
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        return {
            "device": name.value.decode(),
            "driver": driver[0] if driver else "",
            "toolkit": f"CUDA {version.value // 1000}.{version.value % 1000 // 10}",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }


#: The map in which one field at a time is varied.
BASE = Call(
    7, 5, 0x7F0000000000, (256, 48, 40, 24, 12), (2048, 1 << 17, 1 << 23, 1 << 28), (8, 8, 4, 2, 2), (1,) * 5
)


def varied() -> Iterator[tuple[str, Call]]:
    """Return calls in which one argument differs from the base, with what differs."""
    yield "base", BASE
    for name, values in LIMITS.items():
        for value in values:
            old: Any = getattr(BASE, name)
            for axis in range(len(old)) if isinstance(old, tuple) else (None,):
                new: Any = value if axis is None else (*old[:axis], value, *old[axis + 1 :])
                title = name if axis is None else f"{name}[{axis}]"
                yield f"{title} = {value}", BASE._replace(**{name: new})


def main(path: str) -> None:
    """Ask and write."""
    encoder = Encoder()
    chance = random.Random(20250115)
    one_field = {}
    for title, call in varied():
        status, raw = encoder(call)
        one_field[title] = f"status {status}" if status else raw.hex().rstrip("0")
    legal = [encoder.answer(Call.of(*random_tensor(chance))) for _ in range(LEGAL)]
    limits = [encoder.answer(call_at_limits(chance)) for _ in range(AT_LIMITS)]
    refused = sum(answer.status != 0 for answer in limits)
    record = {
        **encoder.about(),
        "what": "cuTensorMapEncodeTiled: one field varied (bytes in hexadecimal, zeros at the end left out), "
        "random legal maps, and calls at the limits of the rules (tests/tensor_map_cases.py reads them)",
        "counts": {
            "one_field": len(one_field),
            "legal": len(legal),
            "legal_refused": sum(answer.status != 0 for answer in legal),
            "at_limits": len(limits),
            "at_limits_refused": refused,
        },
        "base": BASE._asdict(),
        "one_field": one_field,
        "legal": packed(legal),
        "at_limits": packed(limits),
    }
    Path(path).write_text(json.dumps(record, indent=1) + "\n")
    print(record["counts"])


if __name__ == "__main__":
    main(sys.argv[1])
