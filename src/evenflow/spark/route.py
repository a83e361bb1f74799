"""Route: rows to blocks. Spark computes the slot, Arrow and numpy sort by (lane, slot), one file per task is written.

*direct*: each route task writes one file with a segment per lane. The plan is made once, on the stream itself; the
routing table travels as a local property of the job, so an epoch costs no planning.
*shuffle*: Spark's shuffle first brings each lane's rows together (`repartitionById`), then one task per lane writes one
file. As many files as lanes, however many tasks read the source; the table is part of each epoch's plan.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from evenflow.model import RoutingTable
from evenflow.model.slots import IntArray
from evenflow.operators.base import HASH, SLOT
from evenflow.state import Block, FileRef, Folder, Segment, block_name

Exchange = Literal["direct", "shuffle"]

_TABLE_PROPERTY = "evenflow.table"
_EPOCH_PROPERTY = "evenflow.epoch"
_ARRIVAL = "__arrival"
_SAMPLES = 64  # arrival times kept per segment, for latencies
_INDEX_DDL = (
    "task int, name string, size long, crc32 long, lane int, batch int, rows long, slots binary, counts binary, "
    "arrivals binary"
)
_INDEX = pa.schema(
    [
        ("task", pa.int32()),
        ("name", pa.string()),
        ("size", pa.int64()),
        ("crc32", pa.int64()),
        ("lane", pa.int32()),
        ("batch", pa.int32()),
        ("rows", pa.int64()),
        ("slots", pa.binary()),
        ("counts", pa.binary()),
        ("arrivals", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Routed:
    """The blocks of an epoch, and when some rows arrived: (seconds since 1970, how many rows it stands for)."""

    blocks: tuple[Block, ...]
    arrivals: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Router:
    """How rows of one query get to blocks."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    slots: int
    location: str
    needs_hash: bool
    exchange: Exchange
    tasks: int
    arrival: str | None = None  # a timestamp column that says when a row arrived

    def prepared(self, stream: DataFrame) -> DataFrame:
        """Return the stream as foreachBatch must see it: with slots, and for *direct* with blocks already written."""
        narrow = stream.select(*self.keys, *self.columns, *self._hash_columns())
        if self.exchange == "direct":
            return narrow.coalesce(self.tasks).mapInArrow(_writer(self.location), _INDEX_DDL)
        return narrow

    def route(self, batch: DataFrame, epoch: int, table: RoutingTable) -> Routed:
        """Write the blocks of one epoch and return their index."""
        context = batch.sparkSession.sparkContext
        context.setLocalProperty(_TABLE_PROPERTY, _packed(table))
        context.setLocalProperty(_EPOCH_PROPERTY, str(epoch))
        if self.exchange == "shuffle":
            lane_of_slot = F.array(*(F.lit(at) for at in table.lane_positions().tolist()))
            lane = F.get(lane_of_slot, F.col(SLOT).cast("int"))
            batch = batch.repartitionById(len(table.lanes), lane).mapInArrow(_writer(self.location), _INDEX_DDL)
        index = batch.collect()
        return Routed(_blocks(index), _arrivals(index))

    def _hash_columns(self) -> Iterator[Column]:
        keys = [F.col(key) for key in self.keys]
        # xxhash64 skips nulls, so (null, x) and (x, null) would always meet; their null flags tell them apart.
        flags = [key.isNull() for key in keys] if len(keys) > 1 else []
        hashed = F.xxhash64(*keys, *flags)
        if self.needs_hash:
            yield hashed.alias(HASH)
        if self.arrival is not None:
            yield F.unix_micros(F.col(self.arrival)).alias(_ARRIVAL)
        yield F.pmod(hashed, F.lit(self.slots)).cast("short").alias(SLOT)


def _packed(table: RoutingTable) -> str:
    """Return the table as text: the lane of each slot, 16 bits each."""
    return base64.b64encode(table.owners.astype(np.int16).tobytes()).decode()


def _writer(location: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that turns one task's rows into one file and its index."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [batch for batch in batches if batch.num_rows]
        context = TaskContext.get()
        if not parts or context is None:
            return
        owners = np.frombuffer(base64.b64decode(context.getLocalProperty(_TABLE_PROPERTY) or ""), dtype=np.int16)
        epoch = int(context.getLocalProperty(_EPOCH_PROPERTY) or -1)
        rows = pa.Table.from_batches(parts)
        arrived = rows[_ARRIVAL].to_numpy() if _ARRIVAL in rows.column_names else None
        rows = rows if arrived is None else rows.drop_columns([_ARRIVAL])
        segments, index = _segments(rows, owners.astype(np.int64))
        task = context.partitionId()
        # Spark counts attempts anew in every session; an old one's task may still be writing.
        name = block_name(epoch, f"{context.taskAttemptId()}.{secrets.token_hex(4)}", task)
        file = Folder.at(location, durable=False).write_table(name, pa.Table.from_batches(segments))
        yield _index_batch(task, file, index, _sample(arrived))

    return write


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


def _sample(arrived: IntArray | None) -> bytes:
    """Return some arrival times, evenly picked."""
    if arrived is None:
        return b""
    picked = np.linspace(0, arrived.size - 1, min(_SAMPLES, arrived.size)).astype(int)
    return bytes(arrived[picked].tobytes())


def _index_batch(
    task: int, file: FileRef, index: Sequence[tuple[int, int, IntArray, IntArray]], arrivals: bytes
) -> pa.RecordBatch:
    rows = [
        (
            task,
            file.name,
            file.size,
            file.crc32,
            lane,
            at,
            size,
            slots.astype(np.int32).tobytes(),
            counts.tobytes(),
            arrivals if at == 0 else b"",
        )
        for at, (lane, size, slots, counts) in enumerate(index)
    ]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), _INDEX.types, strict=True)]
    return pa.record_batch(columns, schema=_INDEX)


def _blocks(index: Sequence[Row]) -> tuple[Block, ...]:
    """Return the blocks in the order of their tasks: that order is part of what makes an epoch deterministic."""
    blocks: dict[tuple[int, str], tuple[FileRef, list[Segment]]] = {}
    for row in index:
        file = FileRef(row.name, row.size, row.crc32)
        segment = Segment(
            row.lane,
            row.batch,
            row.rows,
            tuple(np.frombuffer(row.slots, dtype=np.int32).tolist()),
            tuple(np.frombuffer(row.counts, dtype=np.int64).tolist()),
        )
        blocks.setdefault((row.task, row.name), (file, []))[1].append(segment)
    return tuple(
        Block(file, tuple(segments)) for _, (file, segments) in sorted(blocks.items(), key=lambda item: item[0])
    )


def _arrivals(index: Sequence[Row]) -> tuple[tuple[float, float], ...]:
    """Return sampled arrival times, each with the number of rows it stands for."""
    sampled = []
    rows_of_task = {row.task: sum(other.rows for other in index if other.task == row.task) for row in index}
    for row in index:
        times = np.frombuffer(row.arrivals, dtype=np.int64) / 1e6
        sampled += [(float(at), rows_of_task[row.task] / times.size) for at in times]
    return tuple(sampled)
