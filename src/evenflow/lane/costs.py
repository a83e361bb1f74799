"""What the epochs of a work have cost, unit by unit; time without a core is nobody's cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenflow.lane.folding import Fold
from evenflow.lane.messages import EpochLoad, SlotColumns
from evenflow.model import Epoch
from evenflow.model.slots import FloatArray, IntArray


def loads_of(  # noqa: PLR0913 - all by name
    epochs: Sequence[Epoch], folds: Sequence[Fold], sizes: IntArray, *, busy_s: float, needed_s: float, paced: bool
) -> tuple[EpochLoad, ...]:
    """Say what each unit cost: what its operator measured, or by rows. `sizes` are the bytes of each unit.

    A lane that is `paced` takes as long for a row as it is told, whatever the row is.
    """
    total = sum(int(fold.records.sum()) for fold in folds)
    loads = []
    for epoch in epochs:
        mine = [fold for fold in folds if fold.epoch == epoch]
        rows = sum(int(fold.records.sum()) for fold in mine)
        share = rows / total if total else 1 / len(epochs)
        records, seconds = np.zeros(sizes.size, np.int64), np.zeros(sizes.size)
        weights = _weights(mine, paced=paced)
        for fold, weight in zip(mine, weights, strict=True):
            units = fold.held.stage.units.units
            records[units] = fold.records
            seconds[units] = _seconds(fold, needed_s * share * weight, paced=paced)
        loads.append(
            EpochLoad(epoch, _columns(records, sizes, seconds), rows, busy_s * share, (busy_s - needed_s) * share)
        )
    return tuple(loads)


def _weights(folds: Sequence[Fold], *, paced: bool) -> list[float]:
    """Return each stage's part of the time of an epoch: rows of different stages do not cost the same."""
    parts = [float(fold.records.sum()) if paced else fold.seconds for fold in folds]
    total = sum(parts)
    return [part / total for part in parts] if len(folds) > 1 and total > 0 else [1.0] * len(folds)


def _seconds(fold: Fold, needed_s: float, *, paced: bool) -> FloatArray:
    """Return what each slot of a stage cost in an epoch for which it needed so long."""
    measured = None if fold.folded is None else fold.folded.busy_s
    if measured is not None and not paced:
        return measured
    weights = fold.records if measured is None else measured
    seconds: FloatArray = weights * (needed_s / max(1e-9, weights.sum()))
    return seconds


def _columns(records: IntArray, sizes: IntArray, busy_s: FloatArray) -> SlotColumns:
    """Report every unit with records or state."""
    listed = np.flatnonzero((records > 0) | (sizes > 0))
    return SlotColumns(
        tuple(listed.tolist()),
        tuple(records[listed].tolist()),
        tuple(busy_s[listed].tolist()),
        tuple(sizes[listed].tolist()),
    )
