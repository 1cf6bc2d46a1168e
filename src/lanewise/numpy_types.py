"""Names for what annotations say most often of NumPy: an array, or a dtype, whatever its elements are."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

AnyArray: TypeAlias = npt.NDArray[Any]
AnyDtype: TypeAlias = np.dtype[Any]
