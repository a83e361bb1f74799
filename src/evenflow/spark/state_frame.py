"""`query.state()`: one epoch's state as a DataFrame, read in Spark tasks, so that the driver holds none of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
import pyarrow as pa

from evenflow.lane import LaneConfig, LaneStage
from evenflow.lane.cut import Portion, read
from evenflow.spark.internals import StateFrame, spark_schema
from evenflow.spark.shell import Shell
from evenflow.state import Folder, Retries


def state_of(shell: Shell, stage: LaneStage) -> StateFrame:
    """Return the state of a stage at the newest epoch that any slot of it has reached.

    It is kept by Spark, in memory or on its disks, for as long as somebody has the frame: the query removes its own
    files as it goes on.
    """
    schema = spark_schema(stage.view_schema)
    with shell.cut(stage.units) as cut:
        portions = [(msgspec.msgpack.encode(portion),) for portion in cut.portions]
        frame = shell.spark.createDataFrame(portions, "portion binary").mapInArrow(_reader(shell.config, stage), schema)
        return StateFrame(frame.localCheckpoint(eager=True), cut.epoch)


def _reader(config: LaneConfig, stage: LaneStage) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = Folder.at(config.location, retries=Retries(config.retry_s, config.query))
        for batch in batches:
            for portion in batch["portion"].to_pylist():
                yield from read(stage, folder, msgspec.msgpack.decode(portion, type=Portion))

    return rows
