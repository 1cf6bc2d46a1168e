"""The byte order of NumPy types: a GPU is little-endian."""

import numpy as np


def is_native(dtype: np.dtype) -> bool:
    """Return whether all numbers of a type, those of its fields too, are little-endian."""
    if dtype.subdtype is not None:
        return is_native(dtype.subdtype[0])
    if dtype.fields is not None:
        return all(is_native(field[0]) for field in dtype.fields.values())
    return dtype.byteorder != ">"
