from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.control import Balancer, BalancerOptions
from evenflow.control.journal import Decided
from evenflow.errors import ProtocolError
from evenflow.migration.strategies import Sudden
from evenflow.model import ControlMessage, Move
from evenflow.policies.autoflow import AutoFlow
from papers.autoflow.protocol.channels import AutoFlowLane, AutoFlowMapper
from papers.autoflow.protocol.run import autoflow_run
from papers.messages.decider import Script
from papers.messages.folds import HISTORY, LAST
from papers.messages.lane import LetGo
from papers.messages.plant import Plant, Timing
from papers.messages.stream import RecordStream
from papers.messages.tests.streams import (
    LANES,
    SLOTS,
    jittery,
    one_path_per_key,
    random_stream,
    schedules,
    stream_of,
    table,
)
from papers.messages.world import World

MOVE = Move(0, 0, 1)


class TestControlMessages:
    def test_m1_every_control_message_comes_back_from_every_lane(self) -> None:
        run = autoflow_run(random_stream(1), jittery(1))
        run.run()
        assert len(run.scheduler.sent) > 10
        assert run.scheduler.replies == {epoch - 1: set(range(LANES)) for epoch in run.scheduler.sent}

    @pytest.mark.parametrize("seed", range(5))
    def test_m2_all_operators_see_the_same_order_whatever_the_delays(self, seed: int) -> None:
        run = autoflow_run(random_stream(seed), jittery(seed))
        run.run()
        sent = run.scheduler.sent
        assert sent == sorted(sent)
        assert all([message.event_time for message in source.seen] == sent for source in run.sources)
        assert all(operator.seen == sent for operator in [*run.mappers, *run.lanes])

    @given(st.integers(0, 10_000), schedules())
    @settings(max_examples=30)
    def test_m3_nothing_of_an_old_epoch_is_served_after_the_barrier(
        self, seed: int, plan: dict[int, list[Move]]
    ) -> None:
        late: list[int] = []

        class Watching(AutoFlowLane):
            barrier = 0

            def complete(self, message: ControlMessage) -> int:
                self.barrier = message.event_time
                return super().complete(message)

            def after_record(self, record: int) -> None:
                moved = {move.slot for moves in plan.values() for move in moves}
                if self.world.slot_of[record] not in moved and self.world.epoch_of[record] < self.barrier:
                    late.append(record)

        autoflow_run(random_stream(seed), jittery(seed), Script(plan), lane_type=Watching).run()
        assert late == []

    @pytest.mark.parametrize("seed", range(3))
    def test_m4_the_counts_of_a_window_are_the_records_between_two_markers(self, seed: int) -> None:
        stream, script = random_stream(seed), Script()
        run = autoflow_run(stream, jittery(seed), script)
        run.run()
        expected = Counter(zip(run.world.epoch_of, stream.slot.tolist(), strict=True))
        counted: Counter[tuple[int, int]] = Counter()
        for report in script.reports:
            for slot, records in zip(report.slots.tolist(), report.loads.records.tolist(), strict=True):
                counted[report.epoch, slot] += records
        assert +counted == expected

    def test_a7_a_source_that_has_finished_holds_up_no_barrier(self) -> None:
        stream = stream_of([0, 1_000, 2_000, 300_000, 400_000], [0, 1, 2, 0, 0], source=[0, 0, 0, 1, 1])
        plant = Plant(table(), service=1_000, period=50_000, sources_close=True)
        result = autoflow_run(stream, plant, Script({3: [MOVE]})).run()
        assert result.served_by.tolist() == [0, 1, 2, 1, 1]

    def test_a4_an_empty_message_is_no_migration(self) -> None:
        run = autoflow_run(random_stream(2), jittery(2))
        assert sum(run.run().trace.held.values()) == 0


class TestMigration:
    @given(st.integers(0, 10_000), schedules())
    @settings(max_examples=60)
    def test_m7_m8_any_schedule_of_moves_keeps_every_promise(self, seed: int, plan: dict[int, list[Move]]) -> None:
        stream = one_path_per_key(seed)
        plant = replace(jittery(seed), fold=HISTORY)
        result = autoflow_run(stream, plant, Script(plan)).run()
        owners = table().owners.copy()
        for moves in plan.values():
            for move in moves:
                owners[move.slot] = move.target
        assert result.trace.settled
        if all(epoch in {trace.epoch for trace in result.trace.moves.values()} for epoch in plan):
            assert list(result.owners) == owners.tolist()

    @pytest.mark.parametrize("path", [[1, 2], [1, 0], [1, 0, 1], [1, 2, 0, 1]])
    @pytest.mark.parametrize("transfer", [1_000, 300_000])
    def test_m8_one_slot_along_a_chain_of_lanes_before_it_has_settled(self, path: list[int], transfer: int) -> None:
        stops = [0, *path]
        plan = {at + 2: [Move(0, stops[at], stops[at + 1])] for at in range(len(path))}
        plant = replace(jittery(3), fold=HISTORY, timing=Timing(data=(0, 30_000), transfer=transfer))
        result = autoflow_run(one_path_per_key(3), plant, Script(plan)).run()
        assert result.owners[0] == path[-1]
        assert len(result.trace.moves) == len(path)

    def test_m5_keys_of_a_slot_move_together_and_others_stay(self) -> None:
        stream = random_stream(4, span=800_000)
        result = autoflow_run(stream, jittery(4), Script({5: [MOVE]})).run()
        settled = result.trace.moves[0, 5].installed
        later = stream.due > settled
        assert set(result.served_by[later & (stream.slot == 0)]) == {1}
        for slot in range(1, SLOTS):
            assert set(result.served_by[stream.slot == slot]) == {slot % LANES}

    def test_m6_only_records_of_the_moved_slots_wait(self) -> None:
        plan = {3: [MOVE], 6: [Move(4, 1, 2), Move(5, 2, 0)]}
        held = autoflow_run(random_stream(5, records=1_000), jittery(5), Script(plan)).run().trace.held
        assert set(held) <= {0, 4, 5}
        assert sum(held.values()) > 0

    def test_m7_both_lanes_serve_other_slots_during_a_long_transfer(self) -> None:
        stream = random_stream(6, span=1_000_000)
        plant = replace(jittery(6, service=500), timing=Timing(transfer=300_000))
        result = autoflow_run(stream, plant, Script({5: [MOVE]})).run()
        move = result.trace.moves[0, 5]
        during = (result.served_at > move.handed_off) & (result.served_at < move.installed)
        assert set(result.served_by[during]) == {0, 1, 2}
        assert 0 not in set(stream.slot[during])
        assert move.buffered > 0

    def test_the_last_value_survives_moves(self) -> None:
        plan = {2: [MOVE], 4: [Move(0, 1, 2), Move(1, 1, 0)], 6: [Move(0, 2, 0)]}
        autoflow_run(one_path_per_key(7), replace(jittery(7), fold=LAST), Script(plan)).run()


class TestFigures:
    def test_m6_figure_3_replayed(self) -> None:
        """Three channels; the marker 8 comes in by the uppermost first and moves r_0_3 from reducer 0 to 1."""
        slot_of_key = [0, 1, 2, 3]  # one reducer-0 slot r_0_3 is slot 3 here
        stream = stream_of([0] * 5, [3, 3, 1, 3, 3], slot_of_key=slot_of_key, slots=4, source=[0, 1, 2, 2, 2])
        world = World(stream, Plant(table(4, 2).apply([Move(3, 1, 0)])))
        sent: list[tuple[int, object]] = []

        class Wire:
            def __init__(self, lane: int) -> None:
                self.lane = lane

            def send(self, message: object) -> None:
                sent.append((self.lane, message))

        mapper = AutoFlowMapper(world, 0, 3)
        mapper.outs = [Wire(0), Wire(1)]  # type: ignore[list-item]
        eight = ControlMessage(8, (Move(3, 0, 1),))
        mapper.receive(0, eight)  # (i) from the uppermost channel
        mapper.receive(0, 0)  # (ii) the record behind it waits
        mapper.receive(1, 1)  # r_0_3 from the middle channel, before its marker: as usual
        mapper.receive(2, 2)  # another slot: as usual
        assert sent == [(0, 1), (1, 2)]
        mapper.receive(1, eight)
        mapper.receive(1, 3)
        assert sent == [(0, 1), (1, 2)]
        mapper.receive(2, eight)  # (iii) all have it: table, broadcast, flush
        assert sent[2:] == [(0, eight), (1, eight), (1, 0), (1, 3)]
        mapper.receive(0, 4)
        assert sent[6:] == [(1, 4)]
        assert mapper.held == {}
        assert mapper.buffers == {}

    def test_m7_figure_4_replayed(self) -> None:
        """Marker 6 moves r_0_1 from the left reducer to the right one; 4 came before it, 8 after it."""
        stream = stream_of([0, 0, 0], [1, 1, 0], slots=2, slot_of_key=[0, 1])
        world = World(stream, Plant(table(2, 1).with_lanes([0, 1]), service=10, timing=Timing(transfer=1_000)))
        left, right = (AutoFlowLane(world, lane, 2, 10) for lane in (0, 1))
        left.peers = right.peers = [left, right]
        six = ControlMessage(6, (Move(1, 0, 1),))
        left.receive(0, six)
        left.receive(1, 0)  # event 4, from the channel without a marker: processed as usual
        right.receive(0, six)
        right.receive(0, 1)  # event 8: the right reducer keeps it
        world.loop.run(100)
        assert world.checker.served_by == [0, -1, -1]
        assert right.absent == {1: {6: [(0, 1)]}}
        left.receive(1, six)  # (ii) the left reducer has them all and sends the slot
        left.receive(1, 2)  # and goes on with its other slot
        right.receive(1, six)
        world.loop.run(200)
        assert 1 not in left.state
        assert world.checker.served_by == [0, -1, 0]
        world.loop.run()  # (iii) merged
        assert world.checker.served_by == [0, 1, 0]
        assert right.state == {1: {1: 1 + 2}}
        world.checker.require({**left.state[0], **right.state[1]}, world.fold)


class FlushesFirst(AutoFlowMapper):
    """Algorithm 1 as listed: line 18 before line 21 (AF-A2)."""

    def complete(self, message: ControlMessage) -> None:
        self.seen.append(message.event_time)
        self.switch(message)
        self.forget(message)
        self.flush(message)
        self.to_all(message)


class NeverForgets(AutoFlowMapper):
    """Algorithm 1 as listed: nothing takes a slot off the list (AF-A3)."""

    def forget(self, message: ControlMessage) -> None:
        pass

    def waits(self, _: int, record: int, slot: int) -> bool:
        if slot in self.held:
            self.buffers.setdefault(-1, []).append(record)
        return slot in self.held


class HoldsNothing(AutoFlowMapper):
    """Routes records of a moving slot at once, by the old table, also from channels past the marker."""

    def waits(self, *_: object) -> bool:
        return False


class DoesNotWaitForState(AutoFlowLane):
    """A receiver that serves records of a slot whose state has not come."""

    def begin(self, message: ControlMessage) -> None:
        pass


class DoesNotWaitForAllChannels(AutoFlowLane):
    """A sender that lets go at the first marker."""

    def begin(self, message: ControlMessage) -> None:
        super().begin(message)
        for move in message.moves:
            if move.source == self.lane:
                self.send_state_of(move, message.event_time)

    def send_state_of(self, move: Move, epoch: int) -> None:
        self.let_go(LetGo(move, epoch))

    def complete(self, message: ControlMessage) -> int:
        super().complete(ControlMessage(message.event_time))
        return 0


class TestBrokenProtocols:
    """The checker can fail: each of these breaks one rule and is caught."""

    PLAN: ClassVar = {3: [MOVE, Move(4, 1, 2)], 6: [Move(3, 0, 2)]}

    @pytest.mark.parametrize(
        ("mapper", "lane", "found"),
        [
            (FlushesFirst, AutoFlowLane, "served by a lane that does not hold it"),
            (NeverForgets, AutoFlowLane, "never served"),
            (AutoFlowMapper, DoesNotWaitForState, "served by a lane that does not hold it"),
            (AutoFlowMapper, DoesNotWaitForAllChannels, "served by a lane that does not hold it"),
        ],
    )
    def test_it_is_caught(self, mapper: type[AutoFlowMapper], lane: type[AutoFlowLane], found: str) -> None:
        stream = random_stream(8, records=1_000)
        with pytest.raises(ProtocolError, match=found):
            autoflow_run(stream, jittery(8, service=300), Script(self.PLAN), mapper, lane).run()

    def test_channels_that_reorder_break_it(self) -> None:
        plant = jittery(9, service=300)
        plant = replace(plant, timing=replace(plant.timing, reorder=True))
        with pytest.raises(ProtocolError, match="overtook one of its key"):
            autoflow_run(random_stream(9, records=1_000), plant, Script(self.PLAN)).run()

    def test_the_mappers_buffer_makes_the_cut_exact_but_is_not_what_keeps_the_state_right(self) -> None:
        """What a mapper routes before its own barrier reaches the old lane before the marker does."""
        run = autoflow_run(random_stream(8, records=1_000), jittery(8), Script(self.PLAN), HoldsNothing)
        assert sum(run.run().trace.held_by_mapper.values()) == 0

    def test_the_same_run_unbroken_passes(self) -> None:
        autoflow_run(random_stream(8, records=1_000), jittery(8, service=300), Script(self.PLAN)).run()


class TestScheduler:
    def hot(self, seconds: int = 4, seed: int = 1) -> tuple[Plant, RecordStream]:
        rng = np.random.default_rng(seed)
        count = 400 * seconds
        hot = rng.random(count) < 0.7
        key = np.where(hot, rng.integers(0, 8, count) * LANES, rng.integers(0, 24, count))
        stream = stream_of(
            (np.arange(count) * 2_500).tolist(),
            key,
            source=rng.integers(0, 3, count),
            mapper=rng.integers(0, 3, count),
            slot_of_key=np.arange(24),
            slots=24,
        )
        return Plant(table(24), service=6_000, period=200_000), stream

    def test_algorithm_3_through_the_balancer_relieves_the_hot_lane(self) -> None:
        plant, stream = self.hot()
        balancer = Balancer(plant.table, AutoFlow(), Sudden(), BalancerOptions(window_epochs=2))
        on = autoflow_run(stream, plant, balancer).run()
        off = autoflow_run(stream, plant).run()
        decided = [entry for entry in balancer.journal.of(Decided) if entry.moves]
        assert decided[0].before.spread > decided[0].after.spread
        assert on.latency_s.max() < off.latency_s.max()
        assert np.ptp(on.counts(LANES)) < np.ptp(off.counts(LANES))

    def test_m9_a_dropped_reply_means_no_decision(self) -> None:
        plant, stream = self.hot(2)
        balancer = Balancer(plant.table, AutoFlow(), Sudden(), BalancerOptions(window_epochs=2))
        run = autoflow_run(stream, plant, balancer)
        run.lanes[1].reports = None
        run.run()
        assert balancer.journal.of(Decided) == []
