"""Memory first: which slots leave a lane that holds more state than its budget, in the fewest bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evenflow.model import LoadView, Move
from evenflow.model.slots import FloatArray, IntArray


def relieving_moves(view: LoadView, busy_s: FloatArray) -> tuple[Move, ...]:
    """Return moves from lanes over their memory budget to lanes with room, the least busy of those first.

    A slot on disk makes every record of its wait, and no even share of busy time makes up for that. Where there is
    not room enough, as much goes as there is room for.
    """
    size = view.last.slots.state_bytes.astype(np.float64)
    owner = view.table.lane_positions().copy()
    room = view.last.lane_column("memory_budget") - view.lane_sums(size)
    load = view.lane_sums(busy_s)
    lanes = view.table.lanes
    moves = []
    for lane in np.flatnonzero(room < 0).tolist():
        for slot in _chosen(np.flatnonzero(owner == lane), size, float(-room[lane])):
            fits = np.flatnonzero(room >= size[slot])
            if not fits.size:
                continue
            target = int(fits[np.argmin(load[fits])])
            why = f"lane {lanes[lane]} holds {-room[lane]:.0f} bytes more than its memory budget"
            moves.append(Move(int(slot), lanes[lane], lanes[target], why))
            owner[slot] = target
            for quantity, sign in ((room, -1.0), (load, 1.0)):
                amount = size[slot] if quantity is room else busy_s[slot]
                quantity[target] += sign * amount
                quantity[lane] -= sign * amount
            if room[lane] >= 0:
                break
    return tuple(moves)


def _chosen(slots: IntArray, size: FloatArray, excess: float) -> Iterator[int]:
    """Yield slots to give away: the smallest that is enough, else the largest, and so on."""
    left = slots[np.argsort(size[slots], kind="stable")]
    while left.size and excess > 0:
        at = min(int(np.searchsorted(size[left], excess)), left.size - 1)
        if size[left[at]] <= 0:
            return
        yield int(left[at])
        excess -= size[left[at]]
        left = np.delete(left, at)
