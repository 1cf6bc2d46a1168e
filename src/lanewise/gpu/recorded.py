"""Launches that were made once and are repeated on other memory: only addresses and the stream change.

A recorded launch has the machine code's function, the configuration, and the parameters as bytes. In these,
some words are addresses, or begin a tensor map with one: they are written anew for each repetition. It can be
kept on disk with its machine code, so that another process needs neither the kernel's source nor its PTX.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Sequence
from ctypes import c_uint64
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import lanewise.disk_cache as disk_cache
from lanewise.errors import InternalError
from lanewise.gpu.arrays import ArrayLocation, locate
from lanewise.gpu.assemble import cubin
from lanewise.gpu.device import Context
from lanewise.gpu.launching import argument_bytes
from lanewise.gpu.loading import Loaded, loaded
from lanewise.gpu.plan import filled_record, launch_config, padded_offsets, start
from lanewise.ptx import Entry, Shape
from lanewise.ptx.arguments import ArrayArgument, ParameterTypes, titled

_WORD, _POINTER_BYTES = 1 << 64, 8
_PACK_WORD = struct.Struct("<Q").pack_into
#: Version of the form in which launches are kept on disk, and the suffix of their files.
_FORM, _SUFFIX = 2, ".launch"
#: The most requests that a process keeps of those that launch one kernel.
_MOST_REQUESTS = 32


class Patch(NamedTuple):
    """A word of a launch's parameters that changes: an operand's address plus a constant."""

    #: The parameter, and the place of the word among its bytes.
    parameter: int
    operand: int
    addend: int


class RecordedLaunch:
    """A launch of known parameters; called with the operands' addresses and a stream, it is made again."""

    def __init__(self, kernel: Loaded, shape: Shape, raw: Sequence[bytes], patches: Sequence[Patch]) -> None:
        kernel.fit(shape)
        self.kernel, self.shape, self.raw, self.patches = kernel, shape, list(raw), list(patches)
        self._context, self._launch = kernel.context, kernel.context.driver.launch
        self._last = c_uint64.from_address(kernel.context.last_place)
        self._number = kernel.context.numbered(kernel.name)
        self._offsets = padded_offsets(raw)[:-1]
        self._free = [filled_record(kernel, shape, self.raw)]
        first = self._free[0]
        self._stream = first.stream
        #: Where words are written in a record, from which operand, plus what.
        self._words = [
            (first.values + self._offsets[patch.parameter], patch.operand, patch.addend) for patch in patches
        ]

    def parts(self) -> tuple[bytes, list[int], bytes, list[tuple[int, int, int]]]:
        """Return what machine code repeats it by: the parameters' bytes, where each begins, the
        configuration, and the words that change, as (place, operand, what is added)."""
        values = b"".join(part + bytes(-len(part) % 16) for part in self.raw)
        changes = [(self._offsets[patch.parameter], patch.operand, patch.addend) for patch in self.patches]
        return values, list(self._offsets), launch_config(self.shape), changes

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Launch it on operands at these addresses."""
        try:
            record = self._free.pop()
        except IndexError:  # other threads have them all
            record = filled_record(self.kernel, self.shape, self.raw)
        buffer = record.buffer
        _PACK_WORD(buffer, self._stream, stream)
        for place, operand, addend in self._words:
            _PACK_WORD(buffer, place, (addresses[operand] + addend) % _WORD)
        context = self._context
        if context.alone or context.is_current():
            status = self._launch(*record.call)
            if status:
                raise context.driver.error(status, self.kernel.name)
            self._last.value = self._number
        else:
            start(self.kernel, record)
        self._free.append(record)


def record(
    entry: Entry,
    shape: Shape,
    arguments: tuple[object, ...],
    there: Context,
    operand_of: Callable[[object], tuple[int, int] | None],
    addresses: Sequence[int],
) -> RecordedLaunch:
    """Return a launch with these arguments as one that can be repeated.

    `operand_of` tells of an array which operand's memory it is, and its address (None: memory that stays);
    `addresses` where the operands lie now.
    """
    types = ParameterTypes(entry.function, entry.module.cuda.text if entry.module.cuda is not None else "")
    raw, patches = [], []
    for number, (title, variable, value) in enumerate(titled(entry.function, arguments)):
        memory = value.array if isinstance(value, ArrayArgument) else value
        operand = operand_of(memory)
        if operand is not None:
            where: ArrayLocation | None = ArrayLocation("lanewise", True, there.ordinal, operand[1])
        else:
            where = locate(memory, 0) if not variable.dims or isinstance(value, ArrayArgument) else None
        part = argument_bytes(title, variable, value, where, types, there)
        raw.append(part)
        if operand is not None:
            # The first word of a tensor map is the tensor's address with other fields around it.
            word = int.from_bytes(part[:8], "little")
            patches.append(Patch(number, operand[0], (word - addresses[operand[0]]) % _WORD))
        elif where is None and len(part) == _POINTER_BYTES:
            _refuse_address(title, int.from_bytes(part, "little"), addresses)
    return RecordedLaunch(loaded(entry, there), shape, raw, patches)


def _refuse_address(title: str, number: int, addresses: Sequence[int]) -> None:
    """Raise an error for an operand's address that is passed as a number: it would stay the same for ever."""
    if number and number in addresses:
        raise InternalError(f"argument {title} of a recorded launch is an operand's address as a number")


# on disk ----------------------------------------------------------------------------------------------------


class _Code:
    """The machine code of a kernel on disk: its digest, and how many requests were kept that launch it."""

    def __init__(self, digest: str) -> None:
        self.digest, self.requests = digest, 0


_CODES: WeakKeyDictionary[Loaded, _Code] = WeakKeyDictionary()


def keep(request: str, launches: Sequence[tuple[RecordedLaunch, Entry]], more: dict[str, object]) -> None:
    """Keep launches for other processes, with their machine code and what else JSON holds: not more than the
    first ones of a kernel, as sizes may grow from call to call."""
    if disk_cache.cache_directory() is None:  # the machine code would be made again
        return
    codes = [_code(launch, entry) for launch, entry in launches]
    if codes[0].requests == _MOST_REQUESTS:
        return
    codes[0].requests += 1
    rows = [
        {
            "code": code.digest,
            "name": entry.name,
            "shape": [
                launch.shape.grid, launch.shape.block, launch.shape.shared_bytes, launch.shape.cluster,
                launch.shape.overlap,
            ],
            "raw": [part.hex() for part in launch.raw],
            "patches": [list(patch) for patch in launch.patches],
        }
        for code, (launch, entry) in zip(codes, launches, strict=True)
    ]  # fmt: skip
    content = {"form": _FORM, "launches": rows, "more": more}
    disk_cache.keep(_asked(request, launches[0][0].kernel.context), _SUFFIX, json.dumps(content).encode())


def _code(launch: RecordedLaunch, entry: Entry) -> _Code:
    """Return the machine code of a launch, kept on disk once."""
    code = _CODES.get(launch.kernel)
    if code is None:
        image = cubin(entry.module, launch.kernel.context, entry.name)
        code = _CODES[launch.kernel] = _Code(hashlib.sha256(image).hexdigest())
        disk_cache.keep(f"machine code {code.digest}", ".cubin", image)
    return code


def kept(request: str, there: Context) -> tuple[list[RecordedLaunch], dict[str, Any]] | None:
    """Return launches that a process kept, loaded on a device; None if there are none."""
    bytes_on_disk = disk_cache.read(_asked(request, there), _SUFFIX)
    if bytes_on_disk is None:
        return None
    content = json.loads(bytes_on_disk)
    launches = []
    for row in content["launches"] if content["form"] == _FORM else ():
        function = _function(row["code"], row["name"], there)
        if function is None:
            return None
        grid, block, shared, cluster, overlap = row["shape"]
        shape = Shape(tuple(grid), tuple(block), shared, None if cluster is None else tuple(cluster), overlap)
        raw = [bytes.fromhex(part) for part in row["raw"]]
        launches.append(RecordedLaunch(function, shape, raw, [Patch(*patch) for patch in row["patches"]]))
    return (launches, content["more"]) if launches else None


def _asked(request: str, there: Context) -> str:
    device = there.device
    return f"launch {_FORM}\0{request}\0{device.arch} {device.name} {device.multiprocessors} {device.cuda}"


_FUNCTIONS: dict[tuple[str, str, int], Loaded] = {}


def _function(digest: str, name: str, there: Context) -> Loaded | None:
    """Return a kernel of machine code that is on disk, loaded once; None if it is no longer there."""
    key = (digest, name, there.ordinal)
    if key not in _FUNCTIONS:
        image = disk_cache.read(f"machine code {digest}", ".cubin")
        if image is None or hashlib.sha256(image).hexdigest() != digest:
            return None
        with there.current():
            module = there.driver.handle("cuModuleLoadData", image, kernel=name)
            function = there.driver.handle("cuModuleGetFunction", module, name.encode(), kernel=name)
        _FUNCTIONS[key] = Loaded(name, function, there)
    return _FUNCTIONS[key]
