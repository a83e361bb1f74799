from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import InputError, PolicyError
from evenflow.model import LoadView, RoutingTable, SlotLoads, window_of
from evenflow.model.balance import variance
from evenflow.model.slots import FloatArray, IntArray
from evenflow.policies.base import proposal_of
from evenflow.policies.clb import MAX_SLOTS, Clb, ClbMoment, correlation_sets, moment_sets, owners_of_sets
from tests.policies.steady import steady_rounds, steady_view
from tests.strategies import runs, views

EAGER = [Clb(period=1), ClbMoment(period=1)]
BOTH = pytest.mark.parametrize("policy", EAGER, ids=lambda policy: policy.name)


def imbalance(sets: IntArray, series: FloatArray, count: int) -> float:
    """The average of var(L) over the windows of `series`."""
    return float(np.mean([variance(lane_loads) for lane_loads in sums(sets, series, count).T]))


def sums(sets: IntArray, series: FloatArray, count: int) -> FloatArray:
    """N_i: the load series of each set."""
    loads = np.zeros((count, series.shape[1]))
    np.add.at(loads, sets, series)
    return loads


@st.composite
def histories(draw: st.DrawFn) -> FloatArray:
    slots, windows = draw(st.integers(1, 14)), draw(st.integers(1, 6))
    counts = st.integers(0, 4) | st.integers(0, 1000)
    row = st.lists(counts, min_size=windows, max_size=windows)
    return np.array(draw(st.lists(row, min_size=slots, max_size=slots)), dtype=np.float64)


# Algorithm 2


def test_the_pivot_stays_and_what_is_correlated_with_it_leaves() -> None:
    rising, falling, flat = [1, 2, 3, 4], [4, 3, 2, 1], [9, 9, 9, 9]
    series = np.array([rising, falling, rising, flat, rising], dtype=float) * [[1], [1], [5], [1], [1]]
    # omega: slot 2 weighs most; the coefficient, not the covariance, makes slots 0 and 4 leave it
    assert correlation_sets(series, 2, theta=0.5).tolist() == [1, 0, 0, 0, 1]
    # then only 0 and 4 are correlated; the lower number is the pivot
    assert correlation_sets(series, 3, theta=0.5).tolist() == [1, 0, 0, 0, 2]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_threshold_is_a_coefficient_whatever_the_scale(scale: float) -> None:
    series = np.array([[1.0, 2, 3, 4], [4, 1, 2, 5], [1, 1, 1, 2]])
    coefficients = [0.283, 0.775, 0.730]  # of slots 0 and 1, 0 and 2, 1 and 2
    assert np.corrcoef(series)[np.triu_indices(3, 1)] == pytest.approx(coefficients, abs=1e-3)
    assert correlation_sets(series * scale, 2, theta=0.2).tolist() == [1, 0, 1]
    assert correlation_sets(series * scale, 2, theta=0.7).tolist() == [1, 1, 0]
    assert correlation_sets(series * scale, 2, theta=0.75).tolist() == [0, 0, 1]
    assert correlation_sets(series * scale, 2, theta=0.8).tolist() == [1, 0, 1]  # by load


def test_without_correlation_the_heaviest_set_is_cut_longest_first() -> None:
    series = np.repeat([[8.0], [7.0], [6.0], [5.0], [4.0]], 3, axis=1)
    assert correlation_sets(series, 2, theta=0.5).tolist() == [0, 1, 1, 0, 0]  # 17 and 13
    assert correlation_sets(series, 3, theta=0.5).tolist() == [0, 1, 1, 2, 2]  # 8, 13 and 9


@given(histories(), st.integers(1, 6), st.sampled_from([0.0, 0.2, 0.5, 0.9]))
def test_every_slot_once_and_no_set_empty(series: FloatArray, count: int, theta: float) -> None:
    for sets in (correlation_sets(series, count, theta), moment_sets(series, count)):
        assert sets.shape == (len(series),)
        assert len(np.unique(sets)) == min(count, len(series))
        assert sets.min() >= 0
        assert sets.max() < count


# What is to be least (GZ-A18)


@given(histories(), st.integers(1, 5))
def test_the_imbalance_is_the_second_moment_of_the_sets_up_to_a_constant(series: FloatArray, count: int) -> None:
    windows = series.shape[1]
    constant = float(np.sum((series.sum(axis=0) / count) ** 2))
    for seed in range(3):
        sets = np.random.default_rng(seed).integers(0, count, len(series))
        second_moments = float(np.mean(sums(sets, series, count) ** 2, axis=1).sum())
        left = windows * imbalance(sets, series, count)
        assert left == pytest.approx(windows * second_moments / count - constant, rel=1e-9, abs=1e-3)


def test_covariance_is_blind_to_mean_load() -> None:
    series = np.repeat([[10.0], [10.0], [1.0], [1.0]], 5, axis=1)
    good, bad = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    for sets in (good, bad):
        assert np.var(sums(sets, series, 2), axis=1).sum() == 0  # eq. 4 calls both optimal
    assert imbalance(good, series, 2) == 0
    assert imbalance(bad, series, 2) == 81


def test_moments_part_what_is_heavy_at_the_same_time() -> None:
    day, night = [9.0, 1.0], [1.0, 9.0]
    assert moment_sets(np.array([day, day, night, night]), 2).tolist() == [0, 1, 0, 1]


def daily_wave(random: np.random.Generator, slots: int = 100, windows: int = 48) -> FloatArray:
    base, phase = random.uniform(50, 500, slots), random.integers(0, 4, slots) * 6
    hours = np.arange(windows) + phase[:, None]
    return random.poisson(base[:, None] * (1 + 0.8 * np.sin(2 * np.pi * hours / 24))).astype(np.float64)


def longest_first(loads: FloatArray, count: int) -> IntArray:
    sets, totals = np.zeros(len(loads), dtype=np.int64), np.zeros(count)
    for slot in np.argsort(-loads):
        sets[slot] = totals.argmin()
        totals[sets[slot]] += loads[slot]
    return sets


@pytest.mark.parametrize("count", [2, 4, 10])
def test_on_a_daily_wave_moments_win_and_the_papers_cut_is_worse_than_chance(count: int) -> None:
    """The table "Checked" of experiments 3.3, in shape: learnt on one day, measured on the next."""
    found: dict[str, list[float]] = {"moment": [], "lpt": [], "random": [], "clb": []}
    for seed in range(5):
        random = np.random.default_rng(seed)
        learnt, measured = np.hsplit(daily_wave(random), 2)
        cuts = {
            "moment": moment_sets(learnt, count),
            "lpt": longest_first(learnt.mean(axis=1), count),
            "random": random.integers(0, count, len(learnt)),
            "clb": correlation_sets(learnt, count, theta=0.5),
        }
        for name, sets in cuts.items():
            found[name].append(imbalance(sets, measured, count))
    mean = {name: np.mean(values) for name, values in found.items()}
    assert 10 * mean["moment"] < mean["lpt"] < mean["random"] < mean["clb"] / 2


def test_the_papers_streams_stay_nearly_unbalanced_as_published() -> None:
    """GZ-E1: 600,000 records per window, 10 lanes, balancing every window; published 2.09e10 and 2.08e10."""
    keys = np.arange(1, 101)
    gaussian, zipf = np.exp(-(((keys - 50.5) / 15) ** 2) / 2), 1 / keys
    spreads = []
    for shares in (gaussian, zipf):
        random = np.random.default_rng(1)
        series = random.poisson(600_000 * shares / shares.sum(), (144, 100)).T.astype(np.float64)
        found = []
        for now in range(24, 144):
            sets = correlation_sets(series[:, now - 24 : now], 10, theta=0.5)
            found.append(imbalance(sets, series[:, now : now + 1], 10))
        assert 1.9e10 < np.mean(found) < 2.3e10
        spreads.append(np.std(found))
    assert spreads[0] < spreads[1]  # Zipf fluctuates more (A23)


# Which lane gets which set: GZ-A21


def test_sets_get_the_lanes_that_keep_most_state() -> None:
    table = RoutingTable(np.array([3, 3, 3, 5, 5, 5]), (3, 5))
    sets = np.array([0, 0, 1, 1, 1, 0])
    light = np.array([1, 1, 1, 1, 1, 1])
    assert owners_of_sets(sets, table, light).tolist() == [3, 3, 5, 5, 5, 3]
    one_giant = np.array([1, 1, 9, 1, 1, 9])
    assert owners_of_sets(sets, table, one_giant).tolist() == [5, 5, 3, 3, 3, 5]
    assert owners_of_sets(sets, table, 0 * light).tolist() == [3, 3, 5, 5, 5, 3]  # by number of slots


@given(views(max_windows=1), st.randoms(use_true_random=False), st.sampled_from([0, 1, 1 << 42]))
def test_an_unchanged_partition_stays_whatever_its_labels(view: LoadView, random: Any, scale: int) -> None:
    names = list(range(len(view.table.lanes)))
    random.shuffle(names)
    sets = np.array(names)[view.table.lane_positions()]
    state = view.last.slots.state_bytes * scale
    assert owners_of_sets(sets, view.table, state).tolist() == view.table.owners.tolist()


# As policies


def day_view(windows: int = 30, slots: int = 40, lanes: int = 4, memory: object = None) -> LoadView:
    table = runs(slots, lanes)
    series = daily_wave(np.random.default_rng(7), slots, windows)
    loads = [SlotLoads.of(column, state_bytes=column) for column in series.T]
    return LoadView(tuple(window_of(table, load) for load in loads), table, memory)


def owners_after(view: LoadView, policy: Clb | ClbMoment) -> npt.NDArray[np.int64]:
    return proposal_of(policy, view).table_after(view.table).owners


@pytest.mark.parametrize("kind", [Clb, ClbMoment])
def test_it_acts_at_once_and_then_once_per_period(kind: type[Clb | ClbMoment]) -> None:
    memory, acted = None, []
    for call in range(8):
        proposal = proposal_of(kind(period=3), day_view(memory=memory))
        memory = proposal.memory
        if proposal.moves:
            acted.append(call)
    assert acted == [0, 3, 6]
    assert kind().period == kind().history == 24


@BOTH
def test_only_the_newest_windows_count(policy: Clb | ClbMoment) -> None:
    long, short = day_view(30), day_view(30)
    short = LoadView(short.windows[-24:], short.table)
    assert owners_after(long, policy).tolist() == owners_after(short, policy).tolist()
    other = type(policy)(period=1, history=3)
    assert owners_after(long, other).tolist() != owners_after(short, policy).tolist()


@BOTH
def test_it_does_what_its_cut_says(policy: Clb | ClbMoment) -> None:
    view = day_view(24)
    series = np.stack([window.slots.records for window in view.windows], axis=1).astype(np.float64)
    sets = correlation_sets(series, 4, 0.5) if isinstance(policy, Clb) else moment_sets(series, 4)
    owners = owners_after(view, policy)
    assert len({(int(old), int(new)) for old, new in zip(sets, owners, strict=True)}) == 4


@BOTH
def test_an_idle_stream_is_left_alone_and_balanced_when_it_wakes(policy: Clb | ClbMoment) -> None:
    idle = steady_view(runs(8, 2), SlotLoads.of([0] * 8))
    proposal = proposal_of(policy, idle)
    assert (proposal.moves, proposal.memory) == ((), None)


@BOTH
def test_too_many_slots_are_refused_with_another_policy_to_use(policy: Clb | ClbMoment) -> None:
    slots = MAX_SLOTS + 1
    view = steady_view(runs(slots, 2), SlotLoads.of(np.ones(slots)))
    with pytest.raises(PolicyError, match=r"up to 8,192 slots, got 8,193; use 'even' or 'elb'"):
        proposal_of(policy, view)


@given(view=views(max_windows=4), policy=st.sampled_from(EAGER))
def test_every_lane_is_used_and_the_same_history_moves_nothing_twice(view: LoadView, policy: Clb | ClbMoment) -> None:
    first = proposal_of(policy, view)
    table = first.table_after(view.table)
    if any(window.slots.records.any() for window in view.windows):
        assert len(np.unique(table.owners)) == min(len(table.lanes), table.slots)
    else:
        assert not first.moves
    assert proposal_of(policy, LoadView(view.windows, table, first.memory)).moves == ()


@given(view=views(max_windows=1), policy=st.sampled_from(EAGER))
def test_a_steady_load_comes_to_rest_at_once(view: LoadView, policy: Clb | ClbMoment) -> None:
    loads = SlotLoads.of(view.last.slots.records, state_bytes=view.last.slots.state_bytes)
    rounds = steady_rounds(policy, view.table, loads, rounds=3, history=3)
    assert [proposal.moves for _, proposal in rounds][1:] == [(), ()]


@pytest.mark.parametrize("options", [{"history": 0}, {"period": 0}])
@pytest.mark.parametrize("kind", [Clb, ClbMoment])
def test_empty_spans_are_refused(kind: type[Clb | ClbMoment], options: dict[str, int]) -> None:
    with pytest.raises(InputError, match=kind.name):
        kind(**options)


@pytest.mark.parametrize("theta", [-0.1, 1.0, float("nan")])
def test_a_threshold_that_is_no_coefficient_is_refused(theta: float) -> None:
    with pytest.raises(InputError, match="theta"):
        Clb(theta=theta)
