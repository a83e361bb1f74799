"""The machinery under the protocols: clock, channels, streams, folds, and a checker that can fail in every way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import InputError, ProtocolError
from evenflow.model import ControlMessage, Move
from papers.autoflow.protocol.channels import AutoFlowMapper
from papers.autoflow.protocol.run import autoflow_run
from papers.messages.checker import Checker
from papers.messages.decider import Script
from papers.messages.folds import HISTORY, LAST, SUM, fold_of
from papers.messages.loop import Channel, Loop, drawn_delays
from papers.messages.plant import Plant
from papers.messages.stream import RecordStream, random_draw, systematic_draw
from papers.messages.tests.streams import jittery, random_stream, stream_of, table
from papers.messages.world import World, whole_state


class TestLoop:
    def test_events_happen_in_the_order_of_time_rank_and_scheduling(self) -> None:
        loop, seen = Loop(), []
        for time, rank, name in ((5, 0, "c"), (1, 1, "b"), (1, 0, "a"), (5, 0, "d")):
            loop.at(time, lambda word, _: seen.append((loop.now, word)), name, rank=rank)
        loop.run()
        assert seen == [(1, "a"), (1, "b"), (5, "c"), (5, "d")]

    def test_time_can_be_stopped_and_goes_on(self) -> None:
        loop, seen = Loop(), []
        for time in (1, 2, 3):
            loop.at(time, lambda word, _: seen.append(word), time)
        loop.run(until=2)
        assert (seen, loop.now) == ([1, 2], 2)
        loop.run()
        assert seen == [1, 2, 3]

    @pytest.mark.parametrize(("reorder", "in_order"), [(False, True), (True, False)])
    def test_channels_keep_the_order_unless_told_otherwise(self, reorder: bool, in_order: bool) -> None:
        loop, seen = Loop(), []
        delays = drawn_delays(np.random.default_rng(1), 0, 1_000)
        channel = Channel(loop, lambda port, message: seen.append((port, message)), 7, delays, reorder=reorder)
        for number in range(50):
            channel.send(number)
        loop.run()
        assert (seen == [(7, number) for number in range(50)]) is in_order
        assert sorted(seen) == [(7, number) for number in range(50)]

    def test_a_delay_is_not_negative(self) -> None:
        with pytest.raises(InputError, match="got 5 to 4"):
            drawn_delays(np.random.default_rng(1), 5, 4)

    def test_a_run_depends_on_its_input_and_seed_only(self) -> None:
        def run(seed: int) -> list[int]:
            script = Script({3: [Move(0, 0, 1)]})
            served: list[int] = autoflow_run(random_stream(1), jittery(seed), script).run().served_at.tolist()
            return served

        assert run(1) == run(1)
        assert run(1) != run(2)


class TestStream:
    @given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(0, 300), st.integers(0, 99))
    def test_systematic_draws_are_off_by_less_than_one_each(self, weights: list[int], count: int, seed: int) -> None:
        shares = np.array(weights) + 0.5
        drawn = systematic_draw(shares, count, np.random.default_rng(seed))
        exact = count * shares / shares.sum()
        assert np.abs(np.bincount(drawn, minlength=shares.size) - exact).max() <= 1 + 1e-9

    def test_random_draws_follow_the_shares(self) -> None:
        drawn = random_draw([1, 3], 4_000, np.random.default_rng(1))
        assert drawn.mean() == pytest.approx(0.75, abs=0.03)

    def test_a_thread_is_a_key_on_a_path(self) -> None:
        stream = stream_of([0] * 6, [0, 0, 1, 0, 0, 1], source=[0, 0, 0, 1, 0, 0])
        thread, place = stream.threads()
        assert place.tolist() == [0, 1, 0, 0, 2, 1]
        assert len(set(thread.tolist())) == 3

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"due": [1, 0]}, "order in which they are due"),
            ({"key": [0, 9]}, "key 9 has no slot"),
            ({"source": [0]}, "of one length"),
            ({"mapper": [0, -1]}, "must not be negative"),
            ({"slot_of_key": [0, 6]}, "slots are 0 to 1"),
        ],
    )
    def test_what_no_run_can_replay_is_refused(self, change: dict[str, Any], text: str) -> None:
        columns = {"due": [0, 1], "source": [0, 0], "mapper": [0, 0], "key": [0, 1], "value": [1, 1]}
        with pytest.raises(InputError, match=text):
            RecordStream(**{**columns, "slot_of_key": [0, 1], "slots": 2, **change})

    def test_a_plant_must_fit_its_stream(self) -> None:
        with pytest.raises(InputError, match="needs as many owners, got 3"):
            World(random_stream(1), Plant(table(3)))


class TestFolds:
    STREAM = stream_of([0, 1, 2, 3], [1, 0, 1, 1])

    def test_oracles_by_hand(self) -> None:
        assert SUM.oracle(self.STREAM) == {0: 2, 1: 1 + 3 + 4}
        assert LAST.oracle(self.STREAM) == {0: 2, 1: 4}
        assert HISTORY.oracle(self.STREAM) == {0: (2,), 1: (1, 3, 4)}
        assert fold_of("max", max, 0).oracle(self.STREAM) == {0: 2, 1: 4}

    def test_a_key_held_twice_is_no_state(self) -> None:
        parts = [{0: {7: 1}}, {0: {7: 2}}]
        assert whole_state(parts, None) == {7: [1, 2]}
        assert whole_state(parts, SUM.merge) == {7: 3}


def serve_all(checker: Checker, lanes: list[int]) -> None:
    for record, lane in enumerate(lanes):
        checker.served(record, lane, record)


class TestChecker:
    STREAM = stream_of([0, 1, 2], [0, 0, 1], slots=2)
    STATE = {0: 1 + 2, 1: 3}  # noqa: RUF012

    def checker(self) -> Checker:
        return Checker(self.STREAM, [0, 1])

    def test_nothing_broken(self) -> None:
        checker = self.checker()
        serve_all(checker, [0, 0, 1])
        checker.require(self.STATE, SUM)

    @pytest.mark.parametrize(
        ("deed", "found"),
        [
            (lambda checker: checker.served(0, 0, 9), "served twice"),
            (lambda checker: checker.released(0, 1), "released by a lane that does not hold it"),
            (lambda checker: checker.installed(0, 1), "installed while another lane holds it"),
            (
                lambda checker: [checker.table_in_force(3, owners) for owners in ([0, 1], [1, 1])],
                "two mappers route one epoch by different tables",
            ),
        ],
    )
    def test_each_deed_is_found(self, deed: Callable[[Checker], object], found: str) -> None:
        checker = self.checker()
        serve_all(checker, [0, 0, 1])
        deed(checker)
        with pytest.raises(ProtocolError, match=found):
            checker.require(self.STATE, SUM)

    def test_a_record_that_is_never_served(self) -> None:
        checker = self.checker()
        checker.served(0, 0, 1)
        with pytest.raises(ProtocolError, match=r"never served \(2 times\)"):
            checker.require(self.STATE, SUM)

    def test_a_record_that_overtakes_one_of_its_key(self) -> None:
        checker = self.checker()
        for record in (1, 0, 2):
            checker.served(record, 0, record)
        assert "a record overtook one of its key" in checker.violations(self.STATE, SUM)
        checker.ordered = False
        assert checker.violations(self.STATE, SUM) == {}

    @pytest.mark.parametrize("state", [{0: 3}, {0: 3, 1: 4}, {0: 3, 1: 3, 2: 0}])
    def test_a_state_that_is_not_the_oracles(self, state: dict[int, int]) -> None:
        checker = self.checker()
        serve_all(checker, [0, 0, 1])
        with pytest.raises(ProtocolError, match="differs from the oracle"):
            checker.require(state, SUM)


class SendsTwice(AutoFlowMapper):
    def route(self, record: int) -> None:
        super().route(record)
        super().route(record)


class GoesItsOwnWay(AutoFlowMapper):
    def switch(self, message: ControlMessage) -> None:
        own = [Move(move.slot, move.source, move.source) for move in message.moves]
        super().switch(ControlMessage(message.event_time, tuple(own) if self.mapper == 1 else message.moves))


@pytest.mark.parametrize(
    ("mapper", "found"), [(SendsTwice, "served twice"), (GoesItsOwnWay, "route one epoch by different tables")]
)
def test_mappers_that_send_twice_or_disagree_are_caught(mapper: type[AutoFlowMapper], found: str) -> None:
    with pytest.raises(ProtocolError, match=found):
        autoflow_run(random_stream(1), jittery(1), Script({2: [Move(0, 0, 1)]}), mapper).run()
