from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import InputError
from evenflow.model import LoadView, RoutingTable, SlotLoads
from evenflow.model.balance import variance
from evenflow.policies.base import proposal_of
from evenflow.policies.choices import (
    PRIME,
    Pkg,
    Uhlb,
    UhlbFresh,
    candidates,
    draw_hashes,
    universal_hash,
)
from tests.policies.steady import steady_rounds, steady_view
from tests.strategies import runs, views

SEEDS = st.integers(0, 5)


def lane_variance(view: LoadView, table: RoutingTable) -> float:
    return variance(table.sum_by_lane(view.last.slots.records))


def skewed_view(slots: int = 100, lanes: int = 10, memory: object = None) -> LoadView:
    records = np.random.default_rng(3).integers(0, 200, slots)
    return steady_view(runs(slots, lanes), SlotLoads.of(records), memory)


# The family (GZ-M8)


@pytest.mark.parametrize("lanes", [2, 3, 5, 10, 16])
def test_two_slots_meet_under_at_most_one_in_n_of_all_functions(lanes: int) -> None:
    """The whole family over a small prime: the bound of 2-universality, counted."""
    prime = 17
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(1, prime), np.arange(prime)))
    places = universal_hash(a, b, slots=prime, lanes=lanes, prime=prime)
    for x, y in combinations(range(prime), 2):
        assert np.count_nonzero(places[:, x] == places[:, y]) <= len(a) / lanes


def test_drawn_functions_keep_the_bound_and_use_all_lanes() -> None:
    places = draw_hashes(slots=30, lanes=8, count=4000, seed=(0, 0))
    met = [np.mean(places[:, x] == places[:, y]) for x, y in combinations(range(30), 2)]
    noise = np.sqrt(1 / 8 * 7 / 8 / 4000)
    assert np.mean(met) == pytest.approx(1 / 8, abs=noise)
    assert max(met) < 1 / 8 + 5 * noise
    assert np.bincount(places.ravel(), minlength=8) / places.size == pytest.approx(1 / 8, abs=0.01)


def test_products_do_not_overflow() -> None:
    largest = np.array([PRIME - 1])
    places = universal_hash(largest, largest, slots=1 << 20, lanes=1000)
    assert int(places[0, -1]) == ((PRIME - 1) * ((1 << 20) - 1) + PRIME - 1) % PRIME % 1000


# Two choices


@given(st.integers(1, 60), st.integers(2, 9), SEEDS)
def test_the_two_candidates_are_distinct_lanes(slots: int, lanes: int, seed: int) -> None:
    pairs = candidates(slots, lanes, seed)
    assert pairs.shape == (slots, 2)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert pairs.min() >= 0
    assert pairs.max() < lanes


def test_any_lane_is_as_likely_a_second_candidate() -> None:
    pairs = np.concatenate([candidates(200, 5, seed) for seed in range(100)])
    counts = np.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25).reshape(5, 5)
    assert counts[~np.eye(5, dtype=bool)] == pytest.approx(1000, rel=0.2)


def test_the_heaviest_choose_first_and_the_less_loaded_candidate_is_taken() -> None:
    # with two lanes both are candidates: longest first, and in a tie the owner stays
    view = steady_view(RoutingTable(np.array([0, 0, 0, 0, 1]), (0, 1)), SlotLoads.of([5, 9, 4, 0, 0]))
    proposal = proposal_of(Pkg(), view)
    assert [str(move) for move in proposal.moves] == ["slot 0: lane 0 -> lane 1", "slot 2: lane 0 -> lane 1"]
    mirrored = steady_view(RoutingTable(np.array([1, 1, 1, 1, 0]), (0, 1)), SlotLoads.of([5, 9, 4, 0, 0]))
    assert [move.slot for move in proposal_of(Pkg(), mirrored).moves] == [0, 2]


def test_one_lane_leaves_no_choice() -> None:
    view = steady_view(runs(4, 1), SlotLoads.of([5, 9, 4, 0]))
    assert proposal_of(Pkg(), view).moves == ()


def test_two_choices_balance_better_than_one() -> None:
    view = skewed_view()
    two = lane_variance(view, proposal_of(Pkg(), view).table_after(view.table))
    one = [lane_variance(view, RoutingTable(row, view.table.lanes)) for row in draw_hashes(100, 10, 50, (0,))]
    assert two < min(one)


@given(views(min_lanes=2), SEEDS)
def test_loaded_slots_live_on_a_candidate_and_idle_ones_stay(view: LoadView, seed: int) -> None:
    table = proposal_of(Pkg(seed), view).table_after(view.table)
    allowed = np.array(view.table.lanes)[candidates(view.table.slots, len(view.table.lanes), seed)]
    for slot, records in enumerate(view.last.slots.records):
        home = allowed[slot] if records else view.table.owners[slot : slot + 1]
        assert table.owners[slot] in home


@given(views(max_windows=1), SEEDS)
def test_two_choices_come_to_rest_at_once(view: LoadView, seed: int) -> None:
    loads = SlotLoads.of(view.last.slots.records)
    rounds = steady_rounds(Pkg(seed), view.table, loads, rounds=3)
    assert [proposal.moves for _, proposal in rounds][1:] == [(), ()]


# Universal hashing, the best of some


@given(views(max_windows=1), SEEDS, st.sampled_from([0.0, 0.05, 0.5]))
def test_every_function_taken_is_better_and_the_first_refusal_is_final(
    view: LoadView, seed: int, min_gain: float
) -> None:
    loads = SlotLoads.of(view.last.slots.records)
    rounds = list(steady_rounds(Uhlb(seed=seed, min_gain=min_gain), view.table, loads, rounds=12))
    spreads = [lane_variance(view, table) for table, _ in rounds]
    stopped = [not proposal.moves for _, proposal in rounds]
    assert stopped[-1]
    assert stopped == sorted(stopped)
    for (before, after), stop in zip(pairwise(spreads), stopped, strict=False):
        assert (after == before) if stop else (after < before and after <= (1 - min_gain) * before)


def test_the_best_function_is_taken() -> None:
    view = skewed_view()
    drawn = draw_hashes(100, 10, 16, (0, 0))
    proposal = proposal_of(Uhlb(), view)
    least = min(lane_variance(view, RoutingTable(places, view.table.lanes)) for places in drawn)
    assert lane_variance(view, proposal.table_after(view.table)) == least
    assert proposal.memory == 1
    assert proposal_of(Uhlb(seed=1), view).moves != proposal.moves
    assert proposal_of(Uhlb(), view) == proposal  # nothing but the view and the seed


def test_a_small_gain_is_not_worth_it() -> None:
    view = skewed_view()
    assert proposal_of(Uhlb(min_gain=0.0), view).moves
    refused = proposal_of(Uhlb(min_gain=1.0), view)
    assert (refused.moves, refused.memory) == ((), 0)


# Universal hashing, a fresh function every time (GZ-A32)


def test_a_fresh_function_moves_nine_in_ten_of_ten_lanes_and_never_stops() -> None:
    assert "never stops" in UhlbFresh.summary
    loads = SlotLoads.of(np.ones(1000))
    shares = [
        len(proposal.moves) / 1000 for _, proposal in steady_rounds(UhlbFresh(), runs(1000, 10), loads, rounds=20)
    ]
    assert np.mean(shares) == pytest.approx(0.9, abs=0.02)
    assert min(shares) > 0.7


@given(views(), SEEDS)
def test_fresh_functions_give_valid_answers_and_count_the_calls(view: LoadView, seed: int) -> None:
    proposal = proposal_of(UhlbFresh(seed), view)
    assert proposal.memory == 1
    assert proposal_of(UhlbFresh(seed), view) == proposal


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Pkg, {"seed": -1}),
        (UhlbFresh, {"seed": -1}),
        (Uhlb, {"seed": -1}),
        (Uhlb, {"draws": 0}),
        (Uhlb, {"min_gain": 1.1}),
        (Uhlb, {"min_gain": float("nan")}),
    ],
)
def test_impossible_options_are_refused(kind: type[Any], options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=kind.name):
        kind(**options)
