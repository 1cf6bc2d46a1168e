"""Launches that were made once and are repeated on other memory: only addresses and the stream change.

A recorded launch has the machine code's function, the configuration, and the parameters as bytes. In these,
some words are addresses, or begin a tensor map with one: they are written anew for each repetition. It can be
kept on disk with its machine code, so that another process needs neither the kernel's source nor its PTX.

Launches of other sizes are recorded without the kernel's source, too, where it has a name: a file says which
parameters it has and which machine code (`NamedKernel`).
"""

import hashlib
import json
import struct
from collections.abc import Callable, Sequence
from ctypes import c_uint64
from typing import Any, NamedTuple

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
_FORM, _SUFFIX, _KERNEL_SUFFIX = 3, ".launch", ".kernel"
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


class NamedKernel:
    """A kernel on a device as launches of it are recorded: its parameters, and its machine code.

    `entry` may be declared only. `name` is the one under which it is kept on disk, if it is.
    """

    def __init__(
        self, name: str, entry: Entry, kernel: Loaded, shared_bytes: int = 0, digest: str = ""
    ) -> None:
        self.name, self.entry, self.kernel = name, entry, kernel
        #: Bytes of dynamic shared memory of its arrays, which a launch may leave out.
        self.shared_bytes = shared_bytes
        self._digest = digest
        #: How many requests were kept that launch it.
        self.requests = 0

    @property
    def digest(self) -> str:
        """The digest of its machine code, which is on disk then."""
        if not self._digest:
            image = cubin(self.entry.module, self.kernel.context, self.entry.name)
            self._digest = hashlib.sha256(image).hexdigest()
            disk_cache.keep(f"machine code {self._digest}", ".cubin", image)
        return self._digest


#: Kernels by name and device.
_NAMED: dict[tuple[str, Context], NamedKernel] = {}


def known(name: str, there: Context) -> NamedKernel | None:
    """Return the kernel of a name on a device, if this process or another one has had it; else None."""
    key = name, there
    if name and key not in _NAMED:
        kept_kernel = _read_kernel(name, there)
        if kept_kernel is not None:
            _NAMED[key] = kept_kernel
    return _NAMED.get(key)


def named(name: str, entry: Entry, shared_bytes: int, there: Context) -> NamedKernel:
    """Return a kernel as it was traced; one with a name is kept for other processes."""
    made = NamedKernel(name, entry, loaded(entry, there), shared_bytes)
    if name:
        _NAMED[name, there] = made
        keep_kernel(made)
    return made


def keep_kernel(kernel: NamedKernel) -> None:
    """Keep a kernel for other processes: what `known` reads."""
    if disk_cache.cache_directory() is None:
        return
    content = {
        "form": _FORM, "code": kernel.digest, "name": kernel.entry.name, "shared": kernel.shared_bytes,
        "declaration": _declaration(kernel.entry),
    }  # fmt: skip
    asked = _asked(kernel.name, kernel.kernel.context)
    disk_cache.keep(asked, _KERNEL_SUFFIX, json.dumps(content).encode())


def _declaration(entry: Entry) -> str:
    """Return the PTX of a module with a kernel that does nothing in the place of one."""
    text = entry.module.text
    return text[: text.index("{", text.index(f".entry {entry.name}"))] + "{ ret; }"


def _read_kernel(name: str, there: Context) -> NamedKernel | None:
    """Return a kernel that a process kept, loaded on a device; None if there is none."""
    bytes_on_disk = disk_cache.read(_asked(name, there), _KERNEL_SUFFIX)
    if bytes_on_disk is None:
        return None
    content = json.loads(bytes_on_disk)
    kernel = _function(content["code"], content["name"], there) if content["form"] == _FORM else None
    if kernel is None:
        return None
    from lanewise.ptx import parse

    entry = parse(content["declaration"])[content["name"]]
    return NamedKernel(name, entry, kernel, content["shared"], content["code"])


def record(
    kernel: NamedKernel,
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
    function, cuda = kernel.entry.function, kernel.entry.module.cuda
    types = ParameterTypes(function, cuda.text if cuda is not None else "")
    raw, patches = [], []
    for number, (title, variable, value) in enumerate(titled(function, arguments)):
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
    return RecordedLaunch(kernel.kernel, shape, raw, patches)


def _refuse_address(title: str, number: int, addresses: Sequence[int]) -> None:
    """Raise an error for an operand's address that is passed as a number: it would stay the same for ever."""
    if number and number in addresses:
        raise InternalError(f"argument {title} of a recorded launch is an operand's address as a number")


# on disk ----------------------------------------------------------------------------------------------------


def keep(
    request: str, launches: Sequence[tuple[RecordedLaunch, NamedKernel]], more: dict[str, object]
) -> None:
    """Keep launches for other processes, with their machine code and what else JSON holds: not more than the
    first ones of a kernel, as sizes may grow from call to call."""
    if disk_cache.cache_directory() is None:  # the machine code would be made again
        return
    first = launches[0][1]
    if first.requests == _MOST_REQUESTS:
        return
    first.requests += 1
    rows = [
        {
            "code": kernel.digest,
            "name": kernel.entry.name,
            "shape": [
                launch.shape.grid, launch.shape.block, launch.shape.shared_bytes, launch.shape.cluster,
                launch.shape.overlap,
            ],
            "raw": [part.hex() for part in launch.raw],
            "patches": [list(patch) for patch in launch.patches],
        }
        for launch, kernel in launches
    ]  # fmt: skip
    content = {"form": _FORM, "launches": rows, "more": more}
    disk_cache.keep(_asked(request, first.kernel.context), _SUFFIX, json.dumps(content).encode())


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


_FUNCTIONS: dict[tuple[str, str, Context], Loaded] = {}


def _function(digest: str, name: str, there: Context) -> Loaded | None:
    """Return a kernel of machine code that is on disk, loaded once; None if it is no longer there."""
    key = (digest, name, there)
    if key not in _FUNCTIONS:
        image = disk_cache.read(f"machine code {digest}", ".cubin")
        if image is None or hashlib.sha256(image).hexdigest() != digest:
            return None
        with there.current():
            module = there.driver.handle("cuModuleLoadData", image, kernel=name)
            function = there.driver.handle("cuModuleGetFunction", module, name.encode(), kernel=name)
        _FUNCTIONS[key] = Loaded(name, function, there)
    return _FUNCTIONS[key]
