"""Lanes and a source that only answer, for measuring what the driver does: `benchmarks.driver` uses them.

Engine, shell, balancer and checkpoint are the real ones, and so are the messages, which are encoded and decoded
as on a socket. A played lane reads and writes no file and folds no row: it says what a lane with that input would say.
What it takes to say so is counted (`own_s`), so that it can be taken off the process's time.
"""

from __future__ import annotations

import io
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.lane.events import Joined, LaneEvent, Said
from evenflow.lane.messages import (
    PROTOCOL,
    Adopt,
    Adopted,
    Done,
    EpochLoad,
    FromLane,
    Hello,
    Prepare,
    Prepared,
    Release,
    Released,
    SlotColumns,
    ToLane,
    Work,
    decode_from_lane,
    decode_to_lane,
    encode,
)
from evenflow.model import RoutingTable
from evenflow.model.slots import IntArray
from evenflow.spark.route import Routed
from evenflow.state import (
    Block,
    Changes,
    FileRef,
    LaneCommit,
    NameTakenError,
    Segment,
    SlotRef,
    block_name,
    handoff_name,
    output_name,
    work_name,
)
from evenflow.state.storage import Write

ROW_BYTES = 24
STATE_ROWS = 50  # of each slot
CHANGED_ROWS = 5  # of each slot that has rows in an epoch


@dataclass
class PlayedTime:
    """The CPU time of whatever stands for something outside of the driver."""

    own_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def outside(self) -> Iterator[None]:
        began = time.thread_time()
        try:
            yield
        finally:
            with self._lock:
                self.own_s += time.thread_time() - began


@dataclass
class CountedStorage:
    """Keeps records in memory and counts what is asked of it, as a store that is paid by the request would."""

    requests: Counter[str] = field(default_factory=Counter)
    files: dict[str, bytes] = field(default_factory=dict)
    written_bytes: int = 0
    location: str = "memory"

    def address(self, name: str) -> str:
        return f"memory/{name}"

    @contextmanager
    def create(self, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        self.requests["create"] += 1
        if exclusive and name in self.files:
            raise NameTakenError(name)
        content = io.BytesIO()
        yield content.write
        self.files[name] = content.getvalue()
        self.written_bytes += len(self.files[name])

    def settle(self, folders: Iterable[str]) -> None:
        """Do nothing: what is written is there."""

    def open(self, name: str) -> pa.NativeFile:
        self.requests["open"] += 1
        if name not in self.files:
            raise FileNotFoundError(name)
        return pa.BufferReader(self.files[name])

    def names(self, folder: str) -> list[str]:
        self.requests["list"] += 1
        return [name for name in self.files if name.rpartition("/")[0] == folder]

    def exists(self, name: str) -> bool:
        self.requests["exists"] += 1
        return name in self.files

    def delete(self, names: Sequence[str]) -> None:
        self.requests["delete"] += 1  # of many at once
        for name in names:
            self.files.pop(name, None)


@dataclass
class PlayedLanes:
    """Stands for `LaneLinks`: a lane answers at once."""

    played: PlayedTime
    events: queue.Queue[LaneEvent] = field(default_factory=queue.Queue)
    _versions: dict[int, dict[int, int]] = field(default_factory=dict)
    _files: int = 0

    def start(self, lane: int) -> None:
        self._versions[lane] = {}
        self.events.put(Joined(Hello(PROTOCOL, lane, 0, 0, 0, "here", "driver", "run")))

    def send(self, lane: int, token: str, message: ToLane) -> bool:
        frame = encode(message)
        with self.played.outside():
            answer = self._answer(lane, decode_to_lane(frame))
            said = None if answer is None else encode(answer)
        if said is not None:
            self.events.put(Said(lane, token, decode_from_lane(said)))
        return True

    def _answer(self, lane: int, message: ToLane) -> FromLane | None:
        self._files += 1
        attempt, versions = f"a.{self._files}", self._versions[lane]
        if isinstance(message, Adopt):
            versions.update({entry.slot: entry.version for entry in message.slots})
            return Adopted(tuple(entry.slot for entry in message.slots), 1 << 20, 0.001)
        if isinstance(message, Prepare):
            return Prepared(tuple((entry.slot, entry.version) for entry in message.slots), 1 << 20, 0.001)
        if isinstance(message, Release):
            held = tuple((slot, versions.pop(slot)) for slot in message.slots)
            size = len(held) * STATE_ROWS * ROW_BYTES
            file = FileRef(handoff_name(max(version for _, version in held), lane, attempt), size, 0)
            refs = tuple((s, SlotRef(file, v, at * STATE_ROWS, STATE_ROWS)) for at, (s, v) in enumerate(held))
            return Released(held, refs if message.handoff else (), size, 0.001)
        if isinstance(message, Work):
            for advance in message.advances:
                versions.update(dict.fromkeys(advance.slots, advance.version))
            return _done(lane, attempt, message, versions)
        return None

    def retire(self, lane: int) -> None:
        del self._versions[lane]

    def stop(self) -> None:
        """Leave them."""

    def has_come(self, _lane: int) -> bool:
        return True

    def failures_in_a_row(self, _lane: int) -> int:
        return 0

    def last_failure(self, _lane: int) -> str | None:
        return None

    def missing_module(self, _lane: int) -> str | None:
        return None


def _done(lane: int, attempt: str, work: Work, held: dict[int, int]) -> Done:
    """Return what a lane says that has folded its work: each slot with rows has changed."""
    rows = Counter[int]()
    loads = []
    for each in work.inputs:
        counts = Counter[int]()
        for part in each.parts:
            wanted = None if part.slots is None else set(part.slots)
            for slot, count in zip(part.segment.slots, part.segment.counts, strict=True):
                if wanted is None or slot in wanted:
                    counts[slot] += count
        rows += counts
        slots = sorted(held)
        columns = SlotColumns(
            tuple(slots),
            tuple(counts[slot] for slot in slots),
            tuple(1e-6 * counts[slot] for slot in slots),
            (STATE_ROWS * ROW_BYTES,) * len(slots),
        )
        loads.append(EpochLoad(each.epoch, columns, counts.total(), 1e-6 * counts.total()))
    changed, name = sorted(rows), work_name(work.epoch, lane, attempt)
    places = tuple((slot, at * CHANGED_ROWS, CHANGED_ROWS, STATE_ROWS) for at, slot in enumerate(changed))
    changes = Changes(FileRef(name, len(changed) * CHANGED_ROWS * ROW_BYTES, 0), places)
    until = {slot: advance.version for advance in work.advances for slot in advance.slots}
    state = FileRef(work_name(work.epoch, lane, attempt), len(work.snapshot_slots) * STATE_ROWS * ROW_BYTES, 0)
    commit = LaneCommit(
        lane,
        attempt,
        work.epoch,
        work.advances,
        (changes,) if changed else (),
        tuple((each.epoch, FileRef(output_name(each.epoch, lane, attempt), 100, 0)) for each in work.inputs),
        tuple(
            (slot, SlotRef(state, until[slot], at * STATE_ROWS, STATE_ROWS))
            for at, slot in enumerate(work.snapshot_slots)
        ),
    )
    return Done(commit, tuple(loads), 0.01, STATE_ROWS * len(held), STATE_ROWS * ROW_BYTES * len(held))


@dataclass
class PlayedSource:
    """Stands for the router: as the shuffle exchange does, one block file for each lane."""

    played: PlayedTime
    rng: np.random.Generator
    active: float = 1.0  # the share of slots that have rows in an epoch

    def route(self, _batch: Any, epoch: int, table: RoutingTable) -> Routed:
        with self.played.outside():
            counts = self.rng.poisson(20, table.slots) * (self.rng.random(table.slots) < self.active)
            order = np.argsort(table.owners, kind="stable")
            cuts = np.searchsorted(table.owners[order], table.lanes)
            blocks = [
                self._block(epoch, lane, slots, counts)
                for lane, slots in zip(table.lanes, np.split(order, cuts[1:]), strict=True)
            ]
            return Routed(tuple(block for block in blocks if block is not None), ())

    def _block(self, epoch: int, lane: int, slots: IntArray, counts: IntArray) -> Block | None:
        slots = np.sort(slots[counts[slots] > 0])
        rows = int(counts[slots].sum())
        if not rows:
            return None
        segment = Segment(lane, 0, rows, tuple(slots.tolist()), tuple(counts[slots].tolist()))
        return Block(FileRef(block_name(epoch, "t", lane), rows * ROW_BYTES, 0), (segment,))
