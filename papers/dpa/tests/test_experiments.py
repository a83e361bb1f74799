from __future__ import annotations

from collections import Counter

import pytest

from evenflow.model.balance import skew
from papers.dpa import EXPERIMENTS
from papers.dpa.protocol.forwarding import DpaOptions
from papers.dpa.protocol.staged import STAGED
from papers.dpa.protocol.state_forwarding import SIMPLE, STATE_FORWARDING
from papers.dpa.rules import FIRM_CELL, FREE_CELL
from papers.dpa.table import FIRM, PUBLISHED_ONE, with_one_round, without_balancing
from papers.dpa.workloads import ORDERS, WORKLOADS, count_letters
from papers.experiment import Settings, Verdict

ONE = {"rounds_per_lane": 1}


def test_the_workloads_have_100_items_and_differ_in_their_skew() -> None:
    assert {len(items) for items in WORKLOADS.values()} == {100}
    assert Counter(WORKLOADS["WL4"])["o"] == 20
    assert len(set(WORKLOADS["WL5"])) == 25


@pytest.mark.parametrize(
    ("workload", "method", "counts"),
    [
        ("WL1", "halving", [19, 25, 25, 31]),
        ("WL1", "doubling", [40, 20, 40, 0]),
        ("WL2", "doubling", [25, 25, 19, 31]),
        ("WL3", "doubling", [81, 0, 19, 0]),
        ("WL4", "halving", [6, 64, 16, 14]),
        ("WL4", "doubling", [12, 24, 31, 33]),
        ("WL5", "doubling", [34, 18, 28, 20]),
    ],
)
def test_items_of_each_reducer_after_one_round(workload: str, method: str, counts: list[int]) -> None:
    assert count_letters(WORKLOADS[workload], method, ONE).counts.tolist() == counts


@pytest.mark.parametrize(("method", "workload"), FIRM)
def test_e2_firm_cells_are_exact_in_every_order_of_ties(method: str, workload: str) -> None:
    published = PUBLISHED_ONE[method][list(WORKLOADS).index(workload)]
    values = {
        round(count_letters(WORKLOADS[workload], method, ONE, DpaOptions(ties=ties)).skew, 2) for ties in ORDERS[::3]
    }
    assert values == {published}


@pytest.mark.parametrize(
    ("values", "published", "firm", "verdict"),
    [
        ((0.2,), 0.2, True, Verdict.MATCH),
        ((0.2, 0.3), 0.2, True, Verdict.SHAPE),
        ((0.2, 0.3), 0.3, False, Verdict.MATCH),
        ((0.2, 0.3), 0.35, False, Verdict.SHAPE),
        ((0.2, 0.3), 0.36, False, Verdict.DIFFERS),
    ],
)
def test_the_rule_of_a_cell_can_fail(values: tuple[float, ...], published: float, firm: bool, verdict: Verdict) -> None:
    assert (FIRM_CELL if firm else FREE_CELL).verdict(values, published) is verdict


def test_m10_s_by_hand() -> None:
    run = count_letters(WORKLOADS["WL4"], "halving", ONE)
    assert run.skew == skew([6, 64, 16, 14]) == (64 - 25) / (100 - 25)


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_m11_a_reducer_is_relieved_as_often_as_allowed_and_no_more(limit: int) -> None:
    """WL3 calls for relief all the time: every round that is allowed is used."""
    run = count_letters(WORKLOADS["WL3"], "doubling", {"rounds_total": limit})
    assert run.rounds == limit


@pytest.mark.parametrize("variant", [STATE_FORWARDING, SIMPLE, STAGED], ids=lambda variant: variant.name)
@pytest.mark.parametrize("workload", ["WL1", "WL3", "WL4"])
def test_f2_f3_f4_the_alternatives_of_section_7_count_right_without_a_merge(workload: str, variant: object) -> None:
    run = count_letters(WORKLOADS[workload], "doubling", ONE, variant=variant)  # type: ignore[arg-type]
    assert run.rounds > 0
    counted = {run.names[key]: state for key, state in run.result.state.items()}
    assert counted == dict(Counter(WORKLOADS[workload]))


def test_a17_one_hot_key_stays_one_key_wherever_it_lives() -> None:
    run = count_letters(WORKLOADS["WL3"], "doubling", {"rounds_per_lane": 5})
    assert run.skew < 0.3, "S says that the load is shared"
    assert run.wall_s > 19, "but 100 items of 0.2 s are served one after the other"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.id)
def test_quick_runs_come_out_as_recorded(experiment: object) -> None:
    recorded = {
        "DP-E1": Verdict.SHAPE,
        "DP-E2": Verdict.SHAPE,
        "DP-E3": Verdict.SHAPE,
        "DP-E4": Verdict.SHAPE,
        "DP-E5": Verdict.SHAPE,
        "DP-E6": Verdict.MATCH,
        "DP-E7": Verdict.MATCH,
        "DP-E8": Verdict.MATCH,
    }
    outcome = experiment.run(Settings(quick=True))  # type: ignore[attr-defined]
    assert outcome.seeds == (1,)
    assert outcome.verdict is recorded[experiment.id]  # type: ignore[attr-defined]
    assert all(check.why for check in outcome.checks if check.verdict is not Verdict.MATCH)


def test_18_of_20_cells_of_table_1_match() -> None:
    none, one = without_balancing(), with_one_round()
    exact = [cell for cell in one if cell != ("halving", "WL5")]
    assert none["doubling", "WL5"] == (0.52,)
    assert one["halving", "WL5"] == (0.15, 0.21)
    for method, workload in exact:
        at = list(WORKLOADS).index(workload)
        assert PUBLISHED_ONE[method][at] in one[method, workload]
