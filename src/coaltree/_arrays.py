"""Names of array types, for annotations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
SmallInts = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]
Singles = npt.NDArray[np.float32]
