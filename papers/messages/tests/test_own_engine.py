from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.control import Balancer, BalancerOptions
from evenflow.control.journal import PhaseChanged
from evenflow.errors import ProtocolError
from evenflow.lane.messages import Release
from evenflow.migration import Phase
from evenflow.migration.strategies import Sudden, scheduled
from evenflow.model import Move
from evenflow.policies.even import Even
from evenflow.policies.static import Static
from evenflow.sim.engine_run.files import PlayedFiles
from evenflow.sim.engine_run.lane import PlayedLane
from papers.messages.decider import Script
from papers.messages.folds import HISTORY
from papers.messages.own_engine import engine_run
from papers.messages.plant import Plant, Timing
from papers.messages.tests.streams import jittery, one_path_per_key, random_stream, stream_of, table

MOVE = Move(0, 0, 1)


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([None, 0, 2]), st.data())
@settings(max_examples=50)
def test_any_queue_of_moves_keeps_every_promise(seed: int, at_once: bool, lag: int | None, data: st.DataObject) -> None:
    """The real balancer announces a step once the one before it has settled."""
    owners = table().owners.tolist()
    steps = []
    for slot in data.draw(st.lists(st.integers(0, 5), max_size=5)):
        target = data.draw(st.sampled_from([lane for lane in range(3) if lane != owners[slot]]))
        steps.append((Move(slot, owners[slot], target),))
        owners[slot] = target
    balancer = Balancer(table(), Static(), Sudden())
    balancer.queue(scheduled(steps, 1, every=0))
    plant = replace(jittery(seed), fold=HISTORY)
    run = engine_run(one_path_per_key(seed), plant, balancer, at_once=at_once, max_lag=lag)
    run.run()
    phases = [entry.after for entry in balancer.journal.of(PhaseChanged)]
    assert phases.count(Phase.SETTLED) == phases.count(Phase.ANNOUNCED)


def overloaded_lane(at_once: bool, keys: tuple[int, ...] = (0, 3)) -> tuple[float, int]:
    """Slot 0 of a lane that is far behind moves to an idle one; return when its last record is served."""
    stream = stream_of((np.arange(400) * 100).tolist(), np.resize(keys, 400))
    plant = Plant(table(), service=1_000, period=10_000, timing=Timing(transfer=5_000))
    result = engine_run(stream, plant, Script({3: [MOVE]}), at_once=at_once).run()
    return float(result.served_at[stream.slot == 0].max()), result.trace.messages["reference"]


def test_at_once_an_overloaded_lane_need_not_drain_before_it_is_relieved() -> None:
    late, no_references = overloaded_lane(at_once=False)
    soon, references = overloaded_lane(at_once=True)
    assert no_references == 0
    assert references > 0
    assert soon < 0.8 * late


@pytest.mark.parametrize("at_once", [True, False])
def test_only_records_of_moved_slots_wait(at_once: bool) -> None:
    held = (
        engine_run(random_stream(1, records=1_000), jittery(1), Script({2: [MOVE]}), at_once=at_once).run().trace.held
    )
    assert set(held) <= {0}


def test_lag_is_bounded_and_accept_waits() -> None:
    stream = random_stream(2, records=1_000)
    plant = jittery(2, service=2_000)
    free, bound = (engine_run(stream, plant, max_lag=lag) for lag in (None, 1))
    free.run()
    bound.run()
    assert bound.query.waited > 0
    assert bound.query.epoch < free.query.epoch


def test_even_through_the_balancer_evens_out_a_hot_lane() -> None:
    rng = np.random.default_rng(1)
    key = np.where(rng.random(2_000) < 0.7, rng.integers(0, 8, 2_000) * 3, rng.integers(0, 24, 2_000))
    stream = stream_of((np.arange(2_000) * 1_000).tolist(), key, slot_of_key=np.arange(24), slots=24)
    plant = Plant(table(24), service=2_400, period=100_000)
    on = engine_run(stream, plant, Balancer(table(24), Even(), Sudden(), BalancerOptions(window_epochs=2))).run()
    off = engine_run(stream, plant).run()
    assert on.latency_s.max() < 0.7 * off.latency_s.max()


def test_a_lane_that_loads_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlayedFiles, "read", lambda _files, _entry: ({}, 0))
    with pytest.raises(ProtocolError, match="differs from the oracle"):
        overloaded_lane(at_once=True)


def test_a_lane_that_keeps_a_slot_it_has_let_go_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    says = PlayedLane._end_release

    def careless(lane: PlayedLane, message: Release, since_s: float) -> None:
        held = dict(lane.held)
        says(lane, message, since_s)
        lane.held = held

    monkeypatch.setattr(PlayedLane, "_end_release", careless)
    with pytest.raises(ProtocolError, match="differs from the oracle"):
        overloaded_lane(at_once=True)
