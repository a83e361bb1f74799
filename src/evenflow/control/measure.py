"""How even a window is under a table: the busy time the table gives each lane, measured all five ways."""

from __future__ import annotations

import numpy as np

from evenflow.model import Balance, LoadWindow, RoutingTable


def balance_of(window: LoadWindow, table: RoutingTable) -> Balance:
    """Measure the load of `window` as if its slots had been served under `table`.

    Load is busy time, or records where no busy time is known. The utilisation of a lane is its busy time over the
    longest span of the window.
    """
    loads = window.slots
    per_slot = loads.busy_s if loads.busy_s.any() else loads.records
    span = max(lane.window_s for lane in window.lanes)
    busy = table.sum_by_lane(loads.busy_s)
    return Balance.of(table.sum_by_lane(per_slot), np.minimum(1.0, busy / span), table.sum_by_lane(loads.records))
