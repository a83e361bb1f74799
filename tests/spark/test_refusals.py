"""What cannot work is refused at start with a sentence that says what to change, and nothing is touched."""

from __future__ import annotations

import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import evenflow as ef
from evenflow.errors import CheckpointMismatchError, DamagedFileError, EvenflowError, InputError, UnreachableError
from evenflow.spark.stream import StatefulStream
from tests.spark.streams import Bench, files_below, one_bid_per_key, totals

pytestmark = pytest.mark.spark


class Nothing(ef.SlotOperator):
    """Does nothing."""

    output = "auction long"

    def process(self, state: Any, rows: Any) -> tuple[Any, None]:  # noqa: ARG002 - whatever comes
        return state, None


@pytest.fixture
def untouched(bench: Bench) -> Iterator[Bench]:
    """Give a bench, and see at the end that no file was made, changed or removed, and that no lane runs."""
    bench.feed(one_bid_per_key(0))
    bench.stream()
    before = dict(files_below(bench.place))
    yield bench
    assert dict(files_below(bench.place)) == before
    bench.no_jobs_are_left()


# --- what is wrong in itself -------------------------------------------------------------------------------------


def test_a_batch_frame(untouched: Bench) -> None:
    with pytest.raises(InputError, match="expected a streaming DataFrame"):
        ef.keyed(untouched.spark.range(3), "id")


# --- what does not fit the session -------------------------------------------------------------------------------


def test_too_few_task_slots(untouched: Bench) -> None:
    with pytest.raises(
        InputError,
        match=r"4 lanes and routing need 5 task slots, the session \(local\[4\]\) has 4: "
        r"1 are missing; use master local\[5\], or balance\(lanes=3\)",
    ):
        untouched.start(totals(untouched.stream()).balance(lanes=4))


def test_task_slots_that_another_query_holds(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0))
    running = bench.start(totals(bench.stream()).balance(lanes=2, slots=8))
    other = totals(bench.stream()).balance(lanes=2, slots=8).writeStream
    with pytest.raises(InputError, match=r"has 4, of which lanes of other queries hold 2: 1 are missing"):
        other.option("checkpointLocation", str(bench.place / "other")).start(str(bench.place / "other_out"))
    assert not (bench.place / "other").exists()
    running.processAllAvailable()


def test_a_checkpoint_whose_query_is_running(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0))
    running = bench.start(totals(bench.stream()).balance(lanes=1, slots=8))
    running.processAllAvailable()
    with pytest.raises(InputError, match="is running in this session: stop it first"):
        bench.start(totals(bench.stream()).balance(lanes=1, slots=8))
    bench.feed(one_bid_per_key(1))
    running.processAllAvailable()


def test_speculation(untouched: Bench) -> None:
    conf = untouched.spark.sparkContext._conf
    conf.set("spark.speculation", "true")
    try:
        with pytest.raises(InputError, match=r"set spark\.speculation=false"):
            untouched.start(totals(untouched.stream()).balance(lanes=2))
    finally:
        conf.set("spark.speculation", "false")


# --- where it should write ---------------------------------------------------------------------------------------


def test_no_checkpoint_location(untouched: Bench) -> None:
    with pytest.raises(InputError, match=r"set option\('checkpointLocation', \.\.\.\)"):
        totals(untouched.stream()).balance(lanes=2).writeStream.format("parquet").start(str(untouched.out))


def test_no_path_and_no_name(untouched: Bench) -> None:
    stateful = totals(untouched.stream()).balance(lanes=2)
    with pytest.raises(InputError, match=r"format 'json' needs a path: start\('out'\).*format\('noop'\)"):
        untouched.writer(stateful, "json").start()
    with pytest.raises(InputError, match=r"format 'parquet' needs a path: start\('out'\).*format\('noop'\)"):
        stateful.writeStream.option("checkpointLocation", str(untouched.place / "checkpoint")).start()
    with pytest.raises(InputError, match="the memory sink needs queryName"):
        untouched.writer(stateful, "memory").start()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("evenflow.arrivalColumn", "arived", "names a timestamp column, got 'arived': there is none of this name"),
        ("evenflow.arrivalColumn", "price", "names a timestamp column, got 'price': it is a bigint"),
        ("evenflow.rowsPerSecond", "fast", "rowsPerSecond is a number above 0, got 'fast'"),
        ("evenflow.rowsPerSecond", 0, "rowsPerSecond is a number above 0, got '0'"),
        (
            "evenflow.storageRetrySeconds",
            -1,
            "storageRetrySeconds is a number of seconds, 0 for no second try, got '-1'",
        ),
        ("evenflow.storageRetrySeconds", "long", "storageRetrySeconds is a number of seconds, .* got 'long'"),
        ("path", "nowhere://host/path", "the sink's path nowhere://host/path.* cannot be reached"),
    ],
)
def test_options_that_mean_nothing(untouched: Bench, option: str, value: object, message: str) -> None:
    writer = untouched.writer(totals(untouched.stream()).balance(lanes=2)).option("path", str(untouched.out))
    with pytest.raises(EvenflowError, match=message):
        writer.option(option, value).start()


def test_an_interval_that_is_none(untouched: Bench) -> None:
    """Another driver that is at the checkpoint must go on, and no thread may be left that listens for lanes."""
    writer = untouched.writer(totals(untouched.stream()).balance(lanes=2)).trigger(processingTime="5 lightyears")
    with pytest.raises(InputError, match=r"trigger expects an interval like '5 seconds': .*5 lightyears"):
        writer.start(str(untouched.out))
    assert "evenflow-links" not in {thread.name for thread in threading.enumerate()}


def test_complete_mode_of_files(untouched: Bench) -> None:
    """Each epoch's rows would come on top of the same rows of the epoch before; Spark refuses it as well."""
    writer = untouched.writer(totals(untouched.stream()).balance(lanes=2)).outputMode("complete")
    message = "complete mode gives all rows every time, and {} files can only be added: use outputMode.'update'.*delta"
    with pytest.raises(InputError, match=message.format("parquet")):
        writer.start(str(untouched.out))
    with pytest.raises(InputError, match=message.format("json")):
        writer.format("json").start(str(untouched.out))
    with pytest.raises(InputError, match=message.format("json")):
        writer.toTable("never_made")
    assert not untouched.spark.catalog.tableExists("never_made")


TABLES: dict[str, tuple[str, str]] = {
    "another format": ("TABLE {} (auction long) USING json", "a table of format parquet, but {} is one of format json"),
    "a view": ("VIEW {} AS SELECT 1 AS auction", "expected a table of format parquet, but {} is a view"),
    "other partitions": (
        "TABLE {} (auction long, total long, n long, last long) USING parquet PARTITIONED BY (last)",
        "{} is partitioned by last, and partitionBy says n: leave partitionBy out",
    ),
    "buckets": (
        "TABLE {} (auction long, total long, n long, last long) USING parquet CLUSTERED BY (n) INTO 2 BUCKETS",
        "{} is bucketed, and files are added to tables without buckets only",
    ),
    "other columns": (
        "TABLE {} (auction long, total double) USING parquet",
        "{} is there with columns auction bigint, total double; the query puts out auction bigint, total bigint, n ",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_is_there_and_does_not_fit(untouched: Bench, name: str) -> None:
    statement, message = TABLES[name]
    table = f"{name.replace(' ', '_')}_is_there"
    untouched.spark.sql("CREATE " + statement.format(table))
    try:
        with pytest.raises(InputError, match=message.format(table)):
            untouched.writer(totals(untouched.stream()).balance(lanes=2)).toTable(
                table, partitionBy="n" if name == "other partitions" else None
            )
        assert untouched.spark.table(table).count() == (1 if name == "a view" else 0)
    finally:
        untouched.spark.sql(f"DROP {statement.split()[0]} {table}")


def test_a_table_of_a_format_that_tables_do_not_have(untouched: Bench) -> None:
    writer = untouched.writer(totals(untouched.stream()).balance(lanes=2), "console")
    with pytest.raises(InputError, match=r"a table's format is one of parquet, .* got 'console'"):
        writer.toTable("never_made")


def test_a_start_that_is_refused_makes_no_table(untouched: Bench) -> None:
    writer = totals(untouched.stream()).balance(lanes=2).writeStream
    with pytest.raises(InputError, match=r"set option.'checkpointLocation'"):  # a table outlives the query
        writer.toTable("never_made")
    with pytest.raises(InputError, match="task slots"):
        untouched.writer(totals(untouched.stream()).balance(lanes=9, slots=16)).toTable("never_made")
    assert not untouched.spark.catalog.tableExists("never_made")


def test_complete_mode_of_ones_own_state(untouched: Bench) -> None:
    stateful = ef.keyed(untouched.stream(), "auction").apply(Nothing()).balance(lanes=2)
    with pytest.raises(InputError, match="complete mode needs aggregates"):
        untouched.started(untouched.writer(stateful).outputMode("complete").start(str(untouched.out)))


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("in/00000.parquet/below", "cannot .*in/00000.parquet"),
        ("nowhere://host/path", "checkpoint location nowhere://host/path.* cannot be reached"),
    ],
)
def test_a_location_that_cannot_be_reached(untouched: Bench, location: str, message: str) -> None:
    where = location if "://" in location else str(untouched.place / location)
    writer = totals(untouched.stream()).balance(lanes=2).writeStream.format("noop").option("checkpointLocation", where)
    with pytest.raises(UnreachableError, match=message):
        untouched.started(writer.start())


def test_a_location_that_holds_something_else(untouched: Bench) -> None:
    writer = totals(untouched.stream()).balance(lanes=2).writeStream.format("noop")
    with pytest.raises(CheckpointMismatchError, match=r"belongs to something else: it holds 00000\.parquet"):
        writer.option("checkpointLocation", str(untouched.place / "in")).start()


# --- a checkpoint of before --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Path:
    """A checkpoint of the totals, two epochs old; to be copied."""
    bench = Bench(spark, tmp_path_factory.mktemp("written"))
    bench.feed(one_bid_per_key(0), one_bid_per_key(1))
    bench.run(totals(bench.stream()).balance(lanes=2, slots=32))
    return bench.place / "checkpoint"


@pytest.fixture
def copied(written: Path, bench: Bench) -> Bench:
    shutil.copytree(written, bench.place / "checkpoint")
    return bench


CHANGED: dict[str, tuple[Callable[[DataFrame], StatefulStream], str]] = {
    "keys": (
        lambda df: ef.keyed(df, "bidder").agg(total=ef.sum("price"), n=ef.count(), last=ef.last("price")),
        "key columns: was auction, is bidder.*give keyed.* the same columns in the same order",
    ),
    "key type": (
        lambda df: totals(df.withColumn("auction", df["auction"].cast("string"))),
        "types of the key columns: was int64, is .*string.*cast the keys to the types they had",
    ),
    "slots": (lambda df: totals(df).balance(slots=16), "number of slots: was 32, is 16.*the same slots"),
    "operator": (
        lambda df: ef.keyed(df, "auction").agg(total=ef.sum("price"), n=ef.count(), last=ef.first("price")),
        r"aggregate last: was last\(price\), is first\(price\).*give first\(price\) a name of its own",
    ),
    "schema": (
        lambda df: totals(df.withColumn("price", df["price"].cast("double"))),
        r"values of total=sum\(price\): were int64, are double.*cast the column to int64 or wider",
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_query_that_was_changed(copied: Bench, name: str) -> None:
    change, message = CHANGED[name]
    stateful = change(copied.stream())
    before = dict(files_below(copied.place))
    with pytest.raises(CheckpointMismatchError, match=f"(?s){message}") as raised:
        copied.start(stateful.balance(lanes=2, slots=16 if name == "slots" else 32))
    assert "It was not touched" in str(raised.value)
    assert dict(files_below(copied.place)) == before


def test_another_output_mode(copied: Bench) -> None:
    before = dict(files_below(copied.place))
    writer = copied.writer(totals(copied.stream()).balance(lanes=2, slots=32)).outputMode("complete")
    with pytest.raises(CheckpointMismatchError, match="output mode: was update, is complete"):
        writer.foreachBatch(lambda _rows, _epoch: None).start()
    assert dict(files_below(copied.place)) == before


@pytest.mark.parametrize("folder", ["work", "commits", "epochs", "base", "published", "identity.json"])
@pytest.mark.parametrize("harm", ["missing", "cut short", "flipped"])
def test_a_damaged_file_is_named_and_nothing_starts_from_empty(copied: Bench, folder: str, harm: str) -> None:
    """Data files are read when lanes start, records before."""
    top = copied.place / "checkpoint" / "evenflow" / folder
    if top.is_dir():
        top = max(top.iterdir())
    content = top.read_bytes()
    if harm == "missing":
        top.unlink()
    else:
        at = min(200, len(content) // 3)  # of a lane's file: in the changes, which are at its beginning
        flipped = bytes([content[at] ^ 1])
        top.write_bytes(content[:at] if harm == "cut short" else content[:at] + flipped + content[at + 1 :])
    with pytest.raises(ef.EvenflowError, match=top.parent.name if harm == "missing" else top.name) as raised:
        copied.start(totals(copied.stream()).balance(lanes=2, slots=32))
    assert "damaged" in str(raised.value)
    copied.no_jobs_are_left()


def test_spark_s_part_of_the_checkpoint_is_gone(copied: Bench) -> None:
    """It would begin with epoch 0 again, which we have: its rows would be skipped without a word."""
    shutil.rmtree(copied.place / "checkpoint" / "spark")
    before = dict(files_below(copied.place))
    with pytest.raises(DamagedFileError, match=r"epoch 1 was accepted, but Spark's own part .*offsets/1 is missing"):
        copied.start(totals(copied.stream()).balance(lanes=2, slots=32))
    assert dict(files_below(copied.place)) == before


def test_our_part_of_the_checkpoint_is_gone(copied: Bench) -> None:
    shutil.rmtree(copied.place / "checkpoint" / "evenflow")
    before = dict(files_below(copied.place))
    with pytest.raises(CheckpointMismatchError, match="holds spark"):
        copied.start(totals(copied.stream()).balance(lanes=2, slots=32))
    assert dict(files_below(copied.place)) == before


def test_an_operator_of_another_name(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0))

    class Other(Nothing):
        pass

    bench.run(ef.keyed(bench.stream(), "auction").apply(Nothing()).balance(lanes=1, slots=8))
    with pytest.raises(CheckpointMismatchError, match=r"operator: was .*Nothing.* is .*Other"):
        bench.start(ef.keyed(bench.stream(), "auction").apply(Other()).balance(lanes=1, slots=8))


def test_executors_without_evenflow_are_told_of(bench: Bench, tmp_path: Path) -> None:
    """The Python of the workers is made to know nothing of evenflow."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hides:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'evenflow':\n"
        '            raise ModuleNotFoundError(f"No module named {name!r}", name=name)\n'
        "sys.meta_path.insert(0, Hides())\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{hidden}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    context = bench.spark.sparkContext
    usual, context.pythonExec = context.pythonExec, str(python)
    try:
        with pytest.raises(EvenflowError, match=r"executors has no module 'evenflow': .*--py-files.*docs/deploy\.md"):
            bench.start(totals(bench.stream()).balance(lanes=2, slots=8))
    finally:
        context.pythonExec = usual
    bench.no_jobs_are_left()


def test_a_port_that_is_taken(untouched: Bench) -> None:
    context = untouched.spark.sparkContext
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.MonkeyPatch.context() as patch:
        conf = context.getConf().set("spark.port.maxRetries", "0")
        patch.setattr(type(context), "getConf", lambda _: conf)
        port = taken.getsockname()[1]
        writer = untouched.writer(totals(untouched.stream()).balance(lanes=2)).option("evenflow.driver.port", port)
        with pytest.raises(InputError, match=rf"ports {port} to {port} are all in use"):
            writer.start(str(untouched.out))


def test_a_fixed_port_is_where_lanes_connect(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bench.feed(one_bid_per_key(0))
    writer = bench.writer(totals(bench.stream()).balance(lanes=2, slots=8)).option("evenflow.driver.port", port)
    query = bench.started(writer.start(str(bench.out)))
    query.processAllAvailable()
    assert port <= query._shell.links.address[1] <= port + 16
