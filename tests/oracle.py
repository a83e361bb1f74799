"""The exact optimum of small packing problems, computed another way: mixed-integer linear programming."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp

Array = npt.NDArray[np.float64]


def least_maximum(work: Array, slowness: Array) -> float:
    """Return the lowest possible load of the most loaded lane."""
    slots, lanes = work.size, slowness.size
    one_lane_each, loads = _rows(work, slowness)
    below_top = np.hstack([loads, -np.ones((lanes, 1))])
    each = np.hstack([one_lane_each, np.zeros((slots, 1))])
    cost = np.append(np.zeros(slots * lanes), 1.0)
    result = milp(
        cost,
        constraints=[LinearConstraint(each, 1, 1), LinearConstraint(below_top, -np.inf, 0)],
        integrality=np.append(np.ones(slots * lanes, dtype=int), 0),
        bounds=Bounds(0, np.append(np.ones(slots * lanes), np.inf)),
        options={"mip_rel_gap": 1e-6},
    )
    assert result.success, result.message
    return float(result.fun)


def fewest_bytes(work: Array, size: Array, home: npt.NDArray[np.int64], slowness: Array, limit: float) -> float:
    """Return the fewest bytes whose moves bring every lane to `limit` or below."""
    slots, lanes = work.size, slowness.size
    one_lane_each, loads = _rows(work, slowness)
    cost = np.repeat(size, lanes)
    cost[np.arange(slots) * lanes + home] = 0.0
    result = milp(
        cost,
        constraints=[LinearConstraint(one_lane_each, 1, 1), LinearConstraint(loads, -np.inf, limit * (1 + 1e-9))],
        integrality=np.ones(slots * lanes, dtype=int),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-6},
    )
    assert result.success, result.message
    return float(result.fun)


def _rows(work: Array, slowness: Array) -> tuple[Array, Array]:
    """Return the constraint rows over x[slot, lane]: their sum per slot, and the load per lane."""
    slots, lanes = work.size, slowness.size
    one_lane_each: Array = np.kron(np.eye(slots), np.ones((1, lanes))).astype(np.float64)
    loads = np.zeros((lanes, slots * lanes))
    for lane in range(lanes):
        loads[lane, np.arange(slots) * lanes + lane] = work * slowness[lane]
    return one_lane_each, loads
