"""Encoded descriptors and tensor maps on the command line: 64 bits, or 128 bytes as text or in a file."""

import re
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.isa.matrix_descriptor import MatrixDescriptor
from lanewise.isa.tensor_map import TiledTensor, decode
from lanewise.isa.tensor_map_fields import MAP_BYTES

#: A number of up to 64 bits: hexadecimal with 0x or of 16 digits, or decimal of at least five digits.
_DESCRIPTOR = re.compile(r"0[xX][0-9a-fA-F_]{1,19}|[0-9a-fA-F]{16}|[0-9]{5,20}")
_WORD = re.compile(r"(?:0[xX])?[0-9a-fA-F]+")
#: Bytes of a word, by how many words a map is written in.
_WORD_BYTES = {16: 8, 32: 4, MAP_BYTES: 1}
_DESCRIPTOR_BYTES = 8

#: Endings of names that no instruction has.
_FILE_NAMES = (".bin", ".map", ".hex", ".raw", ".dat")


def read_encoded(text: str) -> int | bytes | None:
    """Return a descriptor's 64 bits, or the 128 bytes of a tensor map; None if a text is neither.

    >>> read_encoded("0x4000004000000040") == 0x4000004000000040
    True
    >>> len(read_encoded("00" * 128)), read_encoded("mma.sync.aligned")
    (128, None)
    """
    text = text.strip()
    if _DESCRIPTOR.fullmatch(text):
        decimal = text.isdecimal() and len(text) != 2 * _DESCRIPTOR_BYTES
        number = int(text) if decimal else int(text, 16)
        if number >> 64:
            raise LanewiseError(f"{text} has more than 64 bits; a tensor map is 128 bytes, 256 digits")
        return number
    tensor_map = _map_of_words(text)
    if tensor_map is None and _is_file(text):
        return _read_file(Path(text))
    if tensor_map is None and Path(text).suffix in _FILE_NAMES:
        raise LanewiseError(
            f"{text}: no such file; a tensor map is 128 bytes in a file, or hexadecimal digits"
        )
    return tensor_map


def instruction_descriptor(text: str | None) -> int | None:
    """Return the 32 bits of an instruction descriptor that a text writes, in any base that Python has.

    >>> instruction_descriptor("0x8400490") == 0x8400490
    True
    """
    if text is None:
        return None
    try:
        number = int(text, 0)
    except ValueError:
        raise LanewiseError(f"--descriptor is a number such as 0x8400490, not {text!r}") from None
    if not 0 <= number < 1 << 32:
        raise LanewiseError(f"an instruction descriptor has 32 bits; {text} does not fit")
    return number


def drawable(encoded: int | bytes) -> MatrixDescriptor | TiledTensor:
    """Return what has the picture of a descriptor or of a tensor map."""
    return MatrixDescriptor.read(encoded) if isinstance(encoded, int) else decode(encoded)[1]


def _map_of_words(text: str) -> bytes | None:
    """Return the bytes of a map that is written as hexadecimal words or as one row of digits."""
    words = re.split(r"[\s,;{}\[\]]+", text.strip(" \t\n,;{}[]"))
    if not all(_WORD.fullmatch(word) for word in words):
        return None
    digits = [re.sub("^0[xX]", "", word) for word in words]
    if len(words) == 1:
        return bytes.fromhex(digits[0]) if len(digits[0]) == 2 * MAP_BYTES else None
    size = _WORD_BYTES.get(len(words))
    if size is None or any(len(word) > 2 * size for word in digits):
        return None
    return b"".join(int(word, 16).to_bytes(size, "little") for word in digits)


def _is_file(text: str) -> bool:
    """Return whether a text is the path of a file."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return False


def _read_file(path: Path) -> int | bytes:
    """Return what a file holds: the bytes themselves, or text."""
    raw = path.read_bytes()
    if len(raw) == _DESCRIPTOR_BYTES:
        return int.from_bytes(raw, "little")
    if len(raw) == MAP_BYTES:
        return raw
    number = None
    try:
        text = raw.decode().strip()
        number = int(text, 0) if _DESCRIPTOR.fullmatch(text) else _map_of_words(text)
    except (UnicodeDecodeError, ValueError):
        pass
    if number is None:
        raise LanewiseError(
            f"{path} has {len(raw)} bytes that are neither a matrix descriptor (8 bytes) nor a tensor map "
            f"({MAP_BYTES} bytes), nor one of them as hexadecimal text"
        )
    return number
