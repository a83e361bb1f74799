"""`query.state()`: one epoch's state as a DataFrame, read in Spark tasks, so that the driver holds none of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
import pyarrow as pa

from evenflow.lane import LaneConfig
from evenflow.lane.cut import Portion, read
from evenflow.spark.internals import StateFrame, spark_schema
from evenflow.spark.shell import Shell
from evenflow.state import Folder, Retries


def state_of(shell: Shell) -> StateFrame:
    """Return the state at the newest epoch that any slot has reached.

    It is kept by Spark, in memory or on its disks, for as long as somebody has the frame: the query removes its own
    files as it goes on.
    """
    config = shell.config
    schema = spark_schema(config.operator.view_schema(config.schema, config.keys))
    with shell.cut() as cut:
        portions = [(msgspec.msgpack.encode(portion),) for portion in cut.portions]
        frame = shell.spark.createDataFrame(portions, "portion binary").mapInArrow(_reader(config), schema)
        return StateFrame(frame.localCheckpoint(eager=True), cut.epoch)


def _reader(config: LaneConfig) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = Folder.at(config.location, retries=Retries(config.retry_s, config.query))
        for batch in batches:
            for portion in batch["portion"].to_pylist():
                yield from read(config, folder, msgspec.msgpack.decode(portion, type=Portion))

    return rows
