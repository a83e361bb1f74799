"""What sinks are handed: frames with a partition per file, a view that grows by what is added, files made by lanes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from evenflow.spark import sink
from evenflow.spark.internals import ViewInMemory, spark_schema
from evenflow.spark.sink import FrameSink, MemorySink
from evenflow.state import ARROW, FileRef, Folder, OutputFormat, Retries, output_name, write_output
from tests.spark.streams import Bench, Expected, one_bid_per_key, read_published, rows_of, totals

pytestmark = pytest.mark.spark


def outputs(place: Path, lanes: int, *, epoch: int = 0, form: OutputFormat = ARROW) -> list[FileRef]:
    folder = Folder.at(str(place))
    rows = [pa.table({"lane": [lane, lane], "word": [f"{epoch}", None]}) for lane in range(lanes)]
    return [write_output(folder, output_name(epoch, lane, "a", form.ending), rows[lane], form) for lane in range(lanes)]


@pytest.mark.parametrize("form", [ARROW, OutputFormat("snappy")], ids=["arrow", "parquet"])
@pytest.mark.parametrize("small", [True, False])
def test_a_large_epoch_has_a_partition_per_file_and_a_small_one_has_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool, form: OutputFormat
) -> None:
    files = outputs(tmp_path, 3, form=form)
    monkeypatch.setattr(sink, "SMALL_EPOCH", sum(file.size for file in files) - (0 if small else 1))
    seen: list[tuple[int, list[list[tuple[Any, ...]]]]] = []

    def write(frame: DataFrame, epoch: int) -> None:
        seen.append((epoch, [[tuple(row) for row in part] for part in frame.rdd.glom().collect()]))

    FrameSink(spark, str(tmp_path), spark.createDataFrame([], "lane long, word string").schema, write).publish(7, files)
    parts = [[(lane, "0"), (lane, None)] for lane in range(3)]
    assert seen == [(7, [[row for part in parts for row in part]] if small else parts)]


def test_the_memory_sink_touches_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """And the view is made once: what is read from it later shows what was added since."""
    schema = spark.createDataFrame([], "lane long, word string").schema
    touched: list[int] = []

    class Watched(ViewInMemory):
        def add(self, frame: DataFrame, epoch: int, *, replaces: bool) -> None:
            touched.append(frame.count())
            super().add(frame, epoch, replaces=replaces)

    def published(name: str, *, complete: bool) -> list[int]:
        touched.clear()
        into = FrameSink(spark, str(tmp_path), schema, MemorySink(Watched(spark, schema, name), complete))
        view, counts = spark.table(name), []
        for epoch in range(6):
            into.publish(epoch, outputs(tmp_path, 2, epoch=epoch))
            counts.append(spark.table(name).count())
        assert view.columns == ["lane", "word"]
        assert touched == [4] * 6, "an epoch costs what it adds"
        return counts

    try:
        assert published("grows", complete=False) == [4, 8, 12, 16, 20, 24]
        assert published("stays", complete=True) == [4] * 6
        words = Counter(row.word for row in spark.table("stays").collect())
        assert words == {"5": 2, None: 2}
    finally:
        for name in ("grows", "stays"):
            spark.catalog.dropTempView(name)


def test_lanes_write_the_files_that_readers_see(bench: Bench) -> None:
    tables = [one_bid_per_key(epoch) for epoch in range(2)]
    bench.feed(*tables)
    writer = bench.writer(totals(bench.stream()).balance(lanes=2, slots=8), "parquet").option("compression", "zstd")
    query = bench.started(writer.trigger(availableNow=True).start(str(bench.out)))
    query.awaitTermination()
    found = sorted(bench.out.glob("part-*"))
    assert [path.name for path in found] == [
        f"part-epoch{epoch:010d}-{query.id}-{lane:05d}.zstd.parquet" for epoch in range(2) for lane in range(2)
    ], "one of each lane and epoch"
    assert {pq.ParquetFile(path).metadata.row_group(0).column(0).compression for path in found} == {"ZSTD"}
    assert read_published(bench.out) == Expected(tables).published
    assert not list((bench.out / "_evenflow" / "staged" / query.id).iterdir())


def test_a_sink_that_was_changed_gets_what_the_run_before_has_left(bench: Bench) -> None:
    """From Parquet to a function and back, each time with an epoch that was committed and not published."""
    tables = [one_bid_per_key(epoch) for epoch in range(3)]
    heard: Counter[Any] = Counter()

    def refuse(_frame: DataFrame, _epoch: int) -> None:
        raise RuntimeError("not now")

    def hear(frame: DataFrame, _epoch: int) -> None:
        heard.update(rows_of(frame.toArrow()))

    def run(**how: Any) -> None:
        writer = bench.writer(totals(bench.stream()).balance(lanes=2, slots=8), "parquet")
        writer = writer.foreachBatch(how["function"]) if "function" in how else writer
        writer = writer.trigger(availableNow=True)
        query = bench.started(writer.start() if "function" in how else writer.start(str(bench.out)))
        query.awaitTermination()

    bench.feed(tables[0])
    with pytest.raises(Exception, match="not now"):
        run(function=refuse)
    bench.feed(tables[1])
    run()
    assert read_published(bench.out) == Expected(tables[:2]).published
    bench.feed(tables[2])
    run(function=hear)
    assert read_published(bench.out) + heard == Expected(tables).published


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_rows_after_a_piece_without_any_are_there(bench: Bench, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    """An operator's rows come in pieces, such as what it folded and what it fired; Spark stops at one without rows."""
    monkeypatch.setattr(sink, "SMALL_EPOCH", small)
    some = pa.table({"n": pa.array([1, 2], pa.int64())})
    rows = pa.concat_tables([some.slice(0, 0), some, some.slice(0, 0), some])
    file = Folder.at(str(bench.place)).write_table("out", rows)
    frame = sink.frame_of(bench.spark, str(bench.place), spark_schema(rows.schema), [file, file], Retries())
    assert sorted(row.n for row in frame.collect()) == [1] * 4 + [2] * 4
