"""The real engine in virtual time: lanes die and come back, lag is bounded, moving takes what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.control import Balancer, BalancerOptions
from evenflow.errors import InputError, ProtocolError
from evenflow.lane.messages import SlotToLoad
from evenflow.migration import strategy_named
from evenflow.model import Move
from evenflow.policies import policy_named
from evenflow.sim.engine_run import Happenings, run_scenario
from evenflow.sim.engine_run.books import Books
from evenflow.sim.engine_run.files import PlayedFiles
from evenflow.sim.engine_run.operator import SlotState
from evenflow.sim.engine_run.query import PlayedQuery
from evenflow.sim.engine_run.scenario import query_of, refuse_if_lost
from evenflow.sim.quantum import Handover, Loaded, Memory, Network, Scenario, Way, uniform, with_hotspot
from evenflow.sim.quantum.memory import Fixed

LANES, SLOTS = 3, 12
QUIET = Scenario(
    lanes=LANES,
    slots=SLOTS,
    arrivals=uniform(SLOTS, 600.0),
    seconds_per_record=1e-3,
    state_bytes=1e6,
    duration_s=20,
    handover=Handover(Way.AT_ONCE),
    lane_start_s=0.5,
)


def balancer(scenario: Scenario, policy: str = "static", options: BalancerOptions | None = None) -> Balancer:
    return Balancer(scenario.first_table, policy_named(policy), strategy_named("sudden"), options)


def query(
    scenario: Scenario, max_lag: int | None = None, copy_ahead_bytes: int | None = None
) -> tuple[PlayedQuery, Books]:
    options = BalancerOptions(copy_ahead_bytes=copy_ahead_bytes)
    found = query_of(scenario, balancer(scenario, options=options), 1, max_lag)
    found[0].start()
    return found


def finished(played: PlayedQuery) -> None:
    """Let no more epochs come, and all be folded that came; each row must be there, once."""
    played.goes_on = lambda: False
    played.run()
    assert played.records.frontier == played.epoch
    assert sorted(slot for lane in played.lanes.values() for slot in lane.held) == list(range(SLOTS))
    refuse_if_lost(played)


@pytest.mark.parametrize("at_s", [5.0, 5.05, 5.1, 5.4])
def test_a_lane_that_dies_comes_back_and_goes_on_where_its_slots_were(at_s: float) -> None:
    played, _ = query(QUIET)
    played.agenda.at(at_s, lambda: played.kill(1))
    played.run(at_s + 0.4)
    assert sorted(played.lanes) == [0, 2]
    assert played.engine.missing() == [1]
    played.run(10.2)
    assert played.lanes[1].hello.incarnation == 1
    assert played.engine.missing() == []
    finished(played)


def test_what_a_dead_lane_had_in_hand_is_folded_again() -> None:
    played, books = query(QUIET)
    played.run(5.1)
    in_hand = [piece for piece in played.lanes[1].in_hand if piece.epoch == 4]
    assert in_hand
    played.kill(1)
    played.run(8.5)
    again = [piece for piece in books.pieces if piece.epoch == 4 and piece.lane == 1]
    assert sorted((piece.slot, piece.rows) for piece in again) == sorted((piece.slot, piece.rows) for piece in in_hand)
    assert min(piece.since_s for piece in again) > 5.6
    finished(played)


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_through_any_kills_and_moves_each_row_is_folded_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    way = Way.AT_ONCE if rng.random() < 0.5 else Way.AT_TIMESTAMP
    costs = Handover(way, *rng.choice([0.0, 1e-7], 2), *rng.choice([0.0, 1e-2], 2))
    scenario = replace(QUIET, handover=costs, arrivals=uniform(SLOTS, float(rng.choice([300.0, 2_900.0]))))
    played, _ = query(scenario, int(rng.integers(0, 4)), 0 if rng.random() < 0.5 else None)
    played.delay_s = lambda: float(rng.exponential(0.02))
    for _ in range(12):
        played.run(played.now_s + float(rng.exponential(0.8)))
        if rng.random() < 0.4:
            played.kill(int(rng.integers(LANES)))
        owners = played.balancer.table.owners
        moves = [
            Move(slot, int(owners[slot]), int(rng.integers(LANES))) for slot in rng.choice(SLOTS, 3, replace=False)
        ]
        played.balancer.request([move for move in moves if move.source != move.target])
    played.run(played.now_s + 5)
    finished(played)


def test_a_file_that_is_left_out_when_a_slot_is_loaded_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    read = PlayedFiles.read

    def careless(files: PlayedFiles, entry: SlotToLoad) -> tuple[SlotState, int]:
        return read(files, replace_snapshot(entry))

    def replace_snapshot(entry: SlotToLoad) -> SlotToLoad:
        return SlotToLoad(entry.slot, entry.version, None, entry.changes[:-1], entry.prepared)

    monkeypatch.setattr(PlayedFiles, "read", careless)
    played, _ = query(QUIET)
    played.agenda.at(5.1, lambda: played.kill(1))
    played.run(10.0)
    with pytest.raises(ProtocolError, match="rows came"):
        refuse_if_lost(played)


def test_lag_is_bounded_and_an_epoch_that_waits_takes_all_that_has_come() -> None:
    slow = replace(QUIET, speeds=Loaded([0], 0.1, 2.0, 8.0))
    free, _ = query(slow)
    bound, _ = query(slow, max_lag=1)
    lags = []
    for second in range(1, 20):
        free.run(float(second))
        bound.run(float(second))
        lags.append((free.records.lag, bound.records.lag))
    assert max(bounded for _, bounded in lags) <= 2
    assert max(unbounded for unbounded, _ in lags) > 3
    assert bound.waited > 0
    assert bound.epoch < free.epoch
    finished(bound)


def test_moving_takes_what_the_network_lets_through() -> None:
    played, books = query(replace(QUIET, network=Network(point_to_point=1e6)))
    played.run(5.5)
    played.balancer.request([Move(0, 0, 1)])
    played.run(9.5)
    absence = played.engine.absences[0]
    assert 1.0 < absence.until_s - absence.since_s < 1.25  # and until the lane is done with what it has in hand
    assert sum(size for _, size in books.bytes_moved) == 1_000_000


def test_a_slot_that_is_copied_ahead_is_away_for_less() -> None:
    narrow = replace(QUIET, network=Network(point_to_point=1e6))
    away = []
    for copied in (None, 0):
        played, _ = query(narrow, copy_ahead_bytes=copied)
        played.run(5.5)
        played.balancer.request([Move(0, 0, 1)])
        played.run(12.5)
        absence = played.engine.absences[0]
        away.append(absence.until_s - absence.since_s)
        finished(played)
    assert away[1] < 0.2 * away[0]


def test_lanes_that_are_added_get_their_share() -> None:
    timeline = run_scenario(QUIET, balancer(QUIET), happenings=Happenings(lanes_at=((5.0, 1),)))
    assert timeline.lanes.tolist()[0] == 3
    assert timeline.lanes.tolist()[-1] == 4
    assert timeline.busy_s[-1].min() > 0.1


def test_a_slow_lane_is_relieved() -> None:
    slow = replace(
        QUIET, speeds=Loaded([0], 0.25, 5.0), duration_s=60, arrivals=with_hotspot(SLOTS, 1_200, [0, 1], 0.3)
    )
    static, even = (run_scenario(slow, balancer(slow, policy)) for policy in ("static", "even"))
    assert even.backlog[-1].sum() < 0.2 * static.backlog[-1].sum()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"memory": Memory(Fixed(1e9))}, "memory"),
        ({"queue_records": 10.0}, "queue_records"),
        ({"handover": Handover(Way.PAUSE_ALL)}, "pause all"),
    ],
)
def test_what_lanes_do_not_play_is_refused(changes: dict[str, object], text: str) -> None:
    scenario = replace(QUIET, **changes)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=text):
        run_scenario(scenario, balancer(scenario))
