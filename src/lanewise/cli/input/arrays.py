"""Arrays in .npy files: read as an operand's format, written as NumPy writes them.

NumPy saves most of ml_dtypes as raw bytes, so raw words are read as the format's bits, and said to be.
Numbers of another dtype are taken only if rounding them is asked for.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.formats import Format
    from lanewise.numpy_types import AnyArray

#: What NumPy's reader raises for files that are no arrays; its header is a Python literal.
_UNREADABLE = (ValueError, EOFError, SyntaxError, TypeError, OverflowError, TokenError, RecursionError)
#: NumPy saves float8_e5m2 under a name that it refuses to read; the bytes behind it are sound.
_E5M2 = b"'descr': '<f1'", b"'descr': '|V1'"

#: Endings of files of arrays and tables that np.save does not write.
_OTHER_FORMATS = (".npz", ".txt", ".csv", ".tsv", ".json", ".pt", ".pkl", ".mat", ".h5")


def read_array(path: Path, what: str, format: Format, *, convert: bool = False) -> AnyArray:
    """The array in a file, in the dtype of a format; what was assumed or rounded is said on stderr."""
    array = load(path)
    if array.dtype == format.dtype:
        return array
    if array.dtype.kind == "V" and array.dtype.names is None and format.dtype.kind == "V":
        if array.dtype.itemsize == format.dtype.itemsize:
            _note(f"{path}: raw bytes, read as {format.name}")
            return array.view(format.dtype)
    elif convert and array.dtype.kind in "fiub":
        return _converted(array, path, what, format)
    elif array.dtype.kind == "u" and array.dtype.itemsize == format.word_dtype.itemsize:
        _note(f"{path}: {array.dtype}, read as the raw bits of {format.name} (--convert reads it as numbers)")
        return format.from_bits(array)
    hint = f". --convert rounds its numbers to {format.name}" if array.dtype.kind in "fiub" else ""
    raise LanewiseError(
        f"{path}: {what} is {format.name}, an array of {format.dtype} or of its bits, {format.word_dtype}; "
        f"this one is {array.dtype}{hint}"
    )


def load(path: Path) -> AnyArray:
    """The array in a .npy file, whatever its dtype, in the byte order of this machine."""
    import ml_dtypes
    import numpy as np

    content = path.read_bytes()
    header, rest = content[:128], content[128:]
    e5m2 = _E5M2[0] in header
    try:
        file = io.BytesIO(header.replace(*_E5M2) + rest if e5m2 else content)
        array = np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except _UNREADABLE as error:
        hint = "; save each array of a .npz archive with np.save" if path.suffix == ".npz" else ""
        raise LanewiseError(f"{path} is not an array that np.save wrote: {error}{hint}") from error
    if e5m2:
        return array.view(ml_dtypes.float8_e5m2)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def check_name(path: Path) -> Path:
    """Return the path of a file for an array, unless its name ends as that of a file of another format."""
    if path.suffix in _OTHER_FORMATS:
        raise LanewiseError(
            f"{path}: an array is written as np.save writes it; name the file {path.with_suffix('.npy')}"
        )
    return path


def save(path: Path, array: AnyArray) -> None:
    """Write an array as np.save does, to the very name that was given."""
    import numpy as np

    with path.open("wb") as file:
        np.save(file, array)


def _converted(array: AnyArray, path: Path, what: str, format: Format) -> AnyArray:
    import numpy as np

    try:
        result = format.array(array)
    except LanewiseError as error:
        raise LanewiseError(f"{path}: {what}: {error}") from error
    after = format.decode(format.to_bits(result))
    # NumPy compares 64-bit integers with floats after a conversion to float64, and Python exactly.
    before = array.astype(object) if array.dtype.kind in "iu" and array.dtype.itemsize == 8 else array
    both_nan = (before != before) & (after != after)
    changed = int(np.sum((before != after) & ~both_nan))
    if changed:
        _note(f"{path}: {changed} of {array.size} values were rounded to {format.name}")
    return result


def _note(message: str) -> None:
    print(f"lanewise: {message}", file=sys.stderr)
