"""The tuple level: queues by hand, against a plain loop, and with tuples held back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import InputError
from evenflow.policies.choices import candidates
from papers.guo_zhou.tuples import PauseCost, held_back, served_at, two_choices


def test_a_queue_by_hand() -> None:
    done, free = served_at(np.array([0.0, 0.1, 0.2, 5.0]), np.array([0, 0, 1, 0]), np.array([0.5, 0.0, 9.0]), 1.0)
    assert done == pytest.approx([1.5, 2.5, 1.2, 6.0])
    assert free == pytest.approx([6.0, 1.2, 9.0])


@given(st.data())
def test_queues_equal_a_loop_over_all_tuples(data: st.DataObject) -> None:
    lanes = data.draw(st.integers(1, 4))
    count = data.draw(st.integers(0, 30))
    ready = np.sort(data.draw(st.lists(st.floats(0, 10), min_size=count, max_size=count)))
    lane = np.array(data.draw(st.lists(st.integers(0, lanes - 1), min_size=count, max_size=count)), dtype=np.int64)
    free_at = np.array(data.draw(st.lists(st.floats(0, 5), min_size=lanes, max_size=lanes)))
    done, free = served_at(np.array(ready), lane, free_at, 0.25)
    expected = free_at.copy()
    for at in range(count):
        expected[lane[at]] = max(expected[lane[at]], ready[at]) + 0.25
        assert done[at] == pytest.approx(expected[lane[at]])
    assert free == pytest.approx(expected)


def test_each_tuple_needs_a_lane() -> None:
    with pytest.raises(InputError, match="2 tuples, 1 lanes"):
        served_at(np.array([0.0, 1.0]), np.array([0]), np.zeros(1), 1.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.booleans()), min_size=1, max_size=30), st.floats(0, 10))
def test_what_is_held_back_is_replayed_in_order(tuples: list[tuple[float, bool]], until: float) -> None:
    due = np.sort([moment for moment, _ in tuples])
    held = np.array([flag for _, flag in tuples])
    ready, order = held_back(due, held, until)
    assert (ready >= due).all()
    assert (ready[held] >= until).all()
    assert (ready[~held] == due[~held]).all()
    assert sorted(order.tolist()) == list(range(len(tuples)))  # nothing lost, nothing twice
    assert (np.diff(ready[order]) >= 0).all()
    replayed = order[held[order]]
    assert (np.diff(replayed) > 0).all() or np.unique(due).size < due.size


def test_moving_nothing_takes_no_time() -> None:
    cost = PauseCost(base_s=0.5, per_state_s=0.01)
    assert cost.seconds(0) == 0
    assert cost.seconds(10) == pytest.approx(0.6)


def test_partial_key_grouping_equals_the_oracle_after_the_merge() -> None:
    random = np.random.default_rng(1)
    shares = 1 / np.arange(1, 51)
    substream = random.choice(50, 20_000, p=shares / shares.sum())
    values = random.integers(0, 100, substream.size)
    pairs = candidates(50, 8, seed=3)
    lane = two_choices(substream, pairs, 8)
    assert ((lane == pairs[substream, 0]) | (lane == pairs[substream, 1])).all()

    partial = np.zeros((8, 50), dtype=np.int64)  # a sum per lane and substream
    np.add.at(partial, (lane, substream), values)
    assert np.array_equal(partial.sum(axis=0), np.bincount(substream, values, 50).astype(np.int64))
    assert (np.count_nonzero(partial, axis=0) <= 2).all()
    one_owner = np.bincount(pairs[substream, 0], minlength=8)
    assert np.bincount(lane, minlength=8).max() < one_owner.max()  # a hot key is split, which no move can do
