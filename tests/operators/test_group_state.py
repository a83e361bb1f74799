"""Calls with a state per key: against plain Python by Spark's rules, with moves and replays between epochs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from evenflow.model import Due, EpochTime
from evenflow.operators.base import GONE, SLOT
from evenflow.operators.group_calls import GroupCalls
from evenflow.spark.frames import SparkFrames
from evenflow.spark.group_state import group_states
from evenflow.spark.internals import spark_schema
from tests.operators.dedup_oracle import SCHEMA, SECOND, random_epochs, table_of
from tests.operators.group_oracle import EVENT, PROCESSING, Kept, by_event_time, by_the_clock, called
from tests.operators.test_dedup import in_slots

SLOTS, EVERY = 7, list(range(7))
MARKED = StructType(
    [
        StructField("key", LongType()),
        StructField("at", TimestampType(), metadata={"spark.watermarkDelayMs": 5000}),
        StructField("value", LongType()),
    ]
)
LONGS = StructType([StructField("calls", LongType()), StructField("total", LongType())])
OUT = StructType(
    [
        StructField(name, StringType() if name in ("kind", "state") else LongType())
        for name in ("key", "kind", "n", "total", "state", "now_ms")
    ]
)


def opened(function: Any, timeout: str, output: StructType = OUT) -> GroupCalls:
    operator = group_states(function, output, LONGS, "append", timeout, MARKED)
    frames = SparkFrames(spark_schema(SCHEMA), spark_schema(operator.output), "UTC")
    return operator.seeing(frames).open(SCHEMA, ("key",), SLOTS)


def rows_of(table: pa.Table) -> list[Any]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("timeout", [EVENT, PROCESSING])
@pytest.mark.parametrize("seed", range(6))
def test_calls_are_what_spark_s_rules_say(seed: int, timeout: str) -> None:
    """Two lanes share the slots and exchange some after each epoch, by snapshots or by all changes so far.

    Now and then an epoch is done again from what was there before it, as after the death of a lane.
    """
    rng, event = random.Random(seed), timeout == EVENT
    function = by_event_time if event else by_the_clock
    lanes = [opened(function, timeout) for _ in range(2)]
    owner = {slot: slot % 2 for slot in EVERY}
    changes: dict[int, list[pa.Table]] = {slot: [] for slot in EVERY}
    kept: dict[int | None, Kept] = {}
    now = before = late = 0
    for epoch, rows in enumerate(random_epochs(rng, 20)):
        late, before = before, now
        now = max([now, *(at - 5 * SECOND for _, at, _ in rows if at is not None)])
        time = EpochTime(epoch, now, (epoch * 10 + rng.randrange(10)) * SECOND, before, late)
        expected = list(called(kept, rows, time, event=event))
        table, slots = in_slots(table_of(rows), ("key",), hashed=False)
        found = []
        for number in range(2):
            lane = lanes[number]
            mine = [slot for slot in EVERY if owner[slot] == number]
            chosen = np.isin(slots, mine)
            given = table.filter(pa.array(chosen)), slots[chosen]
            if rng.random() < 0.3:  # it is lost with what it did, and another begins where it began
                lost, lane = lane, opened(function, timeout)
                lane.install(lost.snapshot(mine))
                if chosen.any():
                    lost.fold(*given, time)
                lost.fire(mine, time)
                lanes[number] = lane
            folded = lane.fold(*given, time) if chosen.any() else None
            for done in filter(None, (folded, lane.fire(mine, time))):
                found += rows_of(done.output)
                assert done.output_slots.tolist() == [slot for slot in done.output_slots if slot in mine]
                for slot in mine:
                    changes[slot].append(done.changes.filter(pa.array(done.changes[SLOT].to_numpy() == slot)))
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert sum(int(lane.slot_rows().sum()) for lane in lanes) == len(kept)
        for slot in rng.sample(EVERY, 3):
            source, target = lanes[owner[slot]], lanes[1 - owner[slot]]
            for state in [source.snapshot([slot])] if rng.random() < 0.5 else changes[slot]:
                target.install(state)
            source.drop([slot])
            owner[slot] = 1 - owner[slot]


def waits(_key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Wait as many milliseconds as the rows say; when they are over, do nothing at all."""
    for frame in frames:
        if len(frame):
            state.setTimeoutDuration(int(frame["value"].sum()))
    yield from ()


def test_a_timeout_is_due_once_it_is_over_and_what_stays_is_due_no_more() -> None:
    lane = opened(waits, PROCESSING)
    table, slots = in_slots(table_of([(1, None, 100), (2, None, 300)]), ("key",), hashed=False)
    start = EpochTime(0, processing_us=1_000_000)
    lane.fold(table, slots, start)
    assert lane.due(EVERY) == Due(processing_us=1_101_000), "a timeout is over after its time, not at it"
    at_it = lane.fire(EVERY, replace(start, epoch=1, processing_us=1_100_000))
    assert at_it is None
    fired = lane.fire(EVERY, replace(start, epoch=2, processing_us=1_101_000))
    assert fired is not None
    assert fired.changes.num_rows == 0, "the call has left it as it was"
    assert lane.due(EVERY) == Due(processing_us=1_301_000)
    assert lane.fire(EVERY, replace(start, epoch=3, processing_us=1_301_000)) is not None
    assert lane.due(EVERY) is None, "else an idle query would never rest"
    assert lane.slot_rows().sum() == 2


def test_event_time_waits_for_the_epoch_that_spark_would_run() -> None:
    lane = opened(by_event_time, EVENT)
    table, slots = in_slots(table_of([(key, 0, key) for key in range(40)]), ("key",), hashed=False)
    lane.fold(table, slots, EpochTime(0, 0, 0, 0, None))
    assert lane.due(EVERY) is None


def keeps(_key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    for _ in frames:
        pass
    if state.hasTimedOut:
        state.remove()
    else:
        state.update((1, 1))
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 30_000)
    yield from ()


def test_memory_and_state_go_back_once_keys_time_out() -> None:
    lane, sizes = opened(keeps, EVENT), []
    for epoch in range(200):
        keys = [epoch * 1000 + key for key in range(500 if epoch % 50 == 25 else 20)]
        table, slots = in_slots(table_of([(key, epoch * 10 * SECOND, 1) for key in keys]), ("key",), hashed=False)
        time = EpochTime(
            epoch, epoch * 10 * SECOND, 0, max(0, epoch - 1) * 10 * SECOND, max(0, epoch - 2) * 10 * SECOND
        )
        lane.fold(table, slots, time)
        fired = lane.fire(EVERY, time)
        assert fired is None or all(fired.changes[GONE].to_pylist())
        sizes.append((int(lane.slot_bytes().sum()), lane.snapshot(EVERY).nbytes))
    for before, after in zip(sizes[20], sizes[199], strict=True):
        assert after <= 1.2 * before


def test_state_is_shown_with_its_timeout() -> None:
    lane = opened(keeps, EVENT)
    table, slots = in_slots(table_of([(4, 0, 1)]), ("key",), hashed=False)
    lane.fold(table, slots, EpochTime(0, 0, 0, 0, None))
    assert [row[1:] for row in rows_of(lane.view(EVERY))] == [
        ("4", '{"state":{"calls":1,"total":1},"timeout_ms":30000}')
    ]
