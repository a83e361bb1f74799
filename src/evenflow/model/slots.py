"""Names for slots and lanes, and the way from a key's hash to its slot."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from evenflow.errors import InputError

SlotId: TypeAlias = int
LaneId: TypeAlias = int
Epoch: TypeAlias = int

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

DEFAULT_SLOTS = 256


def slots_of_hashes(hashes: IntArray, slots: int) -> IntArray:
    """Return the slot of each 64-bit key hash: the non-negative remainder, as Spark's ``pmod`` gives it."""
    if slots < 1:
        raise InputError(f"a key space needs at least 1 slot, got {slots}")
    return np.mod(hashes, np.int64(slots))


def frozen_array(values: npt.ArrayLike, dtype: type[Any]) -> npt.NDArray[Any]:
    """Return `values` as a read-only array of its own, so that a value holding it cannot change."""
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array
