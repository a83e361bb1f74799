"""Queries as users write them, compared with what Spark's own batch engine or plain Python makes of the same rows."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import evenflow as ef
from evenflow.control.window_json import read_window_json
from evenflow.errors import LaneFailedError
from evenflow.spark.route import Exchange
from tests.spark.streams import (
    Bench,
    Expected,
    Row,
    Wanderlust,
    bids,
    one_bid_per_key,
    read_published,
    rows_of,
    state_of,
    totals,
)

pytestmark = pytest.mark.spark


def random_tables(seed: int, epochs: int = 4, rows: int = 60) -> list[pa.Table]:
    rng = random.Random(seed)
    return [bids(rng, rows) for _ in range(epochs)]


# --- what comes out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exchange", ["direct", "shuffle"])
@pytest.mark.parametrize("keys", [("auction",), ("bidder",), ("bidder", "auction")], ids="-".join)
def test_all_functions_agree_with_batch(bench: Bench, keys: tuple[str, ...], exchange: Exchange) -> None:
    tables = random_tables(1)
    bench.feed(*tables)
    stateful = ef.keyed(bench.stream(), *keys).agg(
        total=ef.sum("price"),
        ratios=ef.sum("ratio"),
        n=ef.count(),
        priced=ef.count("price"),
        low=ef.min("price"),
        high=ef.max("ratio"),
        mean=ef.mean("price"),
    )
    query = bench.run(stateful.balance(lanes=2, slots=16, exchange=exchange))
    batch = bench.spark.read.parquet(str(bench.place / "in")).groupBy(*keys)
    expected = batch.agg(
        F.sum("price"),
        F.sum("ratio"),
        F.count("*"),
        F.count("price"),
        F.min("price"),
        F.max("ratio"),
        F.mean("price"),
    )
    assert approximately(state_of(query)) == approximately(rows_of(expected.toArrow()))
    assert query.state().columns == [*keys, "total", "ratios", "n", "priced", "low", "high", "mean"]


def approximately(rows: Counter[Row]) -> Counter[Row]:
    return Counter(tuple(round(value, 9) if isinstance(value, float) else value for value in row) for row in rows)


def test_values_of_every_type_come_through_the_route_unchanged(bench: Bench) -> None:
    rng = random.Random(3)
    values: dict[str, tuple[str, list[Any]]] = {
        "flag": ("boolean", [True, False]),
        "tiny": ("tinyint", [-128, 127]),
        "small": ("smallint", [-32768, 5]),
        "whole": ("int", [-1, 2**31 - 1]),
        "single": ("float", [0.5, -1.25]),
        "price": ("decimal(9,2)", [Decimal("0.01"), Decimal("-9999999.99")]),
        "large": ("decimal(38,10)", [Decimal("1E+20"), Decimal("-0.0000000001")]),
        "day": ("date", [date(1969, 12, 31), date(2024, 2, 29)]),
        "at": ("timestamp", [datetime(1960, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 12, tzinfo=UTC)]),
        "local": ("timestamp_ntz", [datetime(1960, 1, 1), datetime(2024, 3, 31, 2, 30)]),  # noqa: DTZ001 - it has none
        "text": ("string", ["", "cæsar"]),
        "raw": ("binary", [b"", b"\x00\xff"]),
    }
    ddl = "k string, " + ", ".join(f"{name} {kind}" for name, (kind, _) in values.items())
    rows = [(rng.choice(["a", "b", None]), *(rng.choice([None, *of]) for _, of in values.values())) for _ in range(40)]
    bench.spark.createDataFrame(rows, ddl).coalesce(1).write.parquet(str(bench.place / "in"))
    stream = bench.spark.readStream.schema(ddl).parquet(str(bench.place / "in"))
    highest = ef.keyed(stream, "k").agg(**{f"max_{name}": ef.max(name) for name in values})
    query = bench.run(highest.balance(lanes=2, slots=16))
    batch = bench.spark.read.schema(ddl).parquet(str(bench.place / "in")).groupBy("k")
    expected = batch.agg(*(F.max(name).alias(f"max_{name}") for name in values))
    assert query.state().schema.simpleString() == expected.schema.simpleString()
    assert state_of(query) == rows_of(expected.toArrow())


def test_first_and_last_follow_the_order_of_rows(bench: Bench) -> None:
    tables = random_tables(2)
    bench.feed(*tables)
    stateful = ef.keyed(bench.stream(), "auction").agg(opened=ef.first("price"), closed=ef.last("price"))
    query = bench.run(stateful.balance(lanes=2, slots=16, policy=Wanderlust(), warm_up_windows=1))
    rows = pa.concat_tables(tables).to_pylist()
    opened = {row["auction"]: row["price"] for row in reversed(rows)}
    closed = {row["auction"]: row["price"] for row in rows}
    assert set(state_of(query)) == {(key, opened[key], closed[key]) for key in opened}


def test_zero_nan_and_null_are_keys_as_in_spark(bench: Bench) -> None:
    """Spark takes -0.0 for 0.0 and one NaN for another when it groups."""
    values = [0.0, -0.0, math.nan, None, 1.5, -math.nan]
    table = pa.table({"auction": [1] * 6, "bidder": ["a"] * 6, "price": list(range(6)), "ratio": values})
    bench.feed(table, table)
    query = bench.run(ef.keyed(bench.stream(), "ratio").agg(n=ef.count()).balance(lanes=2, slots=16))
    batch = bench.spark.read.parquet(str(bench.place / "in")).groupBy("ratio").count()
    assert Counter(str(row) for row in state_of(query)) == Counter(str(row) for row in rows_of(batch.toArrow()))


def test_complete_mode_puts_out_every_key_every_time(bench: Bench) -> None:
    tables = random_tables(3, epochs=3)
    bench.feed(*tables)
    seen: dict[int, Counter[Row]] = {}

    def keep(frame: DataFrame, epoch: int) -> None:
        seen[epoch] = rows_of(frame.toArrow())

    writer = bench.writer(totals(bench.stream()).balance(lanes=2, slots=16)).outputMode("complete")
    bench.started(writer.foreachBatch(keep).trigger(availableNow=True).start()).awaitTermination()
    assert seen == {epoch: Counter(Expected(tables[: epoch + 1]).state.values()) for epoch in range(3)}


# --- sinks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "json", "orc"])
def test_file_sinks(bench: Bench, kind: str) -> None:
    tables = random_tables(4, epochs=2)
    bench.feed(*tables)
    query = bench.writer(totals(bench.stream()).balance(lanes=2, slots=16), kind).trigger(availableNow=True)
    bench.started(query.start(str(bench.out))).awaitTermination()
    found = bench.spark.read.schema("auction long, total long, n long, last long").format(kind).load(str(bench.out))
    assert rows_of(found.toArrow()) == Expected(tables).published


def test_sink_options_reach_the_sink(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0))
    writer = bench.writer(totals(bench.stream()).balance(lanes=2, slots=8), "json").option("compression", "gzip")
    bench.started(writer.trigger(availableNow=True).start(str(bench.out))).awaitTermination()
    assert list(bench.out.glob("*.json.gz"))


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_memory_sink(bench: Bench, mode: str) -> None:
    tables = random_tables(5, epochs=2)
    bench.feed(*tables)
    writer = bench.writer(totals(bench.stream()).balance(lanes=2, slots=16), "memory").outputMode(mode)
    bench.started(writer.queryName(f"in_{mode}").trigger(availableNow=True).start()).awaitTermination()
    expected = Expected(tables)
    wanted = expected.published if mode == "update" else Counter(expected.state.values())
    assert rows_of(bench.spark.table(f"in_{mode}").toArrow()) == wanted


def test_console_and_noop(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.feed(one_bid_per_key(0, keys=3))
    stateful = totals(bench.stream()).balance(lanes=2, slots=8)
    writer = stateful.writeStream.format("console").option("numRows", 2).trigger(availableNow=True)
    bench.started(writer.start()).awaitTermination()
    shown = capsys.readouterr().out
    assert "Epoch: 0" in shown
    assert "only showing top 2 rows" in shown
    query = bench.started(stateful.writeStream.format("noop").trigger(availableNow=True).start())
    query.awaitTermination()
    assert sum(state_of(query).values()) == 3


def test_where_no_sink_wants_outputs_none_are_written(bench: Bench) -> None:
    tables = random_tables(4)
    bench.feed(*tables)
    query = bench.writer(totals(bench.stream()).balance(lanes=2, slots=16), "noop").trigger(availableNow=True).start()
    bench.started(query).awaitTermination()
    assert state_of(query) == Counter(Expected(tables).state.values())
    entries = [json.loads(path.read_text()) for path in (bench.place / "checkpoint/evenflow/commits").glob("*.json")]
    commits = [lane for entry in entries for lane in entry["payload"]["lanes"]]
    assert commits
    assert not [lane for lane in commits if lane.get("outputs")]


def test_to_table(bench: Bench) -> None:
    tables = random_tables(6, epochs=2)
    bench.feed(*tables[:1])
    stateful = totals(bench.stream()).balance(lanes=2, slots=16)
    for number in range(2):
        query = bench.started(bench.writer(stateful).trigger(availableNow=True).toTable("totals_of_bids"))
        query.awaitTermination()
        if number == 0:
            bench.feed(tables[1])
    assert rows_of(bench.spark.table("totals_of_bids").toArrow()) == Expected(tables).published
    bench.spark.sql("DROP TABLE totals_of_bids")


def test_to_a_table_that_is_there_in_its_own_format(bench: Bench) -> None:
    tables = random_tables(6, epochs=2)
    bench.feed(*tables)
    bench.spark.sql("CREATE TABLE totals_in_orc (auction bigint, total bigint, n bigint, last bigint) USING orc")
    writer = totals(bench.stream()).balance(lanes=2, slots=16).writeStream
    writer = writer.option("checkpointLocation", str(bench.place / "checkpoint")).trigger(availableNow=True)
    bench.started(writer.toTable("totals_in_orc")).awaitTermination()
    assert rows_of(bench.spark.table("totals_in_orc").toArrow()) == Expected(tables).published
    bench.spark.sql("DROP TABLE totals_in_orc")


def test_a_sink_that_fails_ends_the_query_and_a_restart_publishes_the_epoch(bench: Bench) -> None:
    tables = random_tables(7, epochs=3)
    bench.feed(*tables)
    published: dict[int, Counter[Row]] = {}
    broken = [1]

    def publish(frame: DataFrame, epoch: int) -> None:
        if epoch in broken:
            raise OSError("the disk is full")
        published[epoch] = rows_of(frame.toArrow())

    def start() -> ef.Query:
        writer = bench.writer(totals(bench.stream()).balance(lanes=2, slots=16)).trigger(availableNow=True)
        return bench.started(writer.foreachBatch(publish).start())

    query = start()
    with pytest.raises(OSError, match="the disk is full"):
        query.awaitTermination()
    assert isinstance(query.exception(), OSError)
    assert not query.isActive
    with pytest.raises(OSError, match="the disk is full"):  # the epoch is committed: it is published first of all
        start().awaitTermination()  # or start() itself: whichever comes first, lanes or the sink's error
    bench.no_jobs_are_left()
    broken.clear()
    start().awaitTermination()
    assert sum(published.values(), Counter()) == Expected(tables).published


# --- life --------------------------------------------------------------------------------------------------------


def test_stop_restart_and_another_number_of_lanes(bench: Bench) -> None:
    tables = random_tables(8, epochs=4)
    ids = set()
    for number, lanes in enumerate([2, 3, 1, 2]):
        bench.feed(tables[number])
        query = bench.start(totals(bench.stream()).balance(lanes=lanes, slots=16, policy="static"))
        assert query.isActive
        places = {row["lane"]: (row["pid"], row["host"]) for row in query.lanes()}
        assert places.keys() == set(range(lanes)), "they are there before the first epoch"
        assert sum(row["slots"] for row in query.lanes()) == 16
        assert all(pid and host for pid, host in places.values())
        query.processAllAvailable()
        ids.add(query.id)
        assert {row["lane"] for row in query.lanes()} == set(range(lanes))
        assert all(row["slots"] for row in query.lanes()), "every lane has something to do"
        query.stop()
        assert not query.isActive
        assert query.exception() is None
        assert query.awaitTermination(1) is True
        assert {row["lane"]: (row["pid"], row["host"]) for row in query.lanes()} == places, "also when it has ended"
        bench.no_jobs_are_left()
    assert len(ids) == 1
    expected = Expected(tables)
    assert set(state_of(query)) == set(expected.state.values())
    assert read_published(bench.out) == expected.published


def test_processing_time_trigger_and_waiting_with_a_timeout(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0), one_bid_per_key(1))
    writer = bench.writer(totals(bench.stream()).balance(lanes=2, slots=8)).trigger(processingTime="100 milliseconds")
    query = bench.started(writer.queryName("ticking").start(str(bench.out)))
    query.processAllAvailable()
    assert query.awaitTermination(0.1) is False
    assert query.name == "ticking"
    assert query.status["isDataAvailable"] is False
    query.stop()
    query.stop()  # again is fine
    assert sum(read_published(bench.out).values()) == 80


def test_a_running_query_tells_about_itself(bench: Bench) -> None:
    tables = [one_bid_per_key(epoch) for epoch in range(3)]
    bench.feed(*tables)
    query = bench.run(totals(bench.stream()).balance(lanes=2, slots=8, policy="static"))
    assert [progress["epoch"] for progress in query.recentProgress] == [0, 1, 2]
    last: Any = query.lastProgress
    assert last == query.recentProgress[-1]
    assert json.loads(json.dumps(last)) == last
    assert last["id"] == query.id
    assert last["numInputRows"] == 40
    assert last["processedRowsPerSecond"] > 0
    assert last["state"]["rows"] == 40
    assert last["state"]["bytes"] > 0
    assert last["moves"] == 0
    assert set(last["latency"]) == {"p50_s", "p95_s", "p99_s", "max_s"}
    assert 0 < last["latency"]["p50_s"] <= last["latency"]["max_s"]
    assert last["imbalance"]["maxOverMean"] >= 1
    assert set(last["durationMs"]) == {"route", "wait", "accept", "work", "publish"}
    assert [lane["lane"] for lane in last["lanes"]] == [0, 1]
    assert sum(lane["rows"] for lane in last["lanes"]) == 40
    assert all(lane["busy_s"] > 0 and lane["idle_s"] >= 0 for lane in last["lanes"])
    assert sum(row["records"] for row in query.slots()) == 40
    assert {row["slot"]: row["lane"] for row in query.slots()} == {slot: slot % 2 for slot in range(8)}
    assert query.moves() == []
    assert len(query.journal()) > 0
    assert query.journal().as_dicts()


def test_a_query_says_how_many_lanes_it_took_and_why(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0))
    last = bench.run(totals(bench.stream()).balance(slots=8)).lastProgress
    assert last is not None
    assert [row["lane"] for row in last["lanes"]] == [0, 1]
    assert last["lanesWhy"] == "of 4 free task slots, 2 for reading, routing and sinks"


def test_a_saved_journal_holds_the_windows_and_can_be_read_again(bench: Bench, tmp_path: Path) -> None:
    bench.feed(*[one_bid_per_key(epoch) for epoch in range(3)])
    query = bench.run(totals(bench.stream()).balance(lanes=2, slots=8, policy="static"))
    query.save_journal(tmp_path / "journal.json")
    file = read_window_json((tmp_path / "journal.json").read_bytes(), "journal")
    assert [int(window.slots.records.sum()) for window in file.windows] == [40, 40, 40]
    assert file.table.owners.tolist() == [slot % 2 for slot in range(8)]
    with pytest.raises(ef.InputError, match="cannot write"):
        query.save_journal(tmp_path / "no" / "journal.json")


# --- the user's own state ----------------------------------------------------------------------------------------


class Loudest(ef.SlotOperator):
    """Keeps the highest price per auction in a dict."""

    output = "auction long, best long"

    def init(self) -> dict[Any, int]:
        return {}

    def process(self, state: dict[Any, int], rows: Any) -> tuple[dict[Any, int], pa.Table]:
        touched = {}
        for row in rows.to_pylist():
            touched[row["auction"]] = state[row["auction"]] = max(
                state.get(row["auction"], -1000), row["price"] if row["price"] is not None else -1000
            )
        return state, pa.table({"auction": pa.array(list(touched), pa.int64()), "best": list(touched.values())})


class LoudestInPandas(Loudest):
    """The same with frames, and with a frame as state."""

    frame = "pandas"
    columns_needed = ("price",)

    def init(self) -> Any:
        return pd.DataFrame({"auction": pd.array([], "Int64"), "best": pd.array([], "Int64")})

    def process(self, state: Any, rows: Any) -> tuple[Any, Any]:
        new = pd.DataFrame(
            {"auction": rows["auction"].astype("Int64"), "best": rows["price"].astype("Int64").fillna(-1000)}
        )
        both = pd.concat([state, new]).groupby("auction", dropna=False, as_index=False)["best"].max()
        touched = both[both["auction"].isin(new["auction"]) | (both["auction"].isna() & new["auction"].isna().any())]
        return both, touched


class LoudestInArrow(Loudest):
    """The same with a table as state."""

    def init(self) -> Any:
        return pa.schema([("auction", pa.int64()), ("best", pa.int64())]).empty_table()

    def process(self, state: Any, rows: Any) -> tuple[Any, Any]:
        new = pa.table({"auction": rows["auction"], "best": pc.fill_null(rows["price"], -1000)})
        both = pa.concat_tables([state, new]).group_by("auction").aggregate([("best", "max")])
        both = both.rename_columns(["auction", "best"])
        touched = pc.is_in(both["auction"], value_set=new["auction"].combine_chunks())
        return both, both.filter(touched)


@pytest.mark.parametrize("operator", [Loudest(), LoudestInPandas(), LoudestInArrow()], ids=lambda op: type(op).__name__)
def test_state_of_ones_own_with_moves_and_a_restart(bench: Bench, operator: ef.SlotOperator) -> None:
    tables = random_tables(9, epochs=6)
    bench.feed(*tables[:3])
    for number in range(2):
        stateful = (
            ef.keyed(bench.stream(), "auction")
            .apply(operator)
            .balance(
                lanes=2,
                slots=8,
                policy=Wanderlust(),
                strategy="sudden",
                warm_up_windows=1,
                settle_windows=0,
                max_lag=0,  # what the first epoch shows is acted on within the three there are
            )
        )
        query = bench.run(stateful)
        if number == 0:
            bench.feed(*tables[3:])
    best: dict[Any, int] = {}
    expected: Counter[Row] = Counter()
    for table in tables:
        rows = table.to_pylist()
        for row in rows:
            best[row["auction"]] = max(best.get(row["auction"], -1000), -1000 if row["price"] is None else row["price"])
        expected.update((key, best[key]) for key in {row["auction"] for row in rows})
    assert read_published(bench.out) == expected
    assert query.moves()
    held = query.state().collect()
    assert {row["slot"] for row in held} == set(range(8))
    kept = {None if row["key"] is None else int(row["key"]): json.loads(row["value"]) for row in held}
    assert {key: value["best"] if isinstance(value, dict) else value for key, value in kept.items()} == best


class Broken(ef.SlotOperator):
    """Raises in the second epoch; a ConnectionError, which must not be taken for that of the lane."""

    output = "auction long"

    def init(self) -> int:
        return 0

    def process(self, state: int, rows: Any) -> tuple[int, None]:
        if any(price >= 1000 for price in rows["price"].to_pylist()):
            raise ConnectionError("the service is away")
        return state + 1, None


def test_an_operator_that_raises_ends_the_query_with_its_words(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0))
    query = bench.start(ef.keyed(bench.stream(), "auction").apply(Broken()).balance(lanes=2, slots=8))
    query.processAllAvailable()
    bench.feed(one_bid_per_key(1))
    with pytest.raises(
        LaneFailedError, match=r"lane \d failed: .*Broken, slot \d+, epoch 1: ConnectionError: the service"
    ):
        query.processAllAvailable()
    with pytest.raises(LaneFailedError, match="the service is away"):
        query.awaitTermination()
    assert isinstance(query.exception(), LaneFailedError)
    assert not query.isActive
    bench.no_jobs_are_left()
    query.stop()


def test_two_queries_side_by_side(bench: Bench) -> None:
    tables = random_tables(10, epochs=2)
    bench.feed(*tables)
    queries = [
        bench.started(
            totals(bench.stream())
            .balance(lanes=1, slots=8)
            .writeStream.format("noop")
            .option("checkpointLocation", str(bench.place / f"checkpoint{number}"))
            .start()
        )
        for number in range(2)
    ]
    for query in queries:
        query.processAllAvailable()
        assert set(state_of(query)) == set(Expected(tables).state.values())


def test_the_output_of_a_killed_run_is_not_read_twice(bench: Bench) -> None:
    """What the sink is in the middle of writing is hidden from readers."""
    bench.feed(one_bid_per_key(0))
    bench.run(totals(bench.stream()).balance(lanes=2, slots=8))
    names = [path.name for path in Path(bench.out).iterdir() if path.name != "_evenflow"]
    assert len(names) == 2
    assert all(name.startswith("part-epoch0000000000-") for name in names)
