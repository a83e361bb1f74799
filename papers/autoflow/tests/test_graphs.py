"""Queries as users write them, loops in the graph, static alternatives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.control import Balancer, BalancerOptions
from evenflow.errors import InputError, ProtocolError
from evenflow.migration.strategies import Sudden
from evenflow.model import Move
from evenflow.policies.autoflow import AutoFlow
from papers.autoflow.protocol.dataflow import Environment
from papers.autoflow.protocol.loops import loop_run
from papers.autoflow.protocol.run import autoflow_run
from papers.autoflow.protocol.static import pre_aggregation_run, rehashing_run
from papers.messages.decider import Script
from papers.messages.folds import HISTORY, SUM
from papers.messages.lane import NOTHING
from papers.messages.plant import Plant
from papers.messages.stream import RecordStream
from papers.messages.tests.streams import SLOTS, jittery, random_stream, table


class TestQuery:
    def bids(self, count: int = 600) -> list[str]:
        rng = np.random.default_rng(1)
        return [f"bid,{auction},{price}" for auction, price in rng.integers(1, 30, (count, 2)).tolist()]

    def test_m12_the_query_of_section_4a_runs_as_written(self) -> None:
        records = self.bids()
        env = Environment(parallelism=3)
        query = (
            env.source(records)
            .map(lambda record: record.split(",")[1:])
            .keyby(lambda bid: bid[0])
            .reduce(lambda state, bid: state + int(bid[1]), 0)
        )
        expected: Counter[str] = Counter()
        for _, auction, price in (record.split(",") for record in records):
            expected[auction] += int(price)
        answer = query.run()
        assert answer.state == dict(expected)
        assert set(answer.result.served_by) == {0, 1, 2}

    def test_m12_the_same_answer_with_any_parallelism_and_while_slots_move(self) -> None:
        answers = []
        for width in (1, 3, 5):
            env = Environment(width, rate=2_000)
            query = env.source(self.bids()).map(lambda record: record.split(",")).keyby(lambda bid: bid[1])
            policy = Balancer(env.table, AutoFlow(0.01), Sudden(), BalancerOptions())
            answers.append(query.reduce(lambda state, bid: [*state, bid[2]], []).run(policy).state)
        assert answers[0] == answers[1] == answers[2]

    def test_an_environment_without_lanes_is_refused(self) -> None:
        with pytest.raises(InputError, match="at least 1, got 0"):
            Environment(parallelism=0)


def looped(seed: int, entries: int = 60, most: int = 4) -> tuple[RecordStream, list[int]]:
    """Records that cause up to `most` others, one after the other, each of another key."""
    rng = np.random.default_rng(seed)
    next_of: list[int] = [NOTHING] * entries
    key = rng.integers(0, 24, entries).tolist()
    for entry in range(entries):
        last = entry
        for _ in range(int(rng.integers(0, most + 1))):
            next_of.append(NOTHING)
            next_of[last] = last = len(next_of) - 1
            key.append(int(rng.integers(0, 24)))
    due = np.full(len(key), 200_000)
    due[:entries] = np.sort(rng.integers(0, 200_000, entries))
    source = np.full(len(key), 2)
    source[:entries] = rng.integers(0, 2, entries)
    zeros = np.zeros(len(key), np.int64)
    return RecordStream(due, source, zeros, np.array(key), zeros + 1, np.arange(24) % SLOTS, SLOTS), next_of


class TestLoops:
    PLAN: ClassVar = {2: [Move(0, 0, 1)], 4: [Move(4, 1, 2), Move(0, 1, 2)]}

    @given(st.integers(0, 10_000))
    @settings(max_examples=25)
    def test_f2_with_timestamps_every_barrier_completes_and_nothing_is_lost(self, seed: int) -> None:
        stream, next_of = looped(seed)
        plant = replace(jittery(seed), service=3_000)
        run = loop_run(stream, next_of, plant, Script(self.PLAN))
        result = run.run()
        assert result.trace.settled
        assert run.head.owners[0] == 2
        assert all(run.head.seen == lane.seen for lane in run.lanes)

    @pytest.mark.parametrize("seed", range(3))
    def test_f2_without_them_it_deadlocks(self, seed: int) -> None:
        stream, next_of = looped(seed)
        run = loop_run(stream, next_of, jittery(seed), Script(self.PLAN), timestamps=False)
        with pytest.raises(ProtocolError, match="never served"):
            run.run()
        assert run.head.seen == [], "no barrier was ever complete"


class TestStatic:
    @pytest.mark.parametrize("wire", [pre_aggregation_run, rehashing_run], ids=lambda wire: wire.__name__)
    def test_m13_less_traffic_and_at_least_half_a_batch_of_latency(self, wire: Callable[..., Any]) -> None:
        stream = random_stream(1, records=2_000)
        plant = Plant(table(), service=200)
        batched = wire(stream, plant, 100_000).run()
        plain = autoflow_run(stream, plant).run()
        assert batched.trace.messages["to reducers"] < 0.5 * len(stream)
        assert np.median(batched.latency_s) > 0.05 > np.median(plain.latency_s)
        assert batched.state == SUM.oracle(stream)

    @pytest.mark.parametrize("wire", [pre_aggregation_run, rehashing_run], ids=lambda wire: wire.__name__)
    def test_m13_what_does_not_merge_is_refused(self, wire: Callable[..., Any]) -> None:
        with pytest.raises(InputError, match="partial results merge"):
            wire(random_stream(1), Plant(table(), fold=HISTORY), 100_000)
