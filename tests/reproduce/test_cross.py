"""The cross table: what is measured, what is run once instead of often, and the tables of the page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from evenflow.errors import InputError
from evenflow.migration import STRATEGIES
from evenflow.model import RoutingTable
from evenflow.policies import POLICIES
from evenflow.reproduce.cross.experiment import CROSS, DEFAULT_WAY, _cells, _even_check, _lost_check, _picture
from evenflow.reproduce.cross.loads import DURATION_S, LANES, LOADS, PER_S, SLOTS, scenario
from evenflow.reproduce.cross.reading import PAGE, _standing, tables, with_tables
from evenflow.reproduce.cross.table import (
    Measured,
    Table,
    Task,
    all_combinations,
    fill,
    full_tasks,
    measure,
    quick_tasks,
    run,
    run_task,
)
from evenflow.reproduce.experiment import Verdict
from evenflow.reproduce.results import Result
from evenflow.sim.quantum import Way

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("load", LOADS)
def test_loads_offer_the_same_volume_and_differ_by_seed_only_where_they_are_random(load: str) -> None:
    table = RoutingTable.even(SLOTS, LANES)
    one, again = (scenario(load, Way.AT_ONCE, table, 3).arrivals for _ in range(2))
    for moment in (0.0, 12.0, DURATION_S - 1):
        assert one.rates(moment).sum() == pytest.approx(PER_S)
        assert np.array_equal(one.rates(moment), again.rates(moment))


def test_every_combination_is_in_the_whole_table() -> None:
    combinations = all_combinations()
    assert len(combinations) == len(Way) * len(STRATEGIES) == 16
    tasks = full_tasks(range(2))
    assert len(tasks) == len(POLICIES) * len(LOADS) * 2
    assert all(task.ways_and_strategies == combinations for task in tasks)
    quick = quick_tasks(range(1), (DEFAULT_WAY, "paced"))
    assert {(task.policy, task.load) for task in quick} == {(task.policy, task.load) for task in tasks}


def test_a_run_without_moves_is_run_once() -> None:
    task, found, runs = run_task(Task("static", "hot key", 1, all_combinations()))
    assert runs == 1
    assert len(found) == 16
    assert len({measured for _, measured in found}) == 1
    assert task.policy == "static"


def test_a_policy_that_moves_is_run_in_each_combination_and_loses_nothing() -> None:
    ways = (("at once", "sudden"), ("forward and merge", "sudden"))
    _, found, runs = run_task(Task("autoflow", "hot key", 1, ways))
    assert runs == 2
    assert all(measured.lost == 0 for _, measured in found)
    assert all(measured.moved_mb > 0 for _, measured in found)
    calm = measure(run("static", Way.AT_ONCE, "sudden", "hot key", 1))
    assert all(measured.p99_s < calm.p99_s / 2 for _, measured in found)
    assert calm.unbalanced_s > 30
    assert calm.moved_mb == 0


def test_ring_policies_start_on_their_ring() -> None:
    assert run("dpa-halving", Way.AT_ONCE, "sudden", "uniform", 1).moves.sum() < SLOTS / 2


def made_up(p99: dict[str, float], loads: Iterable[str] = LOADS) -> Table:
    """A table in which every policy has the p99 given for it, or 1 s."""
    return {
        (policy, way, strategy, load): [
            Measured(1.0, 10.0, 2.0, p99.get(policy, 1.0), 3.0, 0.0),
            Measured(1.2, 20.0, 4.0, p99.get(policy, 1.0), 5.0, 0.0),
        ]
        for policy in POLICIES
        for way, strategy in all_combinations()
        for load in loads
    }


@pytest.mark.parametrize(
    ("p99", "verdict"),
    [
        ({"even": 0.5}, Verdict.MATCH),
        ({"even": 0.01, "elb": 0.001}, Verdict.MATCH),  # both below what the simulator tells apart
        ({"even": 1.5}, Verdict.SHAPE),
        ({"even": 1.5, "elb": 0.1}, Verdict.DIFFERS),
    ],
)
def test_the_verdict_follows_from_the_numbers(p99: dict[str, float], verdict: Verdict) -> None:
    check = _even_check(made_up(p99), "spike")
    assert check.verdict is verdict
    assert bool(check.why) == (verdict is not Verdict.MATCH)


def test_a_lost_record_is_no_match() -> None:
    table = made_up({})
    assert _lost_check(table, 5).verdict is Verdict.MATCH
    table["even", "at once", "paced", "spike"] = [Measured(1.0, 0.0, 0.0, 0.0, 0.0, lost=1.0)]
    assert _lost_check(table, 5).verdict is Verdict.DIFFERS


def test_every_cell_is_kept_with_its_range_and_can_be_drawn() -> None:
    table = made_up({})
    cells = _cells(table)
    assert len(cells) == len(POLICIES) * 16 * len(LOADS)
    assert cells[0]["moved_mb"] == [15.0, 10.0, 20.0]
    assert len(_picture(table).panels) == 4
    del table["even", "pause all", "fluid", "spike"]
    assert np.isnan(np.array(_picture(table).panels[3].heat.values)).sum() == 1  # type: ignore[union-attr]


def result(table: Table) -> Result:
    data = {"cells": _cells(table), "seeds": [1, 2], "runs": 7}
    return Result(
        CROSS.id, CROSS.figure, CROSS.title, CROSS.rule, "sim", False, 1, 1.0, Verdict.MATCH, (), "command", data=data
    )  # fmt: skip


def test_the_page_has_a_place_for_every_table() -> None:
    page = (DOCS / PAGE).read_text()
    made = result(made_up({"even": 0.25}, ["spike"]))
    renewed = with_tables(page, made)
    assert "0.25 s" in renewed
    assert renewed == with_tables(renewed, made)
    assert set(tables(made)) == set(re.findall(r"<!-- begin: (\w+) -->", page))
    with pytest.raises(InputError, match="no place for the table"):
        with_tables("no marks", made)


@pytest.mark.parametrize(
    ("even", "others", "said"),
    [
        ((0.2, 10, 1.1), {"static": (1.0, 0, 1.5), "elb": (0.5, 5, 1.2)}, "none of those who are moves less"),
        (
            (0.4, 90, 1.1),
            {"static": (1.0, 0, 1.5), "elb": (0.2, 5, 1.2)},
            "`elb` has a p99 2.0 times lower: `even` moves",
        ),
        ((0.4, 5, 1.3), {"static": (1.0, 0, 1.5), "elb": (0.2, 90, 1.2)}, "it does not even out what may not last"),
        ((0.4, 5, 1.3), {"static": (1.0, 0, 1.5), "elb": (0.2, 5, 1.2)}, "about the same"),
        ((0.0, 20, 1.0), {"static": (0.0, 0, 1.2)}, "`static` moves 0 MB, `even` 20: no record waits"),
        ((9.0, 20, 2.0), {"static": (9.5, 0, 2.2)}, "no move helps much"),
        ((0.2, 20, 1.0), {"static": (1.0, 0, 1.5), "elb": (0.2, 5, 1.2)}, "it ends more even (max / mean 1.00 against"),
        ((0.2, 20, 1.3), {"static": (1.0, 0, 1.5), "elb": (0.2, 5, 1.2)}, "no gain is seen"),
    ],
)
def test_the_page_says_where_even_stands_and_why(
    even: tuple[float, float, float], others: dict[str, tuple[float, float, float]], said: str
) -> None:
    def cell(policy: str, p99: float, moved: float, imbalance: float) -> dict[str, object]:
        spread = {"p99_s": [p99] * 3, "moved_mb": [moved] * 3, "imbalance": [imbalance] * 3}
        return {"policy": policy, "load": "spike", **spread}

    text = _standing([cell("even", *even), *(cell(policy, *numbers) for policy, numbers in others.items())])
    assert text.startswith("- **spike**: ")
    assert said in text


def test_several_tasks_fill_the_table() -> None:
    shares: list[float] = []
    tasks = [Task("static", load, seed, (("at once", "paced"),)) for load in ("uniform", "spike") for seed in (1, 2)]
    table, runs = fill(tasks, 1, shares.append)
    assert runs == 4
    assert {key[3]: len(cell) for key, cell in table.items()} == {"uniform": 2, "spike": 2}
    assert shares == [0.25, 0.5, 0.75, 1.0]
