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
from evenflow.sim.quantum import Way
from papers.cross.experiment import CROSS, DEFAULT_WAY, _cells, _load_check, _lost_check, judge
from papers.cross.loads import DURATION_S, LANES, LOADS, PER_S, SLOTS, scenario
from papers.cross.misses import (
    Conduct,
    Miss,
    Place,
    Reason,
    _miss,
    conduct,
    find_misses,
    standing,
    standings,
)
from papers.cross.reading import PAGE, _standing, tables, with_tables
from papers.cross.table import (
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
from papers.experiment import Check, Settings, Verdict
from papers.results import Result

ROOT = Path(__file__).parents[3]


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


def test_a_run_without_moves_is_run_once_where_lanes_would_stop_and_once_where_not() -> None:
    task, found, runs = run_task(Task("static", "hot key", 1, all_combinations()))
    assert runs == 2
    assert [way_and_strategy for way_and_strategy, _ in found] == list(all_combinations())
    assert len({measured for _, measured in found}) == 1
    assert task.policy == "static"


def test_a_policy_that_moves_only_where_lanes_go_on_is_run_in_all_those_ways() -> None:
    _, found, runs = run_task(Task("even", "zipf 0.8", 1, all_combinations()))
    assert runs == 12 + 1
    assert {way: measured.moved_mb > 0 for (way, _), measured in found} == {
        way.value: way is not Way.PAUSE_ALL for way in Way
    }


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
    check = _load_check(made_up(p99), "spike")
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
    whole = judge(table, 5, [], (1, 2)).picture
    del table["even", "pause all", "fluid", "spike"]
    part = judge(table, 5, [], (1, 2)).picture
    assert whole is not None
    assert part is not None
    missing = [
        np.isnan(np.array(panel.heat.values)).sum() - np.isnan(np.array(before.heat.values)).sum()
        for panel, before in zip(part.panels, whole.panels, strict=True)
        if panel.heat is not None and before.heat is not None
    ]
    assert missing == [0, 0, 0, 0, 1, 1]


PLACE = Place("pause all", "fluid", "spike")


def worse_at(place: Place, even: float) -> Table:
    """A table in which all policies have a p99 of 1 s everywhere, but `even` at one place."""
    table = made_up({})
    table["even", place.handover, place.strategy, place.load] = [Measured(1.0, 90.0, 2.0, even, 3.0, 0.0)]
    return table


def way_checks(table: Table) -> dict[str, Check]:
    outcome = judge(table, 5, [], (1, 2))
    return {check.what.partition(",")[0]: check for check in outcome.checks if "all strategies" in check.what}


@pytest.mark.parametrize(("even", "verdict"), [(1.05, Verdict.MATCH), (1.5, Verdict.SHAPE), (5.5, Verdict.DIFFERS)])
def test_one_bad_place_among_all_ways_and_strategies_decides_the_verdict(even: float, verdict: Verdict) -> None:
    table = worse_at(PLACE, even)
    checks = way_checks(table)
    assert list(checks) == [way.value for way in Way]
    assert {way: check.verdict for way, check in checks.items()} == {
        way.value: verdict if way is Way.PAUSE_ALL else Verdict.MATCH for way in Way
    }
    assert judge(table, 5, [], (1, 2)).verdict is verdict
    good = 36 if verdict is Verdict.MATCH else 35
    assert f"in {good} of 36; at worst {even:.1f} times" in checks["pause all"].ours
    assert "(pause all, fluid, spike)" in checks["pause all"].ours


def test_places_where_a_policy_was_not_run_are_not_judged() -> None:
    table = {key: cell for key, cell in made_up({}).items() if key[0] == "even" or key[1:3] == ("at once", "paced")}
    assert len(standings(table)) == len(LOADS)
    assert list(way_checks(table)) == ["at once"]


def conducts(p99: list[float], *rest: float) -> list[Conduct]:
    """What a policy did in each seed, the same but for the latency: moves, stopped, longest, first, put off."""
    return [Conduct(value, *rest) for value in p99]


@pytest.mark.parametrize(
    ("ours", "theirs", "reasons"),
    [
        (conducts([9, 9, 9], 4, 0, 3, 6), conducts([1, 9, 9], 4, 0, 3, 6), (Reason.CHANCE,)),
        (conducts([9, 9, 9], 4, 0, 7, 6), conducts([1, 1, 1], 4, 0, 3, 6), (Reason.LONG_PLAN,)),
        (conducts([9, 9, 9], 4, 0, 3, 7), conducts([1, 1, 1], 4, 0, 3, 6), (Reason.LATE,)),
        (conducts([9, 9, 9], 4, 0.8, 3, 6), conducts([1, 1, 1], 4, 0, 3, 6), (Reason.STOPS,)),
        (conducts([9, 9, 9], 4, 0.8, 3, 6, 5), conducts([1, 1, 1], 4, 1.6, 3, 6), (Reason.STOPS, Reason.CAUTION)),
        (conducts([9, 9, 9], 4, 0.8, 3, 6, 5), conducts([1, 1, 1], 4, 0.4, 3, 6), (Reason.STOPS,)),
        (conducts([9, 9, 9], 4, 0, 3, 6), conducts([1, 1, 1], 4, 0, 3, 6), ()),
    ],
)
def test_reasons_follow_from_what_both_policies_did(
    ours: list[Conduct], theirs: list[Conduct], reasons: tuple[Reason, ...]
) -> None:
    table = worse_at(PLACE, 9.0)
    for (policy, *_), cell in table.items():
        if policy == "static":
            cell[:] = [Measured(1.0, 0.0, 2.0, 3.0, 3.0, 0.0)]
    assert _miss(standing(table, PLACE), ours, theirs, table).reasons == reasons


def test_where_static_is_among_the_best_moving_does_not_pay() -> None:
    table = worse_at(PLACE, 9.0)
    same = conducts([9.0], 4, 0, 3, 6), conducts([1.0], 0, 0, 0, float("inf"))
    found = _miss(standing(table, PLACE), *same, table)
    assert Reason.NO_USE in found.reasons
    assert found.as_dict()["other"]["first_s"] is None


def test_a_long_plan_is_a_reason_only_where_one_step_does_better() -> None:
    table = worse_at(PLACE, 9.0)
    table["even", "pause all", "sudden", "spike"] = [Measured(1.0, 90.0, 2.0, 8.0, 3.0, 0.0)]
    found = _miss(standing(table, PLACE), conducts([9.0], 4, 0, 7, 6), conducts([1.0], 4, 0, 3, 6), table)
    assert Reason.LONG_PLAN not in found.reasons


def test_what_was_not_run_is_no_reason() -> None:
    place = Place("at once", "paced", "spike")
    table = {key: cell for key, cell in worse_at(place, 9.0).items() if key[1:3] == ("at once", "paced")}
    table["static", "at once", "paced", "spike"] = [Measured(1.0, 0.0, 2.0, 3.0, 3.0, 0.0)]
    found = _miss(standing(table, place), conducts([9.0], 4, 0, 7, 6), conducts([1.0], 4, 0, 3, 6), table)
    assert found.reasons == ()


def test_what_a_policy_did_is_seen_in_its_run() -> None:
    place = Place("pause all", "fluid", "slow lane")
    seen = conduct("flux-load", place, 1)
    assert seen.p99_s == measure(run("flux-load", Way.PAUSE_ALL, "fluid", "slow lane", 1)).p99_s
    assert seen.first_s > LOADS["slow lane"].since_s
    assert seen.stopped_s >= 0.2 * seen.moves > 0
    assert seen.longest_s >= 3
    still = conduct("static", place, 1)
    assert (still.moves, still.stopped_s, still.longest_s, still.first_s) == (0, 0, 0, float("inf"))
    assert conduct("even", Place("at once", "fluid", "slow lane"), 1).stopped_s == 0
    assert seen.put_off == 0
    assert conduct("even", place, 1).put_off > 0


def test_misses_are_found_where_even_is_not_within_a_tenth_and_only_there() -> None:
    place = Place("pause all", "sudden", "zipf 0.8")
    found = find_misses(worse_at(place, 1.2), [1], 1)
    assert [miss.stands.place for miss in found] == [place]
    assert found[0].seeds == 1
    assert not find_misses(worse_at(place, 1.05), [1], 1)


def test_the_seeds_are_told() -> None:
    assert judge(made_up({}), 5, [], (4, 5)).seeds == (4, 5)


def result(table: Table, misses: list[Miss] | None = None) -> Result:
    return Result.of(CROSS, Settings(), judge(table, 7, misses or [], (1, 2)), 1.0, None)


def test_the_page_has_a_place_for_every_table() -> None:
    page = (ROOT / PAGE).read_text()
    made = result(made_up({"even": 0.25}))
    renewed = with_tables(page, made)
    assert "0.25 s" in renewed
    assert all(load.summary in renewed for load in LOADS.values())
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


def test_the_page_lists_each_miss_with_its_reason_and_every_policy_in_every_combination() -> None:
    table = worse_at(PLACE, 9.0)
    long_plan = _miss(standing(table, PLACE), conducts([9.0], 4, 0, 7, 6), conducts([1.0], 4, 0, 3, 6), table)
    texts = tables(result(table, [long_plan]))
    row = next(line for line in texts["misses"].splitlines() if "pause all, fluid, spike" in line)
    assert "| 9.0 | 4, 4 | 0, 0 | 7, 3 | 6, 6 | 0 of 1 seeds |" in row
    assert row.endswith("moving does not pay, long plan |")
    assert "**long plan** (1 of 1)" in texts["reasons"]
    assert "starts later" not in texts["reasons"]
    assert texts["everything"].count("<details>") == 16
    assert texts["everything"].count("\n| clb-moment | 1 / 3 |") == 16
    assert "**differs**" in texts["verdict"]


def test_several_tasks_fill_the_table() -> None:
    shares: list[float] = []
    tasks = [Task("static", load, seed, (("at once", "paced"),)) for load in ("uniform", "spike") for seed in (1, 2)]
    table, runs = fill(tasks, 1, shares.append)
    assert runs == 4
    assert {key[3]: len(cell) for key, cell in table.items()} == {"uniform": 2, "spike": 2}
    assert shares == [0.25, 0.5, 0.75, 1.0]
