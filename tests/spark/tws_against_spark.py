"""Random streams through Spark's own transformWithState and through ours: `python -m tests.spark.tws_against_spark`."""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

import evenflow as ef
from tests.operators.dedup_oracle import Event, random_epochs, table_of
from tests.spark.driver_under_fault import session
from tests.spark.streams import Bench, Wanderlust, pids_of, write_input

DDL = "key long, at timestamp, value long"
OUT = "key long, said string"
DELAY = "15 seconds"
_STORES = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Variables(StatefulProcessor):
    """Keeps a value, a list and a map, of several types, and says what it finds."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.value = handle.getValueState("value", "n int, half double, last string, at timestamp, all array<long>")
        self.list = handle.getListState("list", "v long")
        self.map = handle.getMapState("map", "v long, name string", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802 - Spark's name
        now, watermark = timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs()
        yield Row(key=key[0], said=f"{now}, {watermark}")
        yield self.told(key)
        values = sorted(row.value for row in rows)
        old = self.value.get()
        n = (0 if old is None else old[0]) + len(values)
        at = datetime(2020, 1, 1, n % 24)  # noqa: DTZ001 - Spark takes it so
        if n % 5 == 4:
            self.value.clear()
            self.list.put([(n,), (None,)])
        else:
            self.value.update((n, n / 2, None if n % 3 else str(values), at, values))
            self.list.appendList([(value,) for value in values])
        for value in values:
            entry = (value % 7, None if value % 7 == 3 else str(value % 2))
            if value % 3 == 0:
                self.map.removeKey(entry)
            else:
                found = self.map.getValue(entry)
                self.map.updateValue(entry, (value + (found[0] if found else 0),))
        if n % 11 == 0:
            self.list.clear()
            self.map.clear()
        yield self.told(key)

    def told(self, key: Any) -> Row:
        held = sorted(self.map.iterator(), key=repr)
        keys, values = sorted(map(repr, self.map.keys())), sorted(map(repr, self.map.values()))
        said = self.value.exists(), self.value.get(), list(self.list.get()), self.list.exists(), held, keys, values
        return Row(said=repr((*said, self.map.exists())), key=key[0])

    def close(self) -> None:
        pass


class Timers(StatefulProcessor):
    """Registers and deletes timers around the rows' times, also in the past, and says which fire."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.fired = handle.getValueState("fired", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802 - Spark's name
        values = sorted((row.value, None if row.at is None else int(row.at.timestamp() * 1000)) for row in rows)
        yield self.told(key, "rows", values, timerValues)
        for value, at in values:
            if at is None:
                self.handle.deleteTimer(value * 100)
            elif value % 4 == 3:
                self.handle.deleteTimer(at)
            else:
                self.handle.registerTimer(at + (value % 4) * 5000)
        yield self.told(key, "then", None, timerValues)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        yield self.told(key, type(key).__name__, at, timerValues)
        n = (self.fired.get() or (0,))[0]
        self.fired.update((n + 1,))
        if n % 3 == 0:
            self.handle.registerTimer(at)
            self.handle.registerTimer(at + 2000)
            self.handle.deleteTimer(at + 5000)

    def told(self, key: Any, what: str, values: Any, times: TimerValues) -> Row:
        timers = sorted(self.handle.listTimers())
        return Row(key=key[0], said=repr((what, values, timers, times.getCurrentWatermarkInMs(), self.fired.get())))

    def close(self) -> None:
        pass


class TimersOfFrames(Timers):
    """The same over frames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Any]:  # noqa: N802 - Spark's name
        for frame in rows:
            found = [
                Row(value=value, at=None if pd.isna(at) else at.tz_localize("UTC"))
                for value, at in zip(frame["value"].tolist(), frame["at"].tolist(), strict=True)
            ]
            kinds = f"{list(frame.columns)} {frame['value'].dtype} {frame['at'].dtype} {frame.index.tolist()}"
            yield pd.DataFrame({"key": [key[0]], "said": [kinds]}).astype({"key": "Int64"})
            yield from self.framed(super().handleInputRows(key, iter(found), timerValues))

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        yield from self.framed(super().handleExpiredTimer(key, timerValues, expiredTimerInfo))

    def framed(self, rows: Iterator[Row]) -> Iterator[pd.DataFrame]:
        for row in rows:
            yield pd.DataFrame({"key": [row.key], "said": [row.said]}).astype({"key": "Int64"})


KINDS: dict[str, tuple[type[StatefulProcessor], str]] = {
    "variables": (Variables, "None"),
    "timers": (Timers, "EventTime"),
    "frames": (TimersOfFrames, "EventTime"),
}


def asked(grouped: Any, kind: str, mode: str) -> Any:
    """Return the query, of Spark's `groupBy` or of `keyed`."""
    processor, clock = KINDS[kind]
    call = grouped.transformWithStateInPandas if kind == "frames" else grouped.transformWithState
    return call(processor(), OUT, mode, clock)


def compare(bench: Bench, kind: str, seed: int, epochs: int = 6) -> None:
    """Check that both put out the same rows batch by batch, with moves and the death of a lane."""
    rng = random.Random(seed)
    mode = rng.choice(["append", "update"])
    tables = [rows for rows in random_epochs(rng, epochs) if rows] or [[(1, 0, 0)]]
    if kind == "frames":  # with null keys among them, Spark makes floats of all keys of a batch
        tables = [[(key or 0, at, value) for key, at, value in rows] for rows in tables]
    found: list[list[Counter[Any]]] = []
    for ours in (False, True):
        place = bench.place / f"{kind} {seed} {ours}".replace(" ", "-")
        place.mkdir()
        found.append(_run(bench, place, kind, mode, tables, ours=ours))
    theirs, ours_too = found
    wrong = [(at, left - right, right - left) for at, (left, right) in enumerate(zip(theirs, ours_too, strict=False))]
    wrong = [each for each in wrong if each[1] or each[2]]
    how = f"{kind}: tests.spark.tws_against_spark --first {seed} --seeds 1 --kinds {kind}"
    assert not wrong, f"{how}: batch {wrong[0][0]}: Spark has {wrong[0][1]}, we have {wrong[0][2]}"
    assert len(ours_too) == len(theirs), how


def _run(  # noqa: PLR0913 - all that a run is made of
    bench: Bench, place: Path, kind: str, mode: str, tables: list[list[Event]], *, ours: bool
) -> list[Counter[Any]]:
    for number, rows in enumerate(tables):
        write_input(place / "in", number, table_of(rows))
    stream = bench.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(place / "in"))
    marked = stream.withWatermark("at", DELAY)
    if not ours:
        return published(bench, asked(marked.groupBy("key"), kind, mode), mode)
    stateful = asked(ef.keyed(marked, "key"), kind, mode)
    moving = stateful.balance(lanes=2, slots=8, policy=Wanderlust(), window_epochs=1)
    return published(bench, moving, mode, dies_at=len(tables) // 2)


def published(bench: Bench, stateful: Any, mode: str, dies_at: int | None = None) -> list[Counter[Any]]:
    """Return what each batch with rows has put out, of Spark's query or of ours; a lane of ours may die on the way."""
    seen: dict[int, Counter[Any]] = {}
    killed: list[int] = []

    def take(frame: DataFrame, epoch: int) -> None:
        seen[epoch] = Counter(tuple(row) for row in frame.collect())
        if dies_at is not None and epoch >= dies_at and not killed:
            killed.append(next(iter(pids_of(query).values())))
            os.kill(killed[0], signal.SIGKILL)

    bench.spark.conf.set(_STORES, _ROCKS)
    place = tempfile.mkdtemp(dir=bench.place)
    try:
        writer = stateful.writeStream.outputMode(mode).option("checkpointLocation", place).foreachBatch(take)
        query = writer.trigger(availableNow=True).start()
        if isinstance(query, ef.Query):
            bench.started(query)
        query.awaitTermination()
    finally:
        bench.spark.conf.unset(_STORES)
    return [rows for _, rows in sorted(seen.items()) if rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    asked_for = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = session(Path(folder), "local[4]")
        bench = Bench(spark, Path(folder))
        for seed in range(asked_for.first, asked_for.first + asked_for.seeds):
            for kind in asked_for.kinds:
                compare(bench, kind, seed)
            print(f"seed {seed}: the same", flush=True)  # noqa: T201 - that is its report
        spark.stop()


if __name__ == "__main__":
    main()
