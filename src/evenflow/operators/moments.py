"""Standard deviation and variance: count, mean and the sum of squared distances, joined by Chan's formula."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from evenflow.model.slots import IntArray
from evenflow.operators.arrays import Array, array_of, grown, validity, values_of
from evenflow.operators.column import Block, Column


class Spread(Column):
    """How far numbers are from their mean, as Spark computes it: null as long as there are too few."""

    def __init__(self, name: str, function: str) -> None:
        """Start empty."""
        self.result = pa.field(name, pa.float64())
        self.fields = tuple(pa.field(f"{name}.{part}", pa.float64()) for part in ("count", "mean", "squares"))
        self._parts: list[Array] = [np.empty(0, np.float64) for _ in self.fields]
        self._fewer = 0.0 if function.endswith("_pop") else 1.0  # what the count is lessened by
        self._root = function.startswith("stddev")

    def reserve(self, capacity: int, used: int) -> None:
        if len(self._parts[0]) < capacity:
            self._parts = [grown(part, capacity, used) for part in self._parts]

    def start(self, low: int, high: int) -> None:
        for part in self._parts:
            part[low:high] = 0.0

    def fold(self, block: Block, values: pa.Array) -> None:
        valid, group = validity(values), block.group
        numbers = values_of(values.cast(pa.float64()))
        if valid is not None:
            group, numbers = group[valid], numbers[valid]
        size = len(block.touched)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            count = np.bincount(group, minlength=size).astype(np.float64)
            mean = np.bincount(group, numbers, size) / np.maximum(count, 1.0)
            squares = np.bincount(group, (numbers - mean[group]) ** 2, size)
            self._join(block.touched, count, mean, squares)

    def _join(self, rows: IntArray, count: Array, mean: Array, squares: Array) -> None:
        """Take in what others have come to; rows without any numbers stay as they are."""
        some = count > 0
        rows, count, mean, squares = rows[some], count[some], mean[some], squares[some]
        before, old_mean, old_squares = (part[rows] for part in self._parts)
        total, apart = before + count, mean - old_mean
        self._parts[0][rows] = total
        self._parts[1][rows] = np.where(before > 0, old_mean + apart * (count / total), mean)
        self._parts[2][rows] = np.where(
            before > 0, old_squares + squares + apart**2 * (before * count / total), squares
        )

    def read(self, rows: IntArray) -> list[pa.Array]:
        return [array_of(part[rows], pa.float64()) for part in self._parts]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        for part, array in zip(self._parts, state, strict=True):
            part[rows] = values_of(array)

    def keep(self, rows: IntArray) -> None:
        self._parts = [part[rows] for part in self._parts]

    def nbytes(self, used: int) -> int:
        return used * 8 * len(self._parts)

    def results(self, state: list[pa.Array]) -> pa.Array:
        count, _, squares = (values_of(array) for array in state)
        weight = count - self._fewer
        result = squares / np.maximum(weight, 1.0)
        return array_of(np.sqrt(result) if self._root else result, pa.float64(), (weight > 0) & (count > 0))
