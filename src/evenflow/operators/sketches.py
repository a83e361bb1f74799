"""Aggregates that keep a sketch of the values instead of the values: Apache DataSketches, an extra.

The state is the sketch as bytes, read and written again for each key of an epoch: so what a lane has in memory is
what the checkpoint has. Only sketches without chance in them serve here, since a replay must come to the same.
"""

from __future__ import annotations

from abc import abstractmethod
from importlib import import_module
from math import ceil, log2
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import InputError
from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.accumulators import Count
from evenflow.operators.arrays import Array, array_of, fixed_dtype, validity, values_of
from evenflow.operators.collected import first_of_each
from evenflow.operators.column import Block, Column
from evenflow.operators.functions import Option
from evenflow.operators.key_hash import hashes_of
from evenflow.operators.lists import as_lists, list_of
from evenflow.operators.values import VariableValues

_ERROR_OF_HLL = 1.04  # times the root of the registers: the relative standard deviation
_REGISTERS = (7, 21)  # as powers of 2
_ERROR_OF_DIGEST = 3  # a rank is wrong by at most this / k, as measured
_SIZES_OF_DIGEST = (10, 65_535)


def _library(who: str) -> Any:
    try:
        return import_module("datasketches")
    except ModuleNotFoundError as error:
        raise InputError(
            f"{who} needs datasketches, which is not installed here: pip install 'evenflow[sketches]', on the driver "
            "and on the executors"
        ) from error


class Sketched(Column):
    """A sketch per row; null as long as there is nothing in it."""

    def __init__(self, name: str, label: str) -> None:
        """Start empty; `label` stands in messages."""
        self.library = _library(label)
        self.fields = (pa.field(name, pa.binary()),)
        self._sketches = VariableValues(pa.binary())

    @abstractmethod
    def _updated(self, sketch: bytes | None, values: Array) -> bytes:
        """Return a sketch with values taken in."""

    def reserve(self, capacity: int, used: int) -> None:
        self._sketches.reserve(capacity, used)

    def start(self, low: int, high: int) -> None:
        self._sketches.clear(low, high)

    def _update(self, block: Block, groups: IntArray, values: Array) -> None:
        """Take values in; `groups[i]`, ascending, is the place in `touched` of the row that value i is for."""
        if not len(groups):
            return
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        rows = block.touched[groups[starts]]
        held = self._sketches.take(rows).to_pylist()
        stops = [*starts[1:].tolist(), len(groups)]
        new = [
            self._updated(sketch, values[low:high])
            for sketch, low, high in zip(held, starts.tolist(), stops, strict=True)
        ]
        self._sketches.put(rows, pa.array(new, pa.large_binary()))

    def read(self, rows: IntArray) -> list[pa.Array]:
        return [self._sketches.take(rows)]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        self._sketches.put(rows, state[0])

    def keep(self, rows: IntArray) -> None:
        self._sketches.keep(rows)

    def nbytes(self, used: int) -> int:
        return self._sketches.nbytes(used)


class ApproxCountDistinct(Sketched):
    """About how many different values came: a HyperLogLog sketch of their hashes."""

    def __init__(self, name: str, label: str, options: tuple[Option, ...]) -> None:
        """Start empty."""
        super().__init__(name, label)
        rsd = cast("float", options[0])
        self.result = pa.field(name, pa.int64(), nullable=False)
        registers = ceil(2 * log2(_ERROR_OF_HLL / rsd))
        if registers > _REGISTERS[1]:
            finest = _ERROR_OF_HLL / 2 ** (_REGISTERS[1] / 2)
            raise InputError(f"{label}: rsd must be {finest:.4f} or more, got {rsd}; count_distinct() is exact")
        self._registers = max(_REGISTERS[0], registers)

    def fold(self, block: Block, values: pa.Array) -> None:
        valid, group = validity(values), block.group
        if valid is not None:
            group, values = group[valid], values.drop_null()
        if pa.types.is_float32(values.type):
            values = values.cast(pa.float64())  # so that a column which becomes wider has the hashes of before
        hashes = hashes_of(pa.table({"value": values}), ["value"])
        first = first_of_each(group, [pa.array(hashes)])
        first = first[np.argsort(group[first], kind="stable")]
        self._update(block, group[first], hashes[first])

    def _updated(self, sketch: bytes | None, values: Array) -> bytes:
        kind = self.library.hll_sketch
        made = kind(self._registers) if sketch is None else kind.deserialize(sketch)
        for value in values.tolist():
            made.update(value)
        stored: bytes = made.serialize_compact()
        return stored

    def results(self, state: list[pa.Array]) -> pa.Array:
        read = self.library.hll_sketch.deserialize
        return pa.array([0 if one is None else round(read(one).get_estimate()) for one in state[0].to_pylist()])


class PercentileApprox(Sketched):
    """Values of some ranks: a t-digest, beside which infinities and NaN are counted.

    It is exact while the digest holds each value by itself, for half as many of them as `accuracy` and more.
    """

    def __init__(self, name: str, label: str, kind: pa.DataType, options: tuple[Option, ...]) -> None:
        """Start empty, for values of type `kind`."""
        super().__init__(name, label)
        wanted, accuracy = options
        self.kind, self._label = kind, label
        self._shares = wanted if isinstance(wanted, tuple) else (float(wanted),)
        self.result = pa.field(name, list_of(kind) if isinstance(wanted, tuple) else kind)
        k = _ERROR_OF_DIGEST * int(accuracy) if isinstance(accuracy, int) else 0
        self._k = min(max(k, _SIZES_OF_DIGEST[0]), _SIZES_OF_DIGEST[1])
        self._beside = tuple(Count(f"{name}.{part}") for part in ("low", "high", "nan"))
        self.fields = (*self.fields, *(each.result for each in self._beside))

    def reserve(self, capacity: int, used: int) -> None:
        super().reserve(capacity, used)
        for part in self._beside:
            part.reserve(capacity, used)

    def start(self, low: int, high: int) -> None:
        super().start(low, high)
        for part in self._beside:
            part.start(low, high)

    def fold(self, block: Block, values: pa.Array) -> None:
        numbers, valid = _as_doubles(values), validity(values)
        there: BoolArray = np.ones(len(numbers), np.bool_) if valid is None else valid
        kinds = (numbers == -np.inf, numbers == np.inf, np.isnan(numbers))
        for part, beside in zip(self._beside, kinds, strict=True):
            if (beside & there).any():
                part.fold(block, _counted(beside & there))
        finite = np.flatnonzero(there & np.isfinite(numbers))
        finite = finite[np.argsort(block.group[finite], kind="stable")]
        self._update(block, block.group[finite], numbers[finite])

    def _updated(self, sketch: bytes | None, values: Array) -> bytes:
        kind = self.library.tdigest_double
        made = kind(self._k) if sketch is None else kind.deserialize(sketch)
        made.update(np.ascontiguousarray(values))
        stored: bytes = made.serialize()
        return stored

    def read(self, rows: IntArray) -> list[pa.Array]:
        return [*super().read(rows), *(part.read(rows)[0] for part in self._beside)]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        super().write(rows, state[:1])
        for part, array in zip(self._beside, state[1:], strict=True):
            part.write(rows, [array])

    def keep(self, rows: IntArray) -> None:
        super().keep(rows)
        for part in self._beside:
            part.keep(rows)

    def nbytes(self, used: int) -> int:
        return super().nbytes(used) + sum(part.nbytes(used) for part in self._beside)

    def results(self, state: list[pa.Array]) -> pa.Array:
        columns = [array.to_pylist() for array in state]
        found = [self._at_shares(*row) for row in zip(*columns, strict=True)]
        valid = np.array([bool(each) for each in found], np.bool_)
        flat = np.array([value for each in found for value in each or [0.0] * len(self._shares)], np.float64)
        if self.result.type == self.kind:
            return _as_kind(flat, self.kind, valid)
        lists = as_lists(self.result.type, np.full(len(found), len(self._shares)), _as_kind(flat, self.kind, None))
        return pc.if_else(pa.array(valid), lists, pa.scalar(None, lists.type))

    def _at_shares(self, sketch: bytes | None, low: int, high: int, nan: int) -> list[float]:
        """Return the value at each share: that of rank ceil(share x number), as in Spark; none if there are none."""
        digest = None if sketch is None else self.library.tdigest_double.deserialize(sketch)
        finite = 0 if digest is None else digest.get_total_weight()
        total = low + finite + high + nan
        found = []
        for share in self._shares if total else ():
            rank = max(1, ceil(share * total))
            if rank <= low:
                found.append(-np.inf)
            elif rank > low + finite:
                found.append(np.inf if rank <= low + finite + high else np.nan)
            elif digest is not None:
                found.append(digest.get_quantile((rank - low - 0.5) / finite))
        return found


def _counted(mask: BoolArray) -> pa.Array:
    """Return values of which those are not null that a mask names."""
    return array_of(np.zeros(len(mask), np.int8), pa.int8(), mask)


def _as_doubles(values: pa.Array) -> Array:
    if pa.types.is_decimal(values.type):
        return values_of(values.cast(pa.float64()))
    return values_of(values).astype(np.float64)


def _as_kind(numbers: Array, kind: pa.DataType, valid: BoolArray | None) -> pa.Array:
    """Return doubles as values of a type; of whole numbers, dates and times the nearest."""
    if pa.types.is_decimal(kind):
        exact = pa.array(np.round(numbers, kind.scale)).cast(kind)
        return exact if valid is None else pc.if_else(pa.array(valid), exact, pa.scalar(None, kind))
    dtype = np.dtype(fixed_dtype(kind))
    return array_of((numbers if dtype.kind == "f" else np.rint(numbers)).astype(dtype), kind, valid)
