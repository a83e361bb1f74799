"""Several drivers on one checkpoint, of which one at a time takes a step: all that others may see, in any order.

A step is an operation on a storage that everybody sees at once, on Spark's logs, or on the sink. Each driver has a
thread of its own, which waits before every step until it is let on; so a test says exactly who is where when another
one starts, and a driver that waits is one that hangs.

The drivers do what the engine does and Spark around it, with numbers for rows: Spark plans an epoch in its log of
offsets, hands it over, and notes in its log of commits that it was taken. A slot's state is the list of its rows.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from evenflow.errors import EvenflowError, ProtocolError, TakenOverError
from evenflow.state import (
    Advance,
    Block,
    Changes,
    Checkpoint,
    EpochRecord,
    LaneCommit,
    Recovery,
    Segment,
    SlotRef,
    block_name,
    output_name,
    work_name,
)
from evenflow.state.naming import DATA
from evenflow.state.storage import NameTakenError, Write
from tests.state.places import OFTEN, Killed, identity

SLOTS = 2
FOREVER = 1 << 30


class ConflictError(Exception):
    """Spark finds that somebody else writes its logs, and ends the query."""


@dataclass
class World:
    """What all drivers see. `atomic`: an exclusive creation is one step, as on a local disk; else it is two."""

    atomic: bool = True
    files: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[int, range] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    sink: dict[int, list[list[int]]] = field(default_factory=dict)

    def storage(self, location: str, **_: object) -> SteppedStorage:
        return SteppedStorage(self, location)


def step() -> None:
    """Wait until this driver is let on; who is no driver need not wait."""
    thread = threading.current_thread()
    if isinstance(thread, Driver):
        thread.wait_for_turn()


def step_if_seen(name: str) -> None:
    """Wait, unless it is about data files: no two have the same name, so only to remove one is a step."""
    if name.partition("/")[0] not in DATA:
        step()


@dataclass(frozen=True)
class SteppedStorage:
    """A storage in memory, which shows to everyone what one has done."""

    world: World
    location: str

    def address(self, name: str) -> str:
        return f"{self.location}/{name}" if name else self.location

    @contextmanager
    def create(self, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        written: list[bytes] = []
        yield written.append
        step_if_seen(name)
        if exclusive and self.address(name) in self.world.files:
            raise NameTakenError(name)
        if exclusive and not self.world.atomic:
            step()
        self.world.files[self.address(name)] = b"".join(written)

    def settle(self, folders: Iterable[str]) -> None:
        """Do nothing: power does not fail here."""

    def open(self, name: str) -> pa.NativeFile:
        step_if_seen(name)
        if self.address(name) not in self.world.files:
            raise FileNotFoundError(name)
        return pa.BufferReader(self.world.files[self.address(name)])

    def names(self, folder: str) -> list[str]:
        step_if_seen(folder)
        top = f"{self.address(folder)}/"
        below = [path.removeprefix(top).partition("/") for path in self.world.files if path.startswith(top)]
        prefix = f"{folder}/" if folder else ""
        return sorted({f"{prefix}{name}{slash}" for name, slash, _ in below})

    def exists(self, name: str) -> bool:
        step()
        return self.address(name) in self.world.files

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._delete(name)

    def _delete(self, name: str) -> None:
        step()
        self.world.files.pop(self.address(name), None)


class Driver(threading.Thread):
    """One run of the query: takes epochs up to `last`, of `batch` rows each where Spark has not planned them yet."""

    def __init__(self, world: World, name: str, batch: int, last: int, *, sweeps: bool = True) -> None:
        super().__init__(name=name, daemon=True)
        self.world, self.batch, self.last, self.sweeps = world, batch, last, sweeps
        self.steps = 0
        self.end: str | None = None  # "done", "killed", "taken over", "conflict", or what should not be
        self.acknowledged = {"accepted": -1, "published": -1}
        self.versions = [-1] * SLOTS
        self._left = FOREVER
        self._files = 0
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.start()
        self._stopped.acquire()

    # --- turns ---------------------------------------------------------------------------------------------------

    def take(self, steps: int = FOREVER) -> None:
        """Let it take so many steps, or all that it has left, and wait until it has."""
        if self.end is None and steps:
            self._left = steps
            self._go.release()
            self._stopped.acquire()

    def kill(self) -> None:
        """End it where it is."""
        if self.end is None:
            self._left = -1
            self._go.release()
            self._stopped.acquire()

    def wait_for_turn(self) -> None:
        if self._left == 0:
            self._stopped.release()
            self._go.acquire()
        if self._left < 0:
            raise Killed
        self._left -= 1
        self.steps += 1

    def run(self) -> None:
        checkpoint = opened()  # only to look, and all is looked at again
        self._left = self.steps = 0
        try:
            self.end = self.outcome(checkpoint)
        except Killed:
            self.end = "killed"
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.end = repr(error)
        self._stopped.release()

    def outcome(self, checkpoint: Checkpoint) -> str:
        try:
            self.life(checkpoint)
        except ConflictError:
            return "conflict"
        except EvenflowError as error:
            return why(checkpoint, error)
        return "done"

    # --- what it does --------------------------------------------------------------------------------------------

    def life(self, checkpoint: Checkpoint) -> None:
        checkpoint.take_over()
        if self.sweeps:
            checkpoint.sweep_orphans()
        step()
        planned = max(self.world.offsets, default=-1)
        for epoch in range(planned + (planned in self.world.commits or planned < 0), self.last + 1):
            self.plan(epoch)
            if not checkpoint.has_batch(epoch):
                self.accept(checkpoint, epoch)
            self.note(epoch)
            self.work(checkpoint)
        self.work(checkpoint)

    def plan(self, epoch: int) -> None:
        """Spark writes down what is in an epoch, unless it is one that was planned and not taken."""
        if epoch not in self.world.offsets or epoch != max(self.world.offsets):
            before = self.world.offsets.get(epoch - 1, range(0))
            step()
            if epoch in self.world.offsets:
                raise ConflictError
            self.world.offsets[epoch] = range(before.stop, before.stop + self.batch)

    def note(self, epoch: int) -> None:
        """Spark notes that an epoch was taken: it will not be handed over again."""
        step()
        if epoch in self.world.commits:
            raise ConflictError
        self.world.commits.add(epoch)

    def accept(self, checkpoint: Checkpoint, epoch: int) -> None:
        rows = self.world.offsets[epoch]
        file = checkpoint.folder.write_bytes(block_name(epoch, self.unique(), 0), json.dumps(list(rows)).encode())
        block = Block(file, (Segment(0, 0, len(rows), (0, 1), (0, 0)),))
        checkpoint.accept(EpochRecord(epoch, epoch, 0, (0,), (0,) * SLOTS, (), (block,), (), len(rows), 0.0))
        self.acknowledged["accepted"] = epoch

    def work(self, checkpoint: Checkpoint) -> None:
        """Take each slot through all that is pending, one after the other, then publish and sweep."""
        for epoch, record in list(checkpoint.pending.items()):
            rows = [row for block in record.blocks for row in contents(checkpoint, block.file)]
            for slot in range(SLOTS):
                if checkpoint.slot_versions[slot] < epoch:
                    checkpoint.commit([self.done(checkpoint, slot, epoch, rows)])
                    self.versions[slot] = epoch
        for epoch, outputs in checkpoint.recover().unpublished:
            rows = sorted(row for file in outputs for row in contents(checkpoint, file))
            step()
            self.world.sink.setdefault(epoch, []).append(rows)
            checkpoint.publish(epoch)
            self.acknowledged["published"] = epoch
            checkpoint.sweep()

    def done(self, checkpoint: Checkpoint, slot: int, epoch: int, rows: list[int]) -> LaneCommit:
        """Write what a lane writes that takes one slot through an epoch; every other time, the slot as a whole."""
        folder, attempt = checkpoint.folder, self.unique()
        mine = [row for row in rows if row % SLOTS == slot]
        changes = folder.write_bytes(work_name(epoch, 0, attempt), json.dumps(mine).encode())
        outputs = folder.write_bytes(output_name(epoch, 0, attempt), json.dumps(mine).encode())
        snapshots: tuple[tuple[int, SlotRef], ...] = ()
        if (epoch + slot) % 2:
            state = [*state_of(checkpoint, slot), *mine]
            whole = folder.write_bytes(work_name(epoch, 0, f"{attempt}.s"), json.dumps(state).encode())
            snapshots = ((slot, SlotRef(whole, epoch, 0, len(state))),)
        advance = Advance(int(checkpoint.slot_versions[slot]), epoch, (slot,))
        change = Changes(changes, ((slot, 0, len(mine), len(mine)),))
        return LaneCommit(0, attempt, epoch, (advance,), (change,), ((epoch, outputs),), snapshots)

    def unique(self) -> str:
        self._files += 1
        return f"{self.name}.{self._files}"


class Onlooker(Driver):
    """One who only looks, while others write."""

    seen: Recovery

    def __init__(self, world: World) -> None:
        super().__init__(world, "onlooker", 0, -1)

    def life(self, _: Checkpoint) -> None:
        self.seen = opened().recover()


def opened() -> Checkpoint:
    return Checkpoint.open("/shared", identity(SLOTS), durable=False, options=OFTEN)


def why(checkpoint: Checkpoint, error: EvenflowError) -> str:
    """Say what has ended a driver. One that was taken over may find that files are gone, before its next record."""
    try:
        checkpoint.refuse_if_taken_over()
    except TakenOverError:
        return "taken over"
    except ProtocolError:  # it has not come that far
        return "taken over" if isinstance(error, TakenOverError) else str(error)
    return str(error)


def contents(checkpoint: Checkpoint, file: Any) -> list[int]:
    found: list[int] = json.loads(checkpoint.folder.read_bytes(file))
    return found


def state_of(checkpoint: Checkpoint, slot: int) -> list[int]:
    sources = checkpoint.recover().sources(slot)
    refs = [*([sources.snapshot] if sources.snapshot else []), *sources.changes]
    return [row for ref in refs for row in contents(checkpoint, ref.file)]


@dataclass
class Play:
    """A world with drivers in it, and what must hold whatever they have done to each other."""

    world: World = field(default_factory=World)
    drivers: list[Driver] = field(default_factory=list)
    _entered: int = 0

    def copy(self) -> Play:
        """Return another play that goes on from here; no driver is in it."""
        world = self.world
        sink = {epoch: list(published) for epoch, published in world.sink.items()}
        copied = World(world.atomic, dict(world.files), dict(world.offsets), set(world.commits), sink)
        return Play(copied, _entered=self._entered)

    def enter(self, batch: int, last: int, *, sweeps: bool = True) -> Driver:
        """Let a driver start; it has not taken a step yet."""
        self._entered += 1
        self.drivers.append(Driver(self.world, f"d{self._entered}", batch, last, sweeps=sweeps))
        return self.drivers[-1]

    @property
    def ends(self) -> list[str | None]:
        """How each driver has ended, in the order in which they came."""
        return [driver.end for driver in self.drivers]

    def check(self) -> None:
        """Let all come to their ends, look, then let one more driver finish, and look again."""
        for driver in self.drivers:
            driver.take()
        assert set(self.ends) <= {"done", "killed", "taken over", "conflict"}, self.ends
        self.what_was_acknowledged_counts()
        self.drivers = []
        heir = self.enter(batch=1, last=max(self.world.offsets, default=-1) + 1)
        heir.take()
        assert heir.end == "done", heir.end
        self.every_row_counts_once()
        self.nothing_is_left_over()

    def what_was_acknowledged_counts(self) -> None:
        checkpoint = opened()
        recovery = checkpoint.recover()
        for driver in self.drivers:
            assert recovery.last_accepted >= driver.acknowledged["accepted"]
            assert recovery.last_published >= driver.acknowledged["published"]
            assert all(now >= then for now, then in zip(recovery.slot_versions, driver.versions, strict=True))
        for name in recovery.ledger.needed():
            assert checkpoint.folder.exists(name), f"{name} is named and not there"

    def every_row_counts_once(self) -> None:
        world, checkpoint = self.world, opened()
        assert list(world.offsets) == list(range(len(world.offsets)))
        rows = [row for epoch in world.offsets for row in world.offsets[epoch]]
        assert rows == list(range(len(rows)))
        for slot in range(SLOTS):
            assert state_of(checkpoint, slot) == [row for row in rows if row % SLOTS == slot]
        assert world.sink.keys() == world.offsets.keys()
        for epoch, published in world.sink.items():
            assert all(each == list(world.offsets[epoch]) for each in published), f"epoch {epoch}: {published}"

    def nothing_is_left_over(self) -> None:
        checkpoint = opened()
        checkpoint.take_over()
        checkpoint.sweep_orphans()
        names = {name.removeprefix("/shared/evenflow/") for name in self.world.files}
        assert {name for name in names if name.startswith(DATA)} == checkpoint.recover().ledger.needed()
        assert len([name for name in names if name.startswith("runs/")]) == 1
