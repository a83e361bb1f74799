"""A slot that leaves: the word that it has left goes out first, its memory is freed afterwards."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from evenflow.lane import LaneConfig, LaneWorker, chained
from evenflow.lane.messages import Adopt, FromLane, Prepare, Release, Released, SlotToLoad
from evenflow.operators import GONE, SLOT, Agg, Aggregate, Resident, Stage
from evenflow.state import Folder, SlotRef, handoff_name

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
TOTALS = Aggregate({"n": Agg("count")})


@pytest.fixture
def worker(tmp_path: Path) -> LaneWorker:
    """A lane that serves slot 0, with two keys."""
    folder = Folder.at(str(tmp_path), durable=False)
    worker = LaneWorker(LaneConfig(0, folder.location, chained([Stage(TOTALS, SCHEMA, ("key",))], 2)), "a", folder)
    worker.handle(Adopt((_stored(folder, 0, [2, 4]),)))
    _settle(worker)
    return worker


@pytest.mark.parametrize("handoff", [False, True])
def test_memory_is_freed_after_the_slot_has_left(worker: LaneWorker, handoff: bool) -> None:
    worker.handle(Release((0,), handoff))
    (released,) = worker.step()
    assert isinstance(released, Released)
    assert _resident(worker).slot_rows().tolist() == [2, 0], "whoever waits for the slot does not wait for this"
    assert worker.is_moving_state
    assert _settle(worker) == []
    assert _resident(worker).slot_rows().tolist() == [0, 0]


def test_a_slot_that_comes_back_at_once_is_not_what_is_freed(worker: LaneWorker) -> None:
    worker.handle(Release((0,), handoff=False))
    worker.step()
    worker.handle(Prepare((_stored(worker.folder, 0, [2, 4, 6]),)))
    _settle(worker)
    assert _resident(worker).slot_rows().tolist() == [3, 0]


def _stored(folder: Folder, slot: int, keys: list[int]) -> SlotToLoad:
    state = pa.table(
        {
            SLOT: pa.array([slot] * len(keys), pa.int32()),
            "key": pa.array(keys, pa.int64()),
            "n": [1] * len(keys),
            GONE: [False] * len(keys),
        }
    )
    file = folder.write_table(handoff_name(5, 1, f"b.{len(keys)}"), state)
    return SlotToLoad(slot, 5, SlotRef(file, 5, 0, len(keys)))


def _settle(worker: LaneWorker) -> list[FromLane]:
    said: list[FromLane] = []
    while worker.is_moving_state:
        said += worker.step()
    return said


def _resident(worker: LaneWorker) -> Resident:
    return worker.holding.stages[0].resident
