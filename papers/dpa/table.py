"""Table 1: S without balancing, with one round, and the difference (DP-E1, E2, E3); as small quick as in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from evenflow.plot.picture import Panel, Picture, Series
from papers.dpa import rules
from papers.dpa.protocol.forwarding import DpaOptions
from papers.dpa.rules import FIRM_CELL, FREE_CELL
from papers.dpa.workloads import METHODS, ORDERS, WORKLOADS, count_letters
from papers.experiment import Check, Experiment, Outcome, Settings

Cells: TypeAlias = dict[tuple[str, str], tuple[float, ...]]
"""For each method and workload the values of S that can come out, rounded as in the paper."""

PUBLISHED_NONE = {
    "halving": (0.00, 0.00, 1.00, 0.80, 0.20),
    "doubling": (1.00, 0.00, 1.00, 0.49, 0.55),
}
PUBLISHED_ONE = {
    "halving": (0.08, 0.00, 1.00, 0.52, 0.20),
    "doubling": (0.20, 0.08, 0.75, 0.11, 0.12),
}
FIRM = (
    ("doubling", "WL1"),
    ("halving", "WL2"),
    ("doubling", "WL2"),
    ("halving", "WL3"),
    ("doubling", "WL3"),
    ("halving", "WL4"),
)
"""Cells whose value does not depend on the order of ties: they must be exact."""
_WL5_DOUBLING = (
    "0.55 needs a reducer with 66 items, which letters repeated 4 times cannot give: the paper's WL5 was another one"
)
_FREE_TIES = "the order of reducers that are ready at the same instant is not published; a value next to it is reached"
_WL5_HALVING = "one reducer ends with 41 items in half of the orders, the paper's with 40: one item apart"


def without_balancing() -> Cells:
    """Return S of every cell without balancing; ties cannot matter."""
    return {
        (method, name): (round(count_letters(items, method, {"rounds_total": 0}).skew, 2),)
        for method in METHODS
        for name, items in WORKLOADS.items()
    }


def with_one_round() -> Cells:
    """Return all values that one round can give: over all orders of ties, one round per reducer or in all (DP-A10)."""
    cells: Cells = {}
    for method in METHODS:
        for name, items in WORKLOADS.items():
            values = {
                round(count_letters(items, method, {limit: 1}, DpaOptions(ties=ties)).skew, 2)
                for limit in ("rounds_per_lane", "rounds_total")
                for ties in ORDERS
            }
            cells[method, name] = tuple(sorted(values))
    return cells


def _e1(settings: Settings) -> Outcome:
    cells = without_balancing()
    checks = tuple(
        _check(cells, method, name, PUBLISHED_NONE[method][at], firm=True)
        for method in METHODS
        for at, name in enumerate(WORKLOADS)
    )
    return Outcome(
        checks, _picture("no balancing", cells, PUBLISHED_NONE), {"S": _plain(cells)}, seeds=(settings.seed,)
    )


def _e2(settings: Settings) -> Outcome:
    cells = with_one_round()
    checks = tuple(
        _check(cells, method, name, PUBLISHED_ONE[method][at], firm=(method, name) in FIRM)
        for method in METHODS
        for at, name in enumerate(WORKLOADS)
    )
    return Outcome(checks, _picture("one round", cells, PUBLISHED_ONE), {"S": _plain(cells)}, seeds=(settings.seed,))


def _e3(settings: Settings) -> Outcome:
    none, one = without_balancing(), with_one_round()
    deltas: Cells = {
        cell: tuple(sorted(round(none[cell][0] - value, 2) for value in values)) for cell, values in one.items()
    }
    published = {
        method: tuple(round(a - b, 2) for a, b in zip(PUBLISHED_NONE[method], PUBLISHED_ONE[method], strict=True))
        for method in METHODS
    }
    checks = tuple(
        _check(deltas, method, name, published[method][at], firm=(method, name) in FIRM)
        for method in METHODS
        for at, name in enumerate(WORKLOADS)
    )
    return Outcome(checks, _picture("difference", deltas, published), {"delta": _plain(deltas)}, seeds=(settings.seed,))


def _check(cells: Cells, method: str, name: str, published: float, *, firm: bool) -> Check:
    values = cells[method, name]
    why = {("doubling", "WL5"): _WL5_DOUBLING, ("halving", "WL5"): _WL5_HALVING}.get((method, name), _FREE_TIES)
    return (FIRM_CELL if firm else FREE_CELL).check(
        (values, published),
        f"{published:.2f}",
        " or ".join(f"{value:.2f}" for value in values),
        why,
        f"{name} {method}",
    )


def _plain(cells: Cells) -> dict[str, list[float]]:
    return {f"{name} {method}": list(values) for (method, name), values in cells.items()}


def _picture(title: str, cells: Cells, published: Mapping[str, tuple[float, ...]]) -> Picture:
    """Draw published and reachable values; the bar is the reachable value that is nearest to the published one."""
    names = list(WORKLOADS)
    panels = []
    for method in METHODS:
        reached = [cells[method, name] for name in names]
        nearest = [
            min(values, key=lambda value: abs(value - wanted))
            for values, wanted in zip(reached, published[method], strict=True)
        ]
        low, high = [values[0] for values in reached], [values[-1] for values in reached]
        series = (
            Series("published", names, published[method], "bars"),
            Series("ours, and what other ties give", names, nearest, "bars", low, high),
        )
        panels.append(Panel(f"{title}, {method}", "workload", "S", series))
    return Picture(panels)


E1 = Experiment("DP-E1", "Table 1, no LB", "S without balancing", rules.E1, _e1)
E2 = Experiment("DP-E2", "Table 1, with LB", "S with one round of balancing", rules.E2, _e2)
E3 = Experiment("DP-E3", "Table 1, delta", "What one round changes", rules.E3, _e3)
