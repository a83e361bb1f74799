"""Memory first: which slots leave a lane that holds more state than its budget, in the fewest bytes."""

from __future__ import annotations

import numpy as np

from evenflow.model import LoadView, Move
from evenflow.model.slots import FloatArray


def relieving_moves(view: LoadView, busy_s: FloatArray) -> tuple[Move, ...]:
    """Return moves from lanes over their memory budget to lanes with room, the least busy of those first.

    A slot on disk makes every record of its wait, and no even share of busy time makes up for that. Where there is
    not room enough, as much goes as there is room for.
    """
    size = view.last.slots.state_bytes.astype(np.float64)
    room = view.last.lane_column("memory_budget") - view.lane_sums(size)
    load = view.lane_sums(busy_s)
    home, lanes = view.table.lane_positions(), view.table.lanes
    moves = []
    over = room < 0  # these only give, even when they have room again: no lane sends and receives at once
    for lane in np.flatnonzero(over).tolist():
        left = np.flatnonzero((home == lane) & (size > 0))
        left = left[np.argsort(size[left], kind="stable")]
        while left.size and room[lane] < 0:
            at = min(int(np.searchsorted(size[left], -room[lane])), left.size - 1)  # the smallest that is enough
            slot, left = int(left[at]), np.delete(left, at)
            fits = np.flatnonzero((room >= size[slot]) & ~over)
            if not fits.size:
                continue
            target = int(fits[np.argmin(load[fits])])
            why = f"lane {lanes[lane]} holds {-room[lane]:.0f} bytes more than its memory budget"
            moves.append(Move(slot, lanes[lane], lanes[target], why))
            room[[lane, target]] += size[slot], -size[slot]
            load[[lane, target]] += -busy_s[slot], busy_s[slot]
    return tuple(moves)
