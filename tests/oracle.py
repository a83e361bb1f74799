"""The exact optimum of small packing problems, computed another way: mixed-integer linear programming."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp

from evenflow.policies.packing import Problem

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


def small_problem(seed: int) -> Problem:
    """A random case of at most 4 lanes and 14 slots: even, Zipf, heavy-tailed or integer work; some lanes slow."""
    rng = np.random.default_rng(seed)
    lanes = int(rng.integers(2, 5))
    slots = int(rng.integers(lanes + 2, 15))
    work = [
        rng.uniform(0.1, 1, slots),
        rng.permutation(1 / np.arange(1, slots + 1) ** 1.2),
        rng.lognormal(0, 1, slots),
        rng.integers(1, 20, slots) / 10,
    ][seed % 4]
    size = [
        rng.integers(1, 1 << 20, slots).astype(float),
        np.full(slots, 4096.0),
        work * 1e5 * rng.uniform(0.5, 2, slots),
    ][seed % 3]
    home = rng.integers(0, lanes, slots) if seed % 2 else (rng.random(slots) < 0.3) * rng.integers(0, lanes, slots)
    slowness = np.ones(lanes) if seed % 5 else rng.uniform(1, 3, lanes)
    return Problem(work, size, home, slowness, np.full(lanes, np.inf))
