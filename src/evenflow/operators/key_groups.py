"""The rows of an epoch by key, and keys as Python values: for operators that call the user's code key by key."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.model.slots import IntArray

Key = tuple[Any, ...]


class _NaN:
    """Stands for NaN in keys: Spark groups all NaN together, and Python thinks each different."""

    def __repr__(self) -> str:
        return "nan"


_NAN = _NaN()


def plain_value(value: Any) -> Any:
    return math.nan if value is _NAN else value


def identities_of(table: pa.Table, keys: tuple[str, ...]) -> list[Key]:
    """Return the keys of rows, each as a tuple that is equal for equal keys."""
    columns = []
    for key in keys:
        column = table[key].to_pylist()
        if pa.types.is_floating(table[key].type):
            column = [None if value is None else _NAN if math.isnan(value) else value + 0.0 for value in column]
        columns.append(column)
    return list(zip(*columns, strict=True))


def groups_of(rows: pa.Table, keys: tuple[str, ...], slots: IntArray) -> tuple[IntArray, list[int], list[Key]]:
    """Return an order of rows in which those of a key are together, where each key begins, and the keys.

    Slots stay ascending. Keys of a slot come in the order in which they appear, and so do the rows of a key.
    """
    codes = np.zeros(len(slots), np.int64)
    for key in keys:
        column = rows[key].combine_chunks()
        if pa.types.is_floating(column.type):
            column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 is 0.0
        found = pc.dictionary_encode(column, null_encoding="encode")
        found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        both = codes * (len(found.dictionary) + 1) + found.indices.to_numpy()
        codes = np.unique(both, return_inverse=True)[1].astype(np.int64)
    _, first, code = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    order: IntArray = np.argsort(rank[code], kind="stable")
    starts = np.flatnonzero(np.diff(rank[code][order], prepend=-1))
    return order, starts.tolist(), identities_of(rows.select(keys).take(order[starts]), keys)
