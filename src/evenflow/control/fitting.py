"""From one set of lanes to another: which slots go where when lanes are added or leave, by hand or at a restart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evenflow.model import LaneId, RoutingTable
from evenflow.model.slots import FloatArray


def fitted(table: RoutingTable, lanes: Sequence[LaneId], weights: npt.ArrayLike | None = None) -> RoutingTable:
    """Return a table over `lanes`: slots of lanes that leave go to the least loaded, new lanes get their share.

    No other slot moves. `weights` are the loads of the slots; all the same if not given, or if none has any.
    """
    load: FloatArray = np.ones(table.slots) if weights is None else np.asarray(weights, dtype=np.float64)
    load = load if load.sum() > 0 else np.ones(table.slots)
    load = load + load.mean() * 1e-6  # slots without load are dealt out too
    kept = tuple(sorted(lanes))
    if kept == table.lanes:
        return table
    owners = table.owners.copy()
    sums = {lane: float(load[owners == lane].sum()) for lane in kept}
    homeless = np.flatnonzero(~np.isin(owners, kept))
    for slot in homeless[np.argsort(-load[homeless], kind="stable")].tolist():
        owners[slot] = min(sums, key=lambda lane: (sums[lane], lane))
        sums[int(owners[slot])] += load[slot]
    share = load.sum() / len(kept)
    for lane in kept:
        while lane not in table.lanes and (slot := _given(owners, load, sums, share, lane)) is not None:
            sums[int(owners[slot])] -= load[slot]
            sums[lane] += load[slot]
            owners[slot] = lane
    return RoutingTable(owners, kept, table.version + 1)


def _given(
    owners: npt.NDArray[np.int64], load: FloatArray, sums: dict[LaneId, float], share: float, lane: LaneId
) -> int | None:
    """Return the slot that the most loaded lane gives to a new one next, the largest that fits; None if none does."""
    giver = max(sums, key=lambda other: (sums[other], -other))
    slots = np.flatnonzero(owners == giver)
    fits = slots[load[slots] <= share - sums[lane] + 1e-9]
    if giver == lane or slots.size < 2 or not fits.size:  # noqa: PLR2004 - a lane's only slot stays
        return None
    return int(fits[np.argmax(load[fits])])
