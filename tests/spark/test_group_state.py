"""`applyInPandasWithState` gives what Spark's own gives, batch by batch, whatever moves or dies."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import evenflow as ef
from evenflow.errors import EvenflowError, InputError
from tests.operators.group_oracle import EVENT, PROCESSING
from tests.seeds import seed_of_run
from tests.spark.group_state_seeds import compare
from tests.spark.streams import Bench, Wanderlust, bids, pids_of, until, write_input

OUT = "auction long, kind string, before string, n long, total double, types string"
STATE = "n long, last string"  # Spark 4.3's own worker cannot read arrays in it
NONE = GroupStateTimeout.NoTimeout


def history(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """A function as people write them for Spark; it shows all that it is given."""
    assert isinstance(state, GroupState)
    n, total, types = 0, 0.0, ""
    for frame in frames:
        n += len(frame)
        total += float(frame["price"].sum())
        types = ", ".join(f"{name} {kind}" for name, kind in frame.dtypes.items())
    before = str(state.getOption)
    if n % 5 == 4:
        state.remove()
    elif n % 7 != 0:
        state.update(((state.get[0] if state.exists else 0) + n, None if n == 1 else str(n)))
    kind = type(key[0]).__name__
    auction = None if pd.isna(key[0]) else key[0]
    yield pd.DataFrame(
        {"auction": [auction], "kind": [kind], "before": [before], "n": [n], "total": [total], "types": [types]}
    ).astype({"auction": "Int64"})


def published(frame: DataFrame, epoch: int, into: dict[int, Counter[Any]]) -> None:
    into[epoch] = Counter(tuple(row) for row in frame.collect())


def by_spark(bench: Bench) -> dict[int, Counter[Any]]:
    found: dict[int, Counter[Any]] = {}
    query = bench.stream().groupBy("auction").applyInPandasWithState(history, OUT, STATE, "update", NONE)
    writer = query.writeStream.outputMode("update").foreachBatch(lambda rows, batch: published(rows, batch, found))
    run = writer.option("checkpointLocation", str(bench.place / "theirs")).trigger(availableNow=True).start()
    run.awaitTermination()
    return found


@pytest.mark.parametrize("seed", [1, seed_of_run("EVENFLOW_GROUP_STATE_SEED")])
def test_it_is_spark_s_batch_for_batch_through_moves(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    bench.feed(*(bids(rng, rng.choice([0, 3, 40, 200]), keys=20) for _ in range(6)))
    expected = by_spark(bench)
    found: dict[int, Counter[Any]] = {}
    stateful = ef.keyed(bench.stream(), "auction").applyInPandasWithState(history, OUT, STATE, "update", NONE)
    moving = stateful.balance(lanes=2, slots=16, policy=Wanderlust(seed), min_gain=0, window_epochs=1)
    writer = moving.writeStream.foreachBatch(lambda rows, epoch: published(rows, epoch, found))
    query = writer.option("checkpointLocation", str(bench.place / "ours")).trigger(availableNow=True).start()
    bench.started(query).awaitTermination()
    assert {at: rows for at, rows in found.items() if rows} == {at: rows for at, rows in expected.items() if rows}


@pytest.mark.parametrize("timeout", [EVENT, PROCESSING])
def test_timeouts_are_those_of_spark(bench: Bench, timeout: str) -> None:
    compare(bench, timeout, seed_of_run("EVENFLOW_GROUP_STATE_SEED"), epochs=5)


def test_event_time_timeouts_need_a_watermark(bench: Bench) -> None:
    with pytest.raises(InputError, match="EventTimeTimeout needs a watermark"):
        ef.keyed(bench.stream(), "auction").applyInPandasWithState(counted, "n long", "n long", "append", EVENT)


def counted(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n = sum(len(frame) for frame in frames) + (state.get[0] if state.exists else 0)
    state.update((n,))
    yield pd.DataFrame({"bidder": [key[0]], "ratio": [key[1]], "n": [n]})


def test_states_outlive_a_lane_that_is_killed(bench: Bench) -> None:
    rng = random.Random(3)
    tables = [bids(rng, 100) for _ in range(4)]
    bench.feed(*tables[:2])
    stateful = ef.keyed(bench.stream(), "bidder", "ratio").applyInPandasWithState(
        counted, "bidder string, ratio double, n long", "n long", "append", NONE
    )
    found: dict[int, Counter[Any]] = {}
    writer = stateful.balance(lanes=2, slots=8).writeStream.foreachBatch(lambda rows, at: published(rows, at, found))
    query = bench.started(writer.option("checkpointLocation", str(bench.place / "ours")).start())
    until(lambda: len(found) >= 2, "two epochs are published")
    os.kill(pids_of(query)[0], signal.SIGKILL)
    bench.feed(*tables[2:])
    until(lambda: len(found) >= 4, "four epochs are published")
    expected = Counter((row["bidder"], row["ratio"]) for table in tables for row in table.to_pylist())
    newest = dict.fromkeys(expected, 0)
    for rows in found.values():
        for bidder, ratio, n in rows:
            newest[bidder, ratio] = max(newest[bidder, ratio], n)
    assert newest == expected


def fails(_key: tuple[Any, ...], _frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame({"a": [1], "b": [state.get]})


def test_an_error_names_the_key(bench: Bench) -> None:
    write_input(bench.place / "in", 0, bids(random.Random(1), 1))
    stateful = ef.keyed(bench.stream(), "auction").applyInPandasWithState(fails, "a long", "n long", "update", NONE)
    with pytest.raises(Exception, match=r"operator fails, key auction=\d+, slot \d, epoch 0: .*STATE_NOT_EXISTS"):
        bench.run(stateful.balance(lanes=2, slots=8))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((counted, "n nonsense", "n long", "update", NONE), "outputStructType"),
        ((counted, "n long", "", "update", NONE), "stateStructType"),
        ((counted, "n long", "n long", "complete", NONE), "outputMode is append or update"),
        ((counted, "n long", "n long", "update", "Never"), "timeoutConf is one of"),
        ((lambda key: key, "n long", "n long", "update", NONE), "func takes"),
    ],
)
def test_what_spark_refuses_is_refused(bench: Bench, arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        ef.keyed(bench.stream(), "auction").applyInPandasWithState(*arguments)


def test_both_modes_must_be_the_same(bench: Bench) -> None:
    stateful = ef.keyed(bench.stream(), "auction").applyInPandasWithState(counted, "n long", "n long", "append", NONE)
    with pytest.raises(EvenflowError, match="both must be the same"):
        stateful.writeStream.outputMode("update")
