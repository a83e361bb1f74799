"""A `StatefulProcessor` on a lane, without Spark: what it keeps moves, ends and fires with its slot, once."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import LongType, StructField, StructType

from evenflow.errors import OperatorError
from evenflow.model import EpochTime
from evenflow.operators.base import GONE, SLOT, Folded
from evenflow.operators.frames import PlainFrames
from evenflow.operators.key_hash import hashes_of
from evenflow.operators.processor import ProcessedKeys, Processing, TimeMode
from evenflow.spark.internals import SparkProcessor
from tests.seeds import seed_of_run

SLOTS = 4
ROWS = pa.schema([("key", pa.int64()), ("v", pa.int64())])
OUT = pa.schema([("key", pa.int64()), ("said", pa.string())])
LONG = StructType([StructField("n", LongType())])
SECOND = 1_000_000


class Clocked(StatefulProcessor):
    """Keeps all it sees for a second, and says what it has; a timer 500 ms after each call."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", LONG, 1000)
        self.list = handle.getListState("list", LONG, 1000)
        self.map = handle.getMapState("map", LONG, LONG, 1000)
        self.kept = handle.getMapState("kept", LONG, LONG)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802 - Spark's name
        for row in rows:
            self.value.update((row.v,))
            self.list.appendValue((row.v,))
            self.map.updateValue((row.v % 3,), (row.v,))
            if row.v % 5:
                self.kept.updateValue((row.v % 4,), (row.v,))
            else:
                self.kept.removeKey((row.v % 4,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 500)
        yield self.told(key, "rows")

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        yield self.told(key, f"{timerValues.getCurrentProcessingTimeInMs()}: {expiredTimerInfo.getExpiryTimeInMs()}")

    def told(self, key: Any, what: str) -> Row:
        held = self.value.get(), list(self.list.get()), list(self.map.iterator()), list(self.kept.iterator())
        return Row(key=key[0], said=f"{what} {held} {list(self.handle.listTimers())}")

    def close(self) -> None:
        pass


def opened(processor: StatefulProcessor, clock: TimeMode = "processing") -> ProcessedKeys:
    made = SparkProcessor.of(processor, clock, ("key", "v"), OUT)
    return Processing("transformWithState", made, OUT, "append", clock, None, PlainFrames(OUT)).open(
        ROWS, ("key",), SLOTS
    )


def at(epoch: int, ms: int) -> EpochTime:
    return EpochTime(epoch, None, ms * 1000)


def given(resident: ProcessedKeys, rows: Sequence[tuple[int, int]], time: EpochTime) -> Folded:
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], schema=ROWS)
    slots = hashes_of(table, ("key",)) % SLOTS
    order = np.argsort(slots, kind="stable")
    return resident.fold(table.take(order), slots[order], time)


def said(folded: Folded | None) -> list[tuple[Any, ...]]:
    return [] if folded is None else list(zip(*(folded.output[name].to_pylist() for name in OUT.names), strict=True))


ALL = list(range(SLOTS))


def test_what_has_a_ttl_ends_and_leaves_nothing() -> None:
    resident = opened(Clocked())
    given(resident, [(1, 5)], at(0, 1000))
    assert resident.due(ALL) is not None
    given(resident, [(1, 7)], at(1, 1600))
    resident.fire(ALL, at(1, 1600))
    told = said(given(resident, [(1, 9)], at(2, 2000)))
    assert "[(7,), (9,)]" in told[0][1]  # 5 came at 1000: it is over at 2000
    resident.fire(ALL, at(2, 2000))
    resident.fire(ALL, at(3, 5000))
    left = resident.snapshot(ALL)
    assert set(left["__name"].to_pylist()) == {"kept"}
    assert resident.due(ALL) is None


def test_only_what_changed_is_written() -> None:
    resident = opened(Clocked())
    given(resident, [(1, v) for v in (1, 2, 3, 6)], at(0, 0))
    resident.fire(ALL, at(0, 0))
    folded = given(resident, [(1, 7)], at(1, 100))
    changed = Counter(folded.changes["__name"].to_pylist())
    assert changed == {"value": 1, "list": 1, "map": 1, "kept": 1, None: 1}
    assert not any(folded.changes[GONE].to_pylist())


def test_a_timer_fires_once_if_its_lane_dies_between_firing_and_commit() -> None:
    first = opened(Clocked())
    given(first, [(1, 5), (2, 6)], at(0, 1000))
    first.fire(ALL, at(0, 1000))
    committed = first.snapshot(ALL)
    lost = first.fire(ALL, at(1, 1500))  # this lane dies here
    second = opened(Clocked())
    second.install(committed)
    fired = second.fire(ALL, at(1, 1500))
    assert said(fired) == said(lost)
    assert len(said(fired)) == 2
    assert fired is not None
    third = opened(Clocked())
    for table in (committed, fired.changes):
        third.install(table)
    assert third.fire(ALL, at(2, 1600)) is None
    assert third.snapshot(ALL).equals(second.snapshot(ALL))


@pytest.mark.parametrize("seed", [1, seed_of_run("EVENFLOW_PROCESSOR_SEED")])
def test_state_and_timers_move_with_their_slot(seed: int) -> None:
    rng = random.Random(seed)
    alone, lanes, replayed = opened(Clocked()), [opened(Clocked()), opened(Clocked())], opened(Clocked())
    home = dict.fromkeys(ALL, 0)
    for epoch in range(30):
        time = at(epoch, epoch * 200)
        for slot in rng.sample(ALL, rng.randrange(3)):
            lane = lanes[home[slot]]
            home[slot] = 1 - home[slot]
            lanes[home[slot]].install(lane.snapshot([slot]))
            lane.drop([slot])
        rows = [(rng.randrange(6), rng.randrange(50)) for _ in range(rng.choice([0, 1, 8]))]
        expected: list[Any] = []
        found: list[Any] = []
        if rows:
            one = given(alone, rows, time)
            expected += said(one)
            replayed.install(one.changes)
        fired = alone.fire(ALL, time)
        expected += said(fired)
        if fired is not None:
            replayed.install(fired.changes)
        for number, lane in enumerate(lanes):
            mine = [slot for slot in ALL if home[slot] == number]
            keys = pa.table([pa.array([key for key, _ in rows], pa.int64())], ["key"])
            homes = (hashes_of(keys, ("key",)) % SLOTS).tolist() if rows else []
            some = [row for row, slot in zip(rows, homes, strict=True) if slot in mine]
            if some:
                found += said(given(lane, some, time))
            found += said(lane.fire(mine, time))
        assert Counter(found) == Counter(expected), f"seed {seed}, epoch {epoch}"
        states = [alone.snapshot(ALL), replayed.snapshot(ALL)]
        states.append(pa.concat_tables([lane.snapshot(ALL) for lane in lanes]))
        rows_of = [sorted(map(repr, state.drop_columns([SLOT]).to_pylist())) for state in states]
        assert rows_of[0] == rows_of[1] == rows_of[2], f"seed {seed}, epoch {epoch}"
    assert alone.slot_bytes().sum() == sum(lane.slot_bytes().sum() for lane in lanes)


class Exits(Clocked):
    """Leaves in its timer."""

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002
        timerValues: TimerValues,  # noqa: ARG002
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002
    ) -> Iterator[Row]:
        raise SystemExit(3)


def test_an_error_in_a_timer_names_the_key() -> None:
    resident = opened(Exits())
    given(resident, [(1, 5)], at(0, 1000))
    with pytest.raises(OperatorError, match=r"operator Exits, key key=1, slot \d.*sys.exit\(3\)"):
        resident.fire(ALL, at(1, 1500))


class Late(Clocked):
    """Declares a variable when it is too late."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, ARG002 - Spark's
        self.handle.getValueState("more", LONG)
        yield Row(key=key[0], said="")


def test_variables_are_declared_in_init() -> None:
    with pytest.raises(OperatorError, match=r"state more: declare it in init\(\), not later"):
        given(opened(Late()), [(1, 5)], at(0, 0))


class NoTimers(Clocked):
    """Has no TTL, so that it can run without a clock."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", LONG)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, ARG002 - Spark's
        self.handle.registerTimer(1)
        yield Row(key=key[0], said="")


def test_timers_need_a_clock() -> None:
    with pytest.raises(OperatorError, match="timers need time mode ProcessingTime or EventTime"):
        given(opened(NoTimers(), "none"), [(1, 5)], at(0, 0))


class Collects(Clocked):
    """Says how often Python's garbage collector would run."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, ARG002 - Spark's
        yield Row(key=key[0], said=str(gc.get_threshold()[0]))


def test_garbage_is_collected_seldom_during_calls_and_as_before_after_them() -> None:
    before = gc.get_threshold()
    told = said(given(opened(Collects()), [(1, 5)], at(0, 0)))
    assert int(told[0][1]) > before[0]
    assert gc.get_threshold() == before
