"""Sums and averages of decimals, exact, with Spark's result types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.model.slots import IntArray
from evenflow.operators.arrays import whole
from evenflow.operators.column import Block, Column, overflow
from evenflow.operators.values import FixedValues

MAX_DIGITS = 38
_MORE_IN_SUM, _MORE_IN_MEAN = 10, 4  # digits that Spark adds to those of the values
_WIDE_DIGITS = 76
_COUNT_DIGITS = 20


class DecimalSum(Column):
    """The sum of decimals with ten digits more than its values, as in Spark; one that does not fit is an error."""

    def __init__(self, name: str, label: str, kind: pa.DataType) -> None:
        """Start empty, for values of type `kind`; `label` stands in messages."""
        self.kind = pa.decimal128(min(MAX_DIGITS, kind.precision + _MORE_IN_SUM), kind.scale)
        self.result = pa.field(name, self.kind)
        self.fields = (self.result,)
        self._label = label
        self._wide = pa.decimal256(_WIDE_DIGITS, kind.scale)
        self._sums = FixedValues(self.kind)

    def reserve(self, capacity: int, used: int) -> None:
        self._sums.reserve(capacity, used)

    def start(self, low: int, high: int) -> None:
        self._sums.clear(low, high)

    def fold(self, block: Block, values: pa.Array) -> None:
        """Add up in 76 digits, which no block can exceed, the old sums along with the values."""
        before = self._sums.take(block.touched)
        terms = pa.concat_arrays([before.cast(self._wide), values.cast(self._wide)])
        places = np.concatenate([np.arange(len(block.touched)), block.group])
        table = pa.table({"place": places, "term": terms})
        sums = table.group_by("place", use_threads=False).aggregate([("term", "sum")])
        rows = block.touched[sums["place"].to_numpy()]
        try:
            self._sums.put(rows, whole(sums, "term_sum", self._wide).cast(self.kind))
        except pa.ArrowInvalid:
            raise overflow(self._label, str(self.kind), self._slot_of_overflow(sums, block)) from None

    def _slot_of_overflow(self, sums: pa.Table, block: Block) -> int:
        for place, total in zip(sums["place"].to_pylist(), sums["term_sum"].to_pylist(), strict=True):
            if total is not None and abs(total).scaleb(self.kind.scale) >= 10**self.kind.precision:
                return block.slot_of(place)
        return -1

    def read(self, rows: IntArray) -> list[pa.Array]:
        return [self._sums.take(rows)]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        self._sums.put(rows, state[0])

    def keep(self, rows: IntArray) -> None:
        self._sums.keep(rows)

    def nbytes(self, used: int) -> int:
        return self._sums.nbytes(used)


def mean_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the average of decimals."""
    digits, scale = kind.precision + _MORE_IN_MEAN, kind.scale + _MORE_IN_MEAN
    return pa.decimal128(min(MAX_DIGITS, digits), min(MAX_DIGITS, scale))


def divided(total: pa.Array, count: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return decimal sums over counts; half rounds away from 0, as in Spark.

    Arrow cuts a quotient off, but far behind the digits that are wanted, so the rounding afterwards is right.
    """
    wide = total.cast(pa.decimal256(total.type.precision, total.type.scale))
    counts = pc.if_else(total.is_valid(), count, None).cast(pa.decimal256(_COUNT_DIGITS, 0))
    rounded = pc.round(pc.divide(wide, counts), kind.scale, round_mode="half_towards_infinity")
    return rounded.cast(kind)
