"""GZ-E9: the paper's definitions against the library's formulas, value by value."""

from __future__ import annotations

import numpy as np

from evenflow.model import RoutingTable
from evenflow.model.balance import moved_state, variance
from evenflow.model.slots import IntArray
from evenflow.policies.static import Static
from papers.experiment import Check, Experiment, Outcome, Settings
from papers.guo_zhou.histograms import run_policy
from papers.guo_zhou.rules import E9 as RULE
from papers.guo_zhou.rules import FORMULA, WORKED_EXAMPLE


def run_e9(settings: Settings) -> Outcome:
    """Write each equation out with its sums and matrices, on random input, and compare."""
    cases = 20 if settings.quick else 200
    random = np.random.default_rng(settings.seed)
    off: dict[str, float] = {"variance": 0.0, "moved": 0.0, "overall": 0.0}
    for _ in range(cases):
        slots, lanes = int(random.integers(1, 60)), int(random.integers(1, 12))
        before, after = (RoutingTable(random.integers(0, lanes, slots), tuple(range(lanes))) for _ in range(2))
        rows = random.integers(0, 1000, (5, slots))
        written = [_equation_1(row.tolist(), before) for row in rows]
        ours = [variance(before.sum_by_lane(row)) for row in rows]
        off["variance"] = max([off["variance"], *map(_apart, ours, written)])
        off["moved"] = max(
            off["moved"], _apart(moved_state(before, after, rows[0]), _equation_2(rows[0], before, after))
        )
        overall = float(run_policy(Static(), rows, before, 1).variance.sum())
        off["overall"] = max(off["overall"], _apart(overall, sum(written[1:])))
    checks = (
        _worked_example(),
        _exact("eq. 1: var(L) of A^T Y, divisor n", off["variance"], cases),
        _exact("eq. 2: psi(F1, F2) = x . d", off["moved"], cases),
        _exact("overall imbalance: sum of var(L_j) over the windows", off["overall"], cases),
    )
    return Outcome(checks, data={"cases": cases, "largest_relative_difference": off}, seeds=(settings.seed,))


def _equation_1(histogram: list[int], table: RoutingTable) -> float:
    """Return var(L) literally: A from the table, L = A^T Y, and the sum of squares over n."""
    assignment = np.array([[float(owner == lane) for lane in table.lanes] for owner in table.owners.tolist()])
    loads = (assignment.T @ np.array(histogram, dtype=np.float64)).tolist()
    average = sum(histogram) / len(loads)
    return float(sum((load - average) ** 2 for load in loads) / len(loads))


def _equation_2(state: IntArray, before: RoutingTable, after: RoutingTable) -> float:
    """Return psi literally: the sum of x_i d_i."""
    changed = [float(one != other) for one, other in zip(before.owners.tolist(), after.owners.tolist(), strict=True)]
    return float(sum(x * d for x, d in zip(changed, state.tolist(), strict=True)))


def _worked_example() -> Check:
    """Four substreams of 1, 2, 3 and 6 on two lanes: L = (4, 8) and var = 4; moving the third gives (1, 11) and 25."""
    load = [1, 2, 3, 6]
    before = RoutingTable(np.array([0, 1, 0, 1]), (0, 1))
    after = RoutingTable(np.array([0, 1, 1, 1]), (0, 1))
    ours = [
        variance(before.sum_by_lane(load)),
        variance(after.sum_by_lane(load)),
        moved_state(before, after, load),
        moved_state(before, before, [0, 0, 0, 0]),
    ]
    return WORKED_EXAMPLE.check(
        (ours,), "4, 25, 3, 0 (by hand)", ", ".join(f"{value:g}" for value in ours), "a formula is wrong"
    )


def _exact(what: str, off: float, cases: int) -> Check:
    return FORMULA.check(
        (off,), "the formula", f"{cases} random cases, at most {off:.1g} apart", "a formula is wrong", what
    )


def _apart(ours: float, theirs: float) -> float:
    return abs(ours - theirs) / max(1.0, abs(theirs))


E9 = Experiment("GZ-E9", "eq. 1 and 2", "The definitions: variance, state movement, overall imbalance", RULE, run_e9)
