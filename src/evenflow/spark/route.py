"""Route: rows to blocks. Spark computes the slot, Arrow and numpy sort by (lane, slot), one file per task is written.

*direct*: each route task writes one file with a segment per lane, or several where it has many rows.
*shuffle*: Spark's shuffle first brings each lane's rows together (`repartitionById`), then one task per lane writes one
file. As many files as lanes, however many tasks read the source.

What is planned once, on the stream itself, costs an epoch nothing; the routing table travels as a local property of
the job.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from evenflow.model import Heard, RoutingTable
from evenflow.model.slots import IntArray
from evenflow.operators.arrays import pieces
from evenflow.operators.base import HASH, SLOT
from evenflow.spark.columns import quoted
from evenflow.spark.internals import arrow_frames, arrow_schema
from evenflow.state import Block, Folder, Retries, Segment, block_name

Exchange = Literal["direct", "shuffle"]

_TABLE_PROPERTY = "evenflow.table"
_EPOCH_PROPERTY = "evenflow.epoch"
ARRIVAL = "__arrival"  # when a row arrived
_SAMPLES = 64  # arrival times kept per portion, for latencies
_PORTION = 64 << 20  # bytes of rows that a task sorts and writes at a time; it holds them up to three times


@dataclass(frozen=True)
class Routed:
    """The blocks of an epoch, and when some rows arrived: (seconds since 1970, how many rows it stands for).

    `heard` is what the rows say of event time.
    """

    blocks: tuple[Block, ...]
    arrivals: tuple[tuple[float, float], ...]
    heard: Heard = field(default_factory=Heard)


@dataclass(frozen=True)
class Router:
    """How rows of one query get to blocks."""

    keys: tuple[str, ...]
    selected: tuple[Column, ...]  # keys and value columns, each under its name
    slots: int
    location: str
    needs_hash: bool
    exchange: Exchange
    tasks: int
    arrival: str | None = None  # a timestamp column that says when a row arrived
    hear: Callable[[], Heard] = Heard  # asked when a batch has been read: what its rows say of event time
    retries: Retries = field(default_factory=Retries)

    def prepared(self, stream: DataFrame) -> DataFrame:
        """Return the stream as foreachBatch must see it: with slots, and for *direct* in as many parts as tasks."""
        narrow = stream.select(*self.selected, *self._arrival_column()).select("*", *self._hash_columns())
        return narrow.coalesce(self.tasks) if self.exchange == "direct" else narrow

    def route(self, batch: DataFrame, epoch: int, table: RoutingTable) -> Routed:
        """Write the blocks of one epoch and return their index."""
        context = batch.sparkSession.sparkContext
        context.setLocalProperty(_TABLE_PROPERTY, _packed(table))
        context.setLocalProperty(_EPOCH_PROPERTY, str(epoch))
        if self.exchange == "shuffle":
            batch = batch.repartitionById(len(table.lanes), lane_column(table))
        frames, wire = arrow_frames(batch)
        write = _writer(self.location, wire, arrow_schema(batch.schema), self.retries)
        # The order of the tasks is part of what makes an epoch deterministic.
        written = sorted(frames.mapPartitions(write).collect(), key=lambda part: part.task)
        return Routed(tuple(part.block for part in written), _arrivals(written), self.hear())

    def _arrival_column(self) -> Iterator[Column]:
        if self.arrival is not None:
            yield F.unix_micros(F.col(quoted(self.arrival))).alias(ARRIVAL)

    def _hash_columns(self) -> Iterator[Column]:
        keys = [F.col(quoted(key)) for key in self.keys]
        # xxhash64 skips nulls, so (null, x) and (x, null) would always meet; their null flags tell them apart.
        flags = [key.isNull() for key in keys] if len(keys) > 1 else []
        hashed = F.xxhash64(*keys, *flags)
        if self.needs_hash:
            yield hashed.alias(HASH)
        yield F.pmod(hashed, F.lit(self.slots)).cast("short").alias(SLOT)


def lane_column(table: RoutingTable) -> Column:
    """Return the position of each row's lane, for Spark's shuffle.

    The table goes to the JVM as one text, whatever the number of slots: a literal per slot would be two calls each, and
    as many nodes for Spark's optimizer. Spark folds the text into one literal, an array, before it runs.
    """
    positions = ",".join(map(str, table.lane_positions().tolist()))
    return F.get(F.split(F.lit(positions), ",").cast("array<int>"), F.col(SLOT).cast("int"))


def _packed(table: RoutingTable) -> str:
    """Return the table as text: the lane of each slot, 16 bits each."""
    return base64.b64encode(table.owners.astype(np.int16).tobytes()).decode()


@dataclass(frozen=True)
class _Written:
    """What one task wrote, and of each portion when some of its rows arrived, and how many rows it has."""

    task: int
    block: Block
    arrivals: tuple[tuple[IntArray, int], ...]


def _writer(
    location: str, wire: pa.Schema, schema: pa.Schema, retries: Retries
) -> Callable[[Iterable[bytes]], Iterator[_Written]]:
    """Return the function that turns one task's rows into one file and its index; `wire` is what the frames hold.

    It works through them in portions, and what is written is let go: memory does not grow with the rows, and no column
    of strings outgrows an array.
    """

    def write(frames: Iterable[bytes]) -> Iterator[_Written]:
        context = TaskContext.get()
        if context is None:
            return
        packed = base64.b64decode(context.getLocalProperty(_TABLE_PROPERTY) or "")
        owners = np.frombuffer(packed, dtype=np.int16).astype(np.int64)
        epoch, task = int(context.getLocalProperty(_EPOCH_PROPERTY) or -1), context.partitionId()
        segments: list[Segment] = []
        arrivals: list[tuple[IntArray, int]] = []

        def batches() -> Iterator[pa.RecordBatch]:
            for rows in _portions(frames, wire, schema):
                if ARRIVAL in rows.column_names:
                    arrivals.append((_sample(rows[ARRIVAL]), rows.num_rows))
                    rows = rows.drop_columns([ARRIVAL])  # noqa: PLW2901 - nothing may hold on to a portion
                for batch, (lane, size, slots, counts) in zip(*_segments(rows, owners), strict=True):
                    segments.append(Segment(lane, len(segments), size, tuple(slots.tolist()), tuple(counts.tolist())))
                    yield batch

        # Spark counts attempts anew in every session; an old one's task may still be writing.
        name = block_name(epoch, f"{context.taskAttemptId()}.{secrets.token_hex(4)}", task)
        file = Folder.at(location, durable=False, retries=retries).write_batches(name, batches())
        if file is not None:
            yield _Written(task, Block(file, tuple(segments)), tuple(arrivals))

    return write


def _portions(frames: Iterable[bytes], wire: pa.Schema, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield rows in their order, as many frames at a time as fit a portion, with the types of `schema`."""
    held: list[pa.Table] = []
    size = 0
    for frame in frames:
        rows = pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(frame), wire)])
        for piece in pieces(rows, _PORTION) if rows.num_rows else ():
            if held and size + piece.nbytes > _PORTION:
                yield pa.concat_tables(held)
                held, size = [], 0
            held.append(piece.cast(schema))
            size += piece.nbytes
    if held:
        yield pa.concat_tables(held)


def _segments(
    rows: pa.Table, owners: IntArray
) -> tuple[list[pa.RecordBatch], list[tuple[int, int, IntArray, IntArray]]]:
    """Sort rows by (lane, slot); return a batch per lane, and per batch (lane, rows, its slots, rows per slot)."""
    by_lane = np.argsort(owners, kind="stable")  # the slots, lane by lane
    rank = np.empty(owners.size, dtype=np.uint16)
    rank[by_lane] = np.arange(owners.size, dtype=np.uint16)
    ranks = rank[rows[SLOT].to_numpy()]
    order = np.argsort(ranks, kind="stable")  # 16 bits: numpy's stable sort is a radix sort
    ordered = rows.drop_columns([SLOT]).combine_chunks().take(pa.array(order))
    counts = np.bincount(ranks, minlength=owners.size)
    batches, index, start = [], [], 0
    for lane in np.unique(owners).tolist():
        of_lane = np.flatnonzero(owners[by_lane] == lane)
        filled = of_lane[counts[of_lane] > 0]
        size = int(counts[filled].sum())
        if size:
            batches.append(ordered.slice(start, size).combine_chunks().to_batches()[0])
            index.append((lane, size, by_lane[filled], counts[filled]))
        start += size
    return batches, index


def _sample(times: pa.ChunkedArray) -> IntArray:
    """Return some of the times, evenly picked."""
    picked = np.linspace(0, len(times) - 1, min(_SAMPLES, len(times))).astype(int)
    sample: IntArray = times.take(pa.array(picked)).to_numpy()
    return sample


def _arrivals(written: Sequence[_Written]) -> tuple[tuple[float, float], ...]:
    """Return sampled arrival times, each with the number of rows it stands for."""
    return tuple(
        (float(at) / 1e6, rows / len(times)) for part in written for times, rows in part.arrivals for at in times
    )
