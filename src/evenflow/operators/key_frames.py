"""The rows of each key as a pandas frame of its own, and keys as users' functions get them: as Spark converts them.

Spark converts key by key: a column of integers has nulls, and so floats, only for a key that has some. Converting a
thousand keys together is a thousand times cheaper, so keys go together whose nulls are in the same columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.frames import Frames
from evenflow.operators.key_groups import Key

if TYPE_CHECKING:
    import pandas as pd


def frames_by_key(frames: Frames, rows: pa.Table, starts: Sequence[int]) -> Iterator[pd.DataFrame]:
    """Yield the rows of each key; they are sorted by key, and those of a key begin at each of `starts`."""
    if not len(starts):
        return
    patterns = _null_patterns(rows, starts)
    counts = np.diff(starts, append=rows.num_rows)
    groups = [_frames_of(frames, rows, patterns == each, counts) for each in range(int(patterns.max()) + 1)]
    for pattern in patterns.tolist():
        yield next(groups[pattern])


def key_values(frames: Frames, rows: pa.Table, keys: Sequence[str]) -> list[Key]:
    """Return the key of each row as a tuple of values as Spark hands them over: a null integer is NaN, for instance."""
    columns = []
    for key in keys:
        column = rows.select([key]).combine_chunks()
        nulls = column[key].is_null().to_numpy()
        values = np.empty(len(column), object)
        for mask in (nulls, ~nulls):
            if mask.any():
                series = frames.alone(column.filter(pa.array(mask)))[key]
                values[mask] = _listed(series)
        columns.append(values.tolist())
    return list(zip(*columns, strict=True))


def _listed(series: pd.Series) -> Any:
    """Return the values of a column one by one, as `series[i]` gives them; numpy would make its own of lists."""
    listed = np.empty(len(series), object)
    for at, value in enumerate(series.array):
        listed[at] = value
    return listed


def _null_patterns(rows: pa.Table, starts: Sequence[int]) -> IntArray:
    """Return a number per key: keys of one number have nulls in the same of those columns where it matters."""
    patterns: IntArray = np.zeros(len(starts), np.int64)
    for column in rows.columns:
        if column.null_count and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
            has_nulls = np.logical_or.reduceat(column.is_null().to_numpy(), starts)
            patterns = np.unique(2 * patterns + has_nulls, return_inverse=True)[1].astype(np.int64)
    return patterns


def _frames_of(frames: Frames, rows: pa.Table, chosen: BoolArray, counts: IntArray) -> Iterator[pd.DataFrame]:
    """Yield the frames of some keys, all converted at once. Iterating a groupby is the fastest way to cut a frame."""
    if not chosen.all():
        rows = rows.filter(pa.array(np.repeat(chosen, counts)))
    mine = counts[chosen]
    whole = frames.alone(rows)
    for _, frame in whole.groupby(np.repeat(np.arange(len(mine)), mine), sort=False):
        frame.index = _numbered(len(frame))
        yield frame


@cache
def _numbered(rows: int) -> pd.RangeIndex:
    import pandas as pd  # who has frames has it

    return pd.RangeIndex(rows)
