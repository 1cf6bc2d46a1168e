"""Modules of the virtual GPU: PTX from text, files and fatbins, and the functions in them."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.isa.archs import arch_number
from lanewise.ptx import Entry, Module, load
from lanewise.virtual_gpu.devices import Device
from lanewise.virtual_gpu.driver.results import DriverError, Result

_ELF, _ELF_HEADER = b"\x7fELF", 64
#: The first words of a fatbin, and of the record by which a program refers to one.
_FATBIN, _WRAPPER = 0xBA55ED50, 0x466243B1
#: Kinds of images in a fatbin.
_PTX_IMAGE, _ELF_IMAGE = 1, 2
#: Bits of the flags of an image: how it is compressed.
_LZ4, _ZSTD = 0x2000, 0x8000
_NO_PTX = (
    "the program has machine code (SASS) for a GPU, and no PTX, which is what the virtual GPU runs; build it "
    "with PTX: nvcc -gencode arch=compute_90,code=compute_90, or TORCH_CUDA_ARCH_LIST='9.0+PTX'"
)


#: The PTX of cubins by the hash of each, where a framework's compiler tells both.
_PTX_OF_CUBINS: dict[bytes, str] = {}


def know_ptx(cubin: bytes, ptx: str) -> None:
    """Keep the PTX that a cubin was made of: it runs where a program loads the cubin."""
    _PTX_OF_CUBINS[_hash(cubin)] = ptx


def _hash(cubin: bytes) -> bytes:
    """Return a hash of the ELF file at the begin of some bytes."""
    return hashlib.sha256(cubin[: _elf_bytes(cubin[:_ELF_HEADER])]).digest()


@dataclass
class LoadedModule:
    """A module that a program loaded."""

    module: Module
    functions: dict[str, LoadedFunction] = field(default_factory=dict)


@dataclass
class LoadedFunction:
    """A kernel of a loaded module, with the attributes that the program set."""

    owner: LoadedModule
    entry: Entry
    attributes: dict[int, int] = field(default_factory=dict)

    @property
    def parameter_sizes(self) -> list[int]:
        """The bytes of each parameter."""
        return [parameter.size for parameter in self.entry.parameters]


def load_ptx(text: str, device: Device) -> LoadedModule:
    """Return the module of a PTX text; an error if it is not for the device."""
    try:
        module = load(text)
    except LanewiseError as error:
        raise DriverError(Result.INVALID_PTX, str(error)) from None
    target, own = module.arch, device.arch
    number, limit = arch_number(target), arch_number(own)
    specific = target.endswith("a") and number != limit
    family = target.endswith("f") and number // 10 != limit // 10
    if number > limit or specific or family:
        raise DriverError(
            Result.NO_BINARY_FOR_GPU,
            f"the PTX is for {target}, and the virtual {device.name} is {own}; compile for {own}, or name a "
            f"GPU that has {target}",
        )
    return LoadedModule(module)


def load_file(path: str, device: Device) -> LoadedModule:
    """Return the module in a file: PTX, or a fatbin with PTX."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DriverError(Result.FILE_NOT_FOUND, f"{path}: {error.strerror}") from None
    return load_ptx(ptx_in(data, arch_number(device.arch)), device)


def ptx_in(data: bytes, limit: int = 10**6) -> str:
    """Return the PTX of an image: itself, or the one of the highest arch in a fatbin that a GPU can run.

    `limit` is the number of the GPU's own arch: PTX for later ones is left out, unless there is no other.
    """
    if data[:4] == _ELF:
        return _ptx_of_cubin(data)
    if len(data) >= 4 and struct.unpack_from("<I", data)[0] == _FATBIN:
        return _ptx_in_fatbin(data, limit)
    try:
        text = data.split(b"\0", 1)[0].decode()
    except UnicodeDecodeError:
        raise DriverError(Result.INVALID_IMAGE, "the image is neither PTX nor a fatbin") from None
    if ".version" not in text:
        raise DriverError(Result.INVALID_IMAGE, "the image is neither PTX nor a fatbin: it has no .version")
    return text


def _ptx_of_cubin(cubin: bytes) -> str:
    """Return the PTX that a cubin was made of, if it is known."""
    ptx = _PTX_OF_CUBINS.get(_hash(cubin))
    if ptx is None:
        raise DriverError(Result.NO_BINARY_FOR_GPU, _NO_PTX)
    return ptx


def _ptx_in_fatbin(data: bytes, limit: int) -> str:
    """Return the PTX of the highest arch in a fatbin up to a limit; of the lowest if all are higher.

    Without PTX, that of a cubin in it is returned if it is known.
    """
    _, _, header, size = struct.unpack_from("<IHHQ", data)
    offset, end = header, header + size
    images: list[tuple[int, str]] = []
    cubins: list[bytes] = []
    while offset + 64 <= min(end, len(data)):
        kind, _, own_header, padded, compressed, _, _, arch = struct.unpack_from("<HHIQIIII", data, offset)
        flags, _, plain_size = struct.unpack_from("<QQQ", data, offset + 40)
        if own_header < 64 or not padded:
            break
        if kind == _PTX_IMAGE:
            body = data[offset + own_header : offset + own_header + padded]
            images.append((arch, _unpacked(body, flags, compressed, plain_size)))
        elif kind == _ELF_IMAGE and not flags & (_LZ4 | _ZSTD):
            cubins.append(data[offset + own_header : offset + own_header + padded])
        offset += own_header + padded
    if not images and cubins:
        return _ptx_of_cubin(cubins[0])
    if not images:
        raise DriverError(Result.NO_BINARY_FOR_GPU, _NO_PTX)
    fitting = [image for image in images if image[0] <= limit]
    return max(fitting)[1] if fitting else min(images)[1]


def _unpacked(body: bytes, flags: int, compressed: int, size: int) -> str:
    """Return the text of an image of a fatbin, which may be compressed."""
    if flags & _ZSTD:
        body = _zstandard(body[:compressed], size)
    elif flags & _LZ4:
        body = lz4_block(body[:compressed], size)
    return body.split(b"\0", 1)[0].decode()


def _zstandard(data: bytes, size: int) -> bytes:
    """Return the bytes of a Zstandard frame, by the package or by the library of the system."""
    import ctypes

    try:
        import zstandard
    except ImportError:
        try:
            library = ctypes.CDLL("libzstd.so.1")
        except OSError:
            raise DriverError(
                Result.INVALID_IMAGE,
                "the PTX in the fatbin is compressed with Zstandard: `pip install zstandard`, or build with "
                "`nvcc --no-compress`",
            ) from None
        target = ctypes.create_string_buffer(size)
        library.ZSTD_decompress.restype = ctypes.c_size_t
        written = library.ZSTD_decompress(target, ctypes.c_size_t(size), data, ctypes.c_size_t(len(data)))
        if written != size:
            raise DriverError(Result.INVALID_IMAGE, "the compressed PTX in the fatbin is damaged") from None
        return target.raw
    plain: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    return plain


def lz4_block(data: bytes, size: int) -> bytes:
    """Return the bytes of an LZ4 block.

    >>> lz4_block(bytes([0x35]) + b"abc" + bytes([3, 0]) + bytes([0x10]) + b"z", 13)
    b'abcabcabcabcz'
    """
    out = bytearray()
    at = 0

    def length(first: int) -> int:
        nonlocal at
        total = first
        while first == 15:
            byte = data[at]
            at += 1
            total += byte
            if byte != 255:
                break
        return total

    while at < len(data):
        token = data[at]
        at += 1
        literals = length(token >> 4)
        out += data[at : at + literals]
        at += literals
        if at >= len(data) or len(out) >= size:
            break
        distance = data[at] | data[at + 1] << 8
        at += 2
        for _ in range(length(token & 15) + 4):
            out.append(out[-distance])
    return bytes(out)


def image_at(place: int) -> bytes:
    """Return the bytes of an image at a host address: a fatbin has its size, PTX ends in a zero byte."""
    import ctypes

    (first,) = struct.unpack("<I", ctypes.string_at(place, 4))
    if first == _WRAPPER:
        (place,) = struct.unpack("<Q", ctypes.string_at(place + 8, 8))
        (first,) = struct.unpack("<I", ctypes.string_at(place, 4))
    if first == _FATBIN:
        header, size = struct.unpack("<HQ", ctypes.string_at(place + 6, 10))
        return ctypes.string_at(place, header + size)
    if ctypes.string_at(place, 4) == _ELF:
        return ctypes.string_at(place, _elf_bytes(ctypes.string_at(place, _ELF_HEADER)))
    return ctypes.string_at(place)


def _elf_bytes(header: bytes) -> int:
    """Return the bytes of an ELF file, which ends with its table of sections or of segments."""
    segments, sections = struct.unpack_from("<QQ", header, 0x20)
    segment_bytes, segment_count, section_bytes, section_count = struct.unpack_from("<HHHH", header, 0x36)
    return int(max(segments + segment_bytes * segment_count, sections + section_bytes * section_count))


def function_of(owner: LoadedModule, name: str) -> LoadedFunction:
    """Return a kernel of a module by its name in the PTX."""
    known = owner.functions.get(name)
    if known is None:
        if name not in owner.module.entries:
            names = ", ".join(owner.module.entries) or "none"
            raise DriverError(Result.NOT_FOUND, f"the module has no kernel {name!r}; it has: {names}")
        known = owner.functions[name] = LoadedFunction(owner, owner.module[name])
    return known
