"""evenflow's own policy: near the exact optimum, at rest on steady loads, honest about what it cannot cure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.control import Ack, Balancer, BalancerOptions, balance_of
from evenflow.errors import InputError
from evenflow.migration import STRATEGIES, Event, strategy_named
from evenflow.model import LaneLoad, LoadView, LoadWindow, MoveCost, RoutingTable, SlotLoads, window_of
from evenflow.model.slots import FloatArray
from evenflow.policies.base import proposal_of
from evenflow.policies.even import Even
from evenflow.policies.packing import Problem, pack, stay
from evenflow.workloads import workload_named
from tests.oracle import fewest_bytes, least_maximum, small_problem
from tests.policies.steady import steady_rounds, steady_view
from tests.strategies import runs, slot_loads, tables, views


def test_close_to_the_exact_optimum_for_few_bytes() -> None:
    above_optimum, times_fewest_bytes = [], []
    for seed in range(60):
        problem = small_problem(seed)
        plan = pack(problem, Even().tolerance)
        above_optimum.append(plan.maximum / least_maximum(problem.work, problem.slowness) - 1)
        fewest = fewest_bytes(problem.work, problem.size, problem.home, problem.slowness, plan.maximum)
        if fewest > 0:
            times_fewest_bytes.append(plan.moved_bytes / fewest)
        else:
            assert plan.moved_bytes == 0, f"seed {seed}: bytes moved for nothing"
    assert np.mean(above_optimum) <= 0.02
    assert max(above_optimum) <= 0.10
    assert np.mean(times_fewest_bytes) <= 1.3


@settings(max_examples=60)
@given(st.data())
def test_comes_to_rest_and_no_table_comes_back(data: st.DataObject) -> None:
    table = data.draw(tables())
    loads = data.draw(slot_loads(table.slots))
    seen, rested = set(), False
    for now, proposal in steady_rounds(Even(), table, loads, rounds=8, history=2):
        assert not (rested and proposal.moves), "it moved again after it had come to rest"
        rested = not proposal.moves
        assert now.owners.tobytes() not in seen or rested
        seen.add(now.owners.tobytes())
    assert rested


def _tables_until_rest(
    strategy: str, table: RoutingTable, busy_s: FloatArray, *, whole_epochs: bool, decisions: int = 40
) -> list[bytes]:
    """The tables that a balancer goes through where all lanes stop for a move, on a load that does not change."""
    options = BalancerOptions(whole_epochs=whole_epochs, move_cost=MoveCost(stops_all=True))
    balancer = Balancer(table, Even(), strategy_named(strategy), options)
    loads = SlotLoads.of(np.round(busy_s * 1e4), busy_s, np.full(table.slots, 10**6))
    passed = [table.owners.tobytes()]
    for epoch in range(decisions):
        moves = balancer.next_epoch(epoch).moves
        for move in moves:
            balancer.acknowledge(Ack(move.slot, epoch, Event.INSTALLED))
        if moves:
            passed.append(balancer.table.owners.tobytes())
        balancer.report_all(replace(window_of(balancer.table, loads), epochs=(epoch, epoch)))
    assert not balancer.planned
    assert not balancer.in_flight
    return passed


@pytest.mark.parametrize("whole_epochs", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_rests_too_where_all_lanes_stop_and_only_a_part_of_a_plan_is_carried_out(
    strategy: str, whole_epochs: bool
) -> None:
    """The first case is one in which slots changed places for ever when a part of any plan was carried out."""
    work = [0.184, 0.199, 0.241, 0.229, 0.266, 0.222, 0.221, 0.241, 0.187, 0.154, 0.213, 0.114]
    cases = [(RoutingTable(np.array([0, 1, 2, 0, 1, 1, 0, 0, 2, 2, 1, 2]), (0, 1, 2)), np.array(work))]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        lanes, slots = int(rng.integers(2, 5)), int(rng.integers(4, 17))
        share = rng.dirichlet(np.full(slots, 2.0)) * rng.uniform(0.5, 0.95) * lanes
        cases.append((RoutingTable(rng.integers(lanes, size=slots), tuple(range(lanes))), share))
    for seed, (table, busy_s) in enumerate(cases, start=-1):
        passed = _tables_until_rest(strategy, table, busy_s, whole_epochs=whole_epochs)
        assert len(set(passed)) == len(passed), f"seed {seed}: a table came back"


@settings(max_examples=60)
@given(views())
def test_never_makes_the_busiest_lane_busier(view: LoadView) -> None:
    proposal = proposal_of(Even(), LoadView(view.windows[-1:], view.table))
    saturated = any(lane.idle_s < 0.05 * lane.window_s for lane in view.last.lanes)
    for_memory = "memory" in proposal.note
    # A saturated lane's queue counts too, busy time alone may then rise.
    if proposal.moves and not saturated and not for_memory:
        before, after = (
            balance_of(view.last, table).max_load for table in (view.table, proposal.table_after(view.table))
        )
        assert after < before


def test_balances_busy_time_not_counts() -> None:
    table = runs(16, 2)
    dear = np.where(table.owners == 0, 0.05, 0.01)
    window = window_of(table, SlotLoads.of(np.full(16, 100), dear, np.full(16, 1000)))
    after = proposal_of(Even(), LoadView((window,), table)).table_after(table)
    assert balance_of(window, after).max_over_mean < 1.05


def test_names_the_slot_that_no_move_can_cure() -> None:
    workload = workload_named("hot-key")
    proposal = proposal_of(Even(), LoadView(workload.windows, workload.table))
    assert proposal.not_curable == (17,)


def test_a_hot_slot_alone_on_its_lane_is_left_alone() -> None:
    loads = SlotLoads.of([900, 30, 30, 40], [0.9, 0.03, 0.03, 0.04], [100] * 4)
    view = steady_view(RoutingTable(np.array([0, 1, 1, 1]), (0, 1)), loads)
    proposal = proposal_of(Even(), view)
    assert proposal.moves == ()
    assert proposal.not_curable == (0,)


@pytest.mark.parametrize(("share", "moves"), [(0.9, False), (0.6, True)])
def test_the_lane_of_a_hot_key_is_cleared_only_if_that_is_worth_it(share: float, moves: bool) -> None:
    """With 90 % of all rows in one slot, 60 slots would leave its lane for 2.7 % of its time; with 60 %, for 14 %."""
    records = np.full(256, 100_000 * (1 - share) / 255)
    records[17] = 100_000 * share
    table = RoutingTable.even(256, 4)
    view = steady_view(table, SlotLoads.of(records, records * 1e-5, np.full(256, 1000)), history=12)
    proposal = proposal_of(Even(), view)
    assert proposal.not_curable == (17,)
    assert {move.source for move in proposal.moves} == ({1} if moves else set())
    assert proposal.note.endswith("no move helps") != moves
    if moves:
        after = balance_of(view.last, proposal.table_after(table))
        assert after.max_load == pytest.approx(share)


def test_refuses_moves_that_do_not_pay() -> None:
    loads = SlotLoads.of([60, 40], [0.6, 0.4], [10**15, 10**15])
    view = steady_view(RoutingTable(np.array([0, 0]), (0, 1)), loads)
    proposal = proposal_of(Even(), view)
    assert proposal.moves == ()
    assert "not worth it" in proposal.note
    cheap = LoadView(view.windows, view.table, move_cost=MoveCost(seconds_per_byte=0.0))
    assert len(proposal_of(Even(), cheap).moves) == 1


def test_takes_the_coarser_plan_when_the_finest_is_too_dear() -> None:
    # Moving slot 1 (light state) wins 0.3 s per window; also swapping the heavy ones would win a little more.
    loads = SlotLoads.of([1] * 4, [0.4, 0.3, 0.2, 0.1], [10**12, 10**3, 10**12, 10**12])
    view = steady_view(RoutingTable(np.zeros(4, dtype=int), (0, 1)), loads)
    moved = [move.slot for move in proposal_of(Even(), view).moves]
    assert moved == [1]


def test_counts_what_waits_on_a_saturated_lane() -> None:
    table = runs(8, 2)
    loads = SlotLoads.of([100] * 8, [0.125] * 8, [100] * 8, pending=[900] * 4 + [0] * 4)
    lanes = (LaneLoad(0, idle_s=0.0, window_s=0.5, queue=3600), LaneLoad(1, idle_s=0.0, window_s=0.5))
    proposal = proposal_of(Even(), LoadView((LoadWindow(loads, lanes),), table))
    assert [move.source for move in proposal.moves].count(0) >= 2
    idle = tuple(LaneLoad(lane, idle_s=0.5, window_s=1.0, queue=0) for lane in (0, 1))
    assert proposal_of(Even(), LoadView((LoadWindow(loads, idle),), table)).moves == ()


@settings(max_examples=40)
@given(views())
def test_where_epochs_are_reported_once_they_are_served_what_waits_is_in_the_windows_to_come(view: LoadView) -> None:
    """Counted twice, it would send slots after whichever lane is last: in turn, for ever."""
    served = tuple(replace(window, all_served=True) for window in view.windows)
    none = np.zeros(view.table.slots, dtype=np.int64)
    emptied = tuple(replace(window, slots=replace(window.slots, pending=none)) for window in served)
    proposals = [proposal_of(Even(), replace(view, windows=windows)) for windows in (served, emptied)]
    assert proposals[0] == proposals[1]


def test_moves_state_only_where_memory_allows() -> None:
    table = runs(8, 2)
    loads = SlotLoads.of([100] * 8, [0.2] * 4 + [0.01] * 4, [1000] * 8)
    lanes = tuple(LaneLoad(lane, 0.0, 1.0, memory_budget=5000) for lane in (0, 1))
    after = proposal_of(Even(), LoadView((LoadWindow(loads, lanes),), table)).table_after(table)
    assert (after.sum_by_lane(loads.state_bytes) <= 5000).all()


def test_relieves_a_lane_that_has_turned_slow() -> None:
    """The lane's true speed is found out: lanes end even although every record costs twice as much on lane 5."""
    slow = np.where(np.arange(8) == 5, 2.0, 1.0)
    table = runs(256, 8)
    records = np.full(256, 400)

    def window(at: RoutingTable, slowness: FloatArray) -> LoadWindow:
        busy = records * 2e-5 * slowness[at.lane_positions()]
        return window_of(at, SlotLoads.of(records, busy, np.full(256, 40_000)))

    memory, windows = None, [window(table, np.ones(8))]
    moved = []
    for _ in range(6):
        windows.append(window(table, slow))
        proposal = proposal_of(Even(), LoadView(tuple(windows), table, memory))
        memory, table = proposal.memory, proposal.table_after(table)
        moved.append(len(proposal.moves))
    assert balance_of(window(table, slow), table).max_over_mean < 1.05
    assert moved[0] == 0, "it might have been a bad moment"
    assert moved[1] > 0
    assert moved[2:] == [0] * 4, "one plan is enough once the speed is known"


@pytest.mark.parametrize("seed", range(3))
def test_noise_alone_moves_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, memory, moved = runs(256, 8), None, 0
    windows: list[LoadWindow] = []
    for _ in range(500):
        records = rng.poisson(400, 256)
        busy = records * 2e-5 * rng.lognormal(0, 0.1, 256)
        windows.append(window_of(table, SlotLoads.of(records, busy, np.full(256, 40_000))))
        if len(windows) == 1:
            continue  # one window does not show how much the load varies; the balancer waits for a second
        proposal = proposal_of(Even(), LoadView(tuple(windows[-24:]), table, memory))
        moved += len(proposal.moves)
        memory, table = proposal.memory, proposal.table_after(table)
    assert moved == 0


def test_a_small_lasting_imbalance_is_seen_through_noise() -> None:
    rng = np.random.default_rng(1)
    table, memory, moved = runs(256, 8), None, 0
    windows: list[LoadWindow] = []
    dearer = np.where(table.owners == 3, 1.06, 1.0)
    for _ in range(24):
        busy = rng.poisson(400, 256) * 2e-5 * rng.lognormal(0, 0.1, 256) * dearer
        windows.append(window_of(table, SlotLoads.of(np.full(256, 400), busy, np.full(256, 40_000))))
        proposal = proposal_of(Even(), LoadView(tuple(windows), table, memory))
        moved += len(proposal.moves)
        memory, table = proposal.memory, proposal.table_after(table)
    assert moved > 0


def _moved_in_each(rates: FloatArray, windows: int, lanes: int = 8) -> tuple[list[int], RoutingTable]:
    """How many slots `even` moves after each window of a stream whose records come by chance at these rates."""
    rng = np.random.default_rng(5)
    table, memory, moved = RoutingTable.even(rates.size, lanes), None, []
    seen: list[LoadWindow] = []
    for _ in range(windows):
        records = rng.poisson(rates)
        seen.append(window_of(table, SlotLoads.of(records, records * 2e-5, np.full(rates.size, 40_000))))
        if len(seen) == 1:
            continue
        proposal = proposal_of(Even(), LoadView(tuple(seen[-24:]), table, memory))
        moved.append(len(proposal.moves))
        memory = proposal.memory
        if proposal.moves:  # as the balancer does: what was seen under another table is not used
            table, seen = proposal.table_after(table), []
    return moved, table


def test_a_hot_slot_is_not_as_noisy_as_the_small_ones_beside_it() -> None:
    """A slot of 10,000 records strays by 1 %, those of 16 by 25 %: its lane is soon relieved of all else, 17 %."""
    rates = np.full(1024, 16.0)
    rates[0] = 10_000
    moved, table = _moved_in_each(rates, windows=6)
    assert any(moved)
    assert (table.owners == table.owners[0]).sum() <= 16


def test_it_comes_to_rest_on_a_skewed_stream_whose_records_come_by_chance() -> None:
    rates = 20_000 * np.random.default_rng(2).permutation(np.arange(1, 257) ** -1.0)
    moved, table = _moved_in_each(rates, windows=300)
    assert moved[0] > 0
    assert sum(map(bool, moved)) <= 3, "a plan for each story that the stream tells, not for each window"
    lanes = np.bincount(table.owners, rates)
    assert lanes.max() / lanes.mean() < 1.3 * max(1.0, rates.max() / lanes.mean())


def _catching_up(epoch: int, waiting: int) -> LoadWindow:
    """Both lanes get 0.8 s of work per second; lane 0 has more waiting, and works it off in the time it has left."""
    table = runs(16, 2)
    busy = np.where(table.owners == 0, 1.0 / 8, 0.8 / 8)
    pending = np.where(table.owners == 0, waiting, 0)
    loads = SlotLoads.of(np.round(busy * 1e4), busy, np.full(16, 1000), pending)
    return LoadWindow(loads, window_of(table, loads).lanes, (epoch, epoch))


def test_a_lane_that_works_off_what_has_piled_up_does_not_get_too_much() -> None:
    table = runs(16, 2)
    falling = tuple(_catching_up(epoch, 750 - 250 * epoch) for epoch in range(3))  # 0.2 s of each second, 8 slots
    assert proposal_of(Even(), LoadView(falling, table)).moves == ()
    level = tuple(_catching_up(epoch, 0) for epoch in range(3))
    assert proposal_of(Even(), LoadView(level, table)).moves != (), "the same, and nothing is worked off: it is skew"


def test_a_plan_for_what_has_piled_up_is_made_when_that_takes_many_windows() -> None:
    table = runs(16, 2)
    much = tuple(_catching_up(epoch, 40_000 - 250 * epoch) for epoch in range(3))
    assert proposal_of(Even(), LoadView(much, table)).moves != ()


def test_what_waits_on_lanes_that_have_served_nothing_has_no_price() -> None:
    """A lane may be taken up by moves for a whole window."""
    table = runs(16, 2)
    loads = SlotLoads.of(np.zeros(16), np.zeros(16), np.full(16, 1000), np.full(16, 50))
    lanes = tuple(LaneLoad(lane, idle_s=0.0, window_s=1.0, queue=400) for lane in (0, 1))
    windows = tuple(LoadWindow(loads, lanes, (epoch, epoch)) for epoch in range(2))
    assert proposal_of(Even(), LoadView(windows, table)).moves == ()


def test_a_large_plan_is_even_and_moves_little() -> None:
    rng = np.random.default_rng(3)
    slots, lanes = 20_000, 200
    home = np.arange(slots) * lanes // slots
    work = rng.uniform(0.5, 1, slots) * np.where(home < 40, 4.0, 1.0)
    problem = Problem(work, rng.integers(1, 1000, slots).astype(float), home, np.ones(lanes), np.full(lanes, np.inf))
    plan = pack(problem, Even().tolerance)
    assert plan.maximum <= 1.02 * problem.lower_bound < stay(problem).maximum
    assert plan.moved_bytes < 0.35 * problem.size.sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": -0.1}, "tolerance"),
        ({"min_gain": 1.0}, "min_gain"),
        ({"calm": 1.0}, "calm"),
        ({"horizon_windows": 0}, "horizon_windows"),
    ],
)
def test_refuses_options_out_of_range(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Even(**options)


def test_windows_of_different_size_are_not_noise() -> None:
    """Epochs of 5,000 and of 20,000 rows tell the same story: lane 0 has too much."""
    table = runs(64, 4)
    share = np.where(table.owners == 0, 0.8 / 16, 0.2 / 48)
    windows = tuple(
        window_of(table, SlotLoads.of(np.round(share * rows), share * rows * 1e-4, np.full(64, 1000)))
        for rows in (5_000, 20_000, 8_000, 30_000)
    )
    after = proposal_of(Even(), LoadView(windows, table)).table_after(table)
    assert balance_of(windows[-1], after).max_over_mean < 1.05


_TABLE = runs(32, 4)
_FLAT = np.full(32, 0.05)  # 40 % of each lane's second


def _second(busy_s: FloatArray, pending: FloatArray | None = None) -> LoadWindow:
    """A second in which the slots needed so much; more than a second on a lane cannot be served."""
    return window_of(_TABLE, SlotLoads.of(np.round(busy_s * 1e4), busy_s, np.full(32, 10**6), pending))


def _after(before: int, *since: LoadWindow, policy: Even | None = None, whole_epochs: bool = False) -> RoutingTable:
    """The table that `even` wants after so many flat seconds and then these."""
    view = LoadView((*[_second(_FLAT)] * before, *since), _TABLE, whole_epochs=whole_epochs)
    return proposal_of(policy or Even(), view).table_after(_TABLE)


def _skewed(times: float) -> FloatArray:
    """Lane 0's slots need so many times what the others do."""
    return _FLAT * np.where(_TABLE.owners == 0, times, 1.0)


def test_a_mild_skew_on_calm_lanes_is_evened_out_once_it_lasts() -> None:
    """The busiest lane is idle for 44 % of the time: no record waits for it, but all would for slots that move."""
    skewed = _second(_skewed(1.4))
    assert _TABLE.difference(_after(12, *[skewed] * 11)) == ()
    lasting = _after(12, *[skewed] * 12)
    assert balance_of(skewed, lasting).max_over_mean <= 1.03
    assert _TABLE.difference(_after(0, skewed)) == (), "without history nobody knows whether it will"
    assert balance_of(skewed, _after(12, skewed, policy=Even(calm=0.0))).max_over_mean <= 1.01


def test_rows_that_come_an_epoch_at_a_time_wait_for_the_busiest_lane_however_calm_it_is() -> None:
    skewed = _second(_skewed(1.4))
    assert balance_of(skewed, _after(12, skewed, whole_epochs=True)).max_over_mean <= 1.01


def test_calm_lanes_that_are_far_from_even_are_evened_out_at_once() -> None:
    skewed = _second(np.where(_TABLE.owners == 0, 0.05, 0.01))
    assert balance_of(skewed, _after(12, skewed)).max_over_mean <= 1.03


def test_calm_lanes_are_not_fitted_to_the_noise_of_their_slots() -> None:
    """Eleven slots on one of four lanes is the best that 41 allow; which eleven is not worth a move."""
    table = RoutingTable(np.repeat(np.arange(4), [12, 10, 10, 9]), (0, 1, 2, 3))
    busy = 0.05 * np.random.default_rng(4).normal(1.0, 0.01, table.slots)
    second = window_of(table, SlotLoads.of(np.round(busy * 1e4), busy, np.full(table.slots, 10**6)))
    proposal = proposal_of(Even(), LoadView((second,) * 12, table, whole_epochs=False))
    assert [move.source for move in proposal.moves] == [0]


def _overloaded(queued: int) -> LoadWindow:
    """Lane 0 has no second left; so many records wait for each of its slots."""
    busy = np.where(_TABLE.owners == 0, 0.125, 0.05)
    return _second(busy, np.where(_TABLE.owners == 0, queued, 0))


def test_a_new_overload_is_cured_with_few_moves() -> None:
    window = _overloaded(queued=10)
    cured, evened = _after(12, window), _after(12, window, policy=Even(calm=0.0))
    assert balance_of(window, cured).max_load <= 0.8
    assert 0 < len(_TABLE.difference(cured)) < len(_TABLE.difference(evened))


def test_the_first_window_tells_of_a_new_overload_too() -> None:
    window = _overloaded(queued=10)
    assert len(_TABLE.difference(_after(0, window))) == len(_TABLE.difference(_after(12, window))) > 0


def _slowed(epoch: int, times: float) -> LoadWindow:
    """A second in which all slots of lane 0 cost so many times more per record than usual; what is too much waits."""
    cost, came = 1e-4 * np.where(_TABLE.owners == 0, times, 1.0), 800.0
    served = np.minimum(came, 0.125 / cost)
    loads = SlotLoads.of(np.round(served), served * cost, np.full(32, 10**6), np.round(came - served))
    return replace(window_of(_TABLE, loads), epochs=(epoch, epoch))


@pytest.mark.parametrize(("times", "whole_epochs", "moves"), [(2.0, False, 4), (2.0, True, 0), (1.3, False, 0)])
def test_a_lane_that_turns_slow_and_has_no_time_left_is_relieved_at_once(
    times: float, whole_epochs: bool, moves: int
) -> None:
    """Where records come one by one: it is a new overload, whatever the reason. Else it may be a bad moment."""
    windows = (*(_slowed(epoch, 1.0) for epoch in range(12)), _slowed(12, times))
    proposal = proposal_of(Even(), LoadView(windows, _TABLE, whole_epochs=whole_epochs))
    assert [move.source for move in proposal.moves if move.source == 0] == [0] * moves
    assert len(proposal.moves) <= moves + bool(moves)


def test_where_all_lanes_stop_for_a_move_only_a_lane_that_is_not_calm_is_worth_one() -> None:
    stops = MoveCost(stops_all=True)
    skewed = [_second(_skewed(1.4))] * 12
    for cost, moves in ((MoveCost(), True), (stops, False)):
        view = LoadView((*skewed,), _TABLE, move_cost=cost, whole_epochs=False)
        assert bool(proposal_of(Even(), view).moves) is moves
    window = _overloaded(queued=10)
    view = LoadView((*[_second(_FLAT)] * 12, window, window), _TABLE, move_cost=stops, whole_epochs=False)
    proposal = proposal_of(Even(), view)
    assert balance_of(window, proposal.table_after(_TABLE)).max_load <= 0.8
    assert proposal.on_their_own == proposal.moves, "from one lane to three others"


def test_moves_that_relieve_most_come_first() -> None:
    """A strategy may take them one by one."""
    busy = np.random.default_rng(5).uniform(0.01, 0.02, 32) * np.array([3.0, 1.0, 6.0, 1.0])[_TABLE.lane_positions()]
    view = LoadView((_second(busy),), _TABLE)
    moves = proposal_of(Even(), view).moves
    keys = [(-view.lane_sums(busy)[move.source], -busy[move.slot]) for move in moves]
    assert len(moves) > 3
    assert keys == sorted(keys)
    assert moves[0].source == 2


@pytest.mark.parametrize("queued", [0, 10])
def test_where_the_demand_is_not_known_only_the_lowest_maximum_will_do(queued: int) -> None:
    """No queue is seen at all, or it is full and does not grow: what is held back upstream nobody knows."""
    window = _overloaded(queued)
    told, without_calm = (_after(12, window, window, policy=policy) for policy in (Even(), Even(calm=0.0)))
    assert told == without_calm
    assert _TABLE.difference(told)


def test_of_equal_slots_the_one_whose_move_costs_less_goes() -> None:
    price = np.array([3.0, 1.0, 2.0, 3.0])
    problem = Problem(np.ones(4), np.ones(4), np.zeros(4, dtype=int), np.ones(2), np.full(2, np.inf), price)
    assert pack(problem, 0.0).moved.tolist() == [1, 2]
