"""What a route task writes, without Spark: portions of its rows, one after the other, however many there are."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext

import evenflow as ef
from evenflow.lane.config import chained
from evenflow.lane.loading import rows_of
from evenflow.lane.messages import BlockPart
from evenflow.model.slots import IntArray
from evenflow.operators import Aggregate
from evenflow.operators.base import SLOT
from evenflow.operators.stage import Stage
from evenflow.spark import route
from evenflow.state import Block, Folder, Retries

SLOTS, LANES, FRAMES, ROWS = 8, 2, 5, 40
SCHEMA = pa.schema([("row", pa.int64()), ("text", pa.string()), (SLOT, pa.int16())])
WIDE = SCHEMA.set(1, pa.field("text", pa.large_string()))


class Context:
    """Stands for that of a Spark task."""

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        owners = (np.arange(SLOTS) % LANES).astype(np.int16)
        return {"evenflow.table": base64.b64encode(owners.tobytes()).decode(), "evenflow.epoch": "7"}[name]

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 3

    def taskAttemptId(self) -> int:  # noqa: N802 - Spark's name
        return 1


@pytest.fixture(autouse=True)
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", Context)


def frames(schema: pa.Schema) -> Iterator[bytes]:
    """Yield messages as Spark sends them; some have no rows."""
    for at in range(FRAMES):
        rows = range(at * ROWS, (at + 1) * ROWS)
        columns = [list(rows), [f"{row:0100d}" for row in rows], [row * 5 % SLOTS for row in rows]]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.record_batch(arrays, schema=schema).serialize().to_pybytes()
        yield pa.record_batch([pa.array([], field.type) for field in schema], schema=schema).serialize().to_pybytes()


def written(place: Path, wire: pa.Schema = SCHEMA) -> Block:
    (one,) = route._writer(str(place), wire, SCHEMA, Retries())(frames(wire))
    assert one.task == 3
    return one.block


def of_lane(place: Path, block: Block, lane: int) -> list[dict[str, object]]:
    parts = [BlockPart(block.file, segment) for segment in block.segments if segment.lane == lane]
    (stage,) = chained([Stage(Aggregate({"n": ef.count()}), SCHEMA.remove(2), ("row",))], SLOTS)
    rows, slots = rows_of(Folder.at(str(place)), parts, stage)
    assert [int(row) * 5 % SLOTS for row in rows["row"].to_pylist()] == slots.tolist()
    found: list[dict[str, object]] = rows.to_pylist()
    return found


@pytest.mark.parametrize("wire", [SCHEMA, WIDE], ids=["string", "large_string"])
@pytest.mark.parametrize("portion", [1 << 20, 11_000, 1], ids=["all at once", "by frames", "by rows"])
def test_rows_are_the_same_in_however_many_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, portion: int, wire: pa.Schema
) -> None:
    monkeypatch.setattr(route, "_PORTION", portion)
    block = written(tmp_path, wire)
    per_portion = {1 << 20: 1, 11_000: 3, 1: FRAMES * ROWS}[portion]
    assert len(block.segments) == (per_portion * LANES if portion > 1 else per_portion)
    assert [segment.batch for segment in block.segments] == list(range(len(block.segments)))
    for lane in range(LANES):
        of_slots = {slot: [row for row in range(FRAMES * ROWS) if row * 5 % SLOTS == slot] for slot in range(SLOTS)}
        mine = [row for slot in range(lane, SLOTS, LANES) for row in of_slots[slot]]
        assert of_lane(tmp_path, block, lane) == [{"row": row, "text": f"{row:0100d}"} for row in mine]


def test_no_more_than_a_portion_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit of 32-bit offsets in place of a portion's: rows beyond it go through."""
    monkeypatch.setattr(route, "_PORTION", 11_000)
    sizes: list[int] = []
    sort = route._segments

    def watched(rows: pa.Table, owners: IntArray) -> Any:
        sizes.append(rows.nbytes)
        return sort(rows, owners)

    monkeypatch.setattr(route, "_segments", watched)
    written(tmp_path)
    assert sum(sizes) > 20_000
    assert max(sizes) <= 11_000


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    none = [pa.record_batch([pa.array([], field.type) for field in SCHEMA], schema=SCHEMA).serialize().to_pybytes()]
    assert list(route._writer(str(tmp_path), SCHEMA, SCHEMA, Retries())(none)) == []
    assert list(tmp_path.rglob("*.*")) == []


def test_arrival_times_stand_for_the_rows_of_their_portion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "_PORTION", 11_000)
    timed = SCHEMA.append(pa.field("__arrival", pa.int64()))

    def with_times() -> Iterator[bytes]:
        for message in frames(SCHEMA):
            batch = pa.ipc.read_record_batch(message, SCHEMA)
            times = pa.array(np.arange(batch.num_rows) * 1_000_000)
            yield pa.record_batch([*batch.columns, times], schema=timed).serialize().to_pybytes()

    (one,) = route._writer(str(tmp_path), timed, timed, Retries())(with_times())
    arrivals = route._arrivals([one])
    assert round(sum(rows for _, rows in arrivals)) == FRAMES * ROWS
    assert {at for at, _ in arrivals} <= set(range(ROWS))
    assert "__arrival" not in Folder.at(str(tmp_path)).read_table(one.block.file).column_names
