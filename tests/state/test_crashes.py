"""One short life of a checkpoint, killed at each of its writes and removals in turn: it always ends the same."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import msgspec
import pytest

from evenflow.errors import ProtocolError, UnreachableError
from evenflow.state import Checkpoint, SlotRef, files, handoff_name, storage, write_slots
from tests.state.places import OFTEN, Fuse, Killed, MortalStorage, identity
from tests.state.test_checkpoint import all_files, lane_commit, rebuilt, record, rows_of, started

EPOCHS = 3
EVERYTHING = list(range(EPOCHS))


class Driver:
    """Takes epoch after epoch and starts again when it is killed, as Spark would."""

    def __init__(self, place: Path, fuse: Fuse) -> None:
        self.place, self.fuse, self.starts, self.sink = place, fuse, 0, dict[int, list[int]]()

    def run(self) -> None:
        while self.starts < 5:
            self.starts += 1
            try:
                return self.life()
            except Killed:
                pass
        pytest.fail("it was killed once and never came up again")

    def life(self) -> None:
        checkpoint = started(self.place, options=OFTEN)
        checkpoint.sweep_orphans()
        for epoch in EVERYTHING:
            self.accept(checkpoint, epoch)
            self.commit(checkpoint, epoch)
            self.publish(checkpoint)
            checkpoint.sweep()

    def accept(self, checkpoint: Checkpoint, epoch: int) -> None:
        if not checkpoint.has_batch(epoch):
            checkpoint.accept(record(checkpoint, epoch, owners(epoch), attempt=f"a{self.starts}"))

    def commit(self, checkpoint: Checkpoint, epoch: int) -> None:
        """Lane 1 takes each epoch, lane 0 the first two together; slot 1 moves there, backlog and all, and back."""
        for pending in checkpoint.recover().pending:
            tables = [checkpoint.folder.read_table(block.file) for block in pending.blocks]
            assert [table["n"].to_pylist() for table in tables] == [[pending.epoch]]
        due = {2 * epoch % 4}
        for lane in (1, 0) if epoch > 0 else (1,):
            own = {slot for slot in range(4) if owners(epoch)[slot] == lane and checkpoint.slot_versions[slot] < epoch}
            if own:
                attempt = f"a{self.starts}.{epoch}"
                done = lane_commit(checkpoint, epoch, lane, own, due & own, attempt=attempt)
                handoffs = self.handed_off(checkpoint, own - due, attempt)
                checkpoint.commit([msgspec.structs.replace(done, snapshots=(*done.snapshots, *handoffs))])

    def handed_off(self, checkpoint: Checkpoint, slots: set[int], attempt: str) -> tuple[tuple[int, SlotRef], ...]:
        """Write slot 1 as its lane leaves it, if it is among those that are taken up."""
        version = int(checkpoint.slot_versions[1])
        state = {slot: rows_of(range(version + 1)) for slot in slots & {1}}
        return write_slots(checkpoint.folder, handoff_name(version, 1, attempt), version, state)

    def publish(self, checkpoint: Checkpoint) -> None:
        for epoch, outputs in checkpoint.recover().unpublished:
            tables = [checkpoint.folder.read_table(output) for output in outputs]
            self.sink[epoch] = [number for table in tables for number in table["n"].to_pylist()]
            checkpoint.publish(epoch)


def owners(epoch: int) -> tuple[int, ...]:
    return (0, epoch % 2, 1, 1)


def test_a_life_ends_the_same_wherever_it_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fuse = Fuse()
    monkeypatch.setattr(files, "storage_at", lambda location, **_: MortalStorage(location, fuse))
    for steps in itertools.count(1):
        place = tmp_path / str(steps)
        driver = Driver(place, fuse)
        fuse.steps = steps
        driver.run()
        never_blown, fuse.steps = fuse.steps is not None, None
        check_the_end(place, driver)
        if never_blown:
            assert driver.starts == 1
            assert steps > 80, "the story should be worth telling"
            return
        assert driver.starts == 2


def check_the_end(place: Path, driver: Driver) -> None:
    checkpoint = started(place)
    recovery = checkpoint.recover()
    assert (recovery.last_accepted, recovery.frontier, recovery.last_published) == (EPOCHS - 1,) * 3
    assert [rebuilt(checkpoint, slot) for slot in range(4)] == [EVERYTHING] * 4
    # Epoch 0 of slot 1 is put out by lane 1, after that of its own slots.
    assert driver.sink == {0: [0, 0, 0, 1, 0, 1], 1: [1, 0, 1, 1], 2: [2, 0, 2, 1]}
    assert [source.snapshot is not None for source in map(recovery.sources, range(4))].count(True) >= 2
    checkpoint.sweep_orphans()
    left = {name.removeprefix("evenflow/") for name in all_files(place)}
    assert {name for name in left if name.endswith(".arrow")} == recovery.ledger.needed()
    assert not {name for name in left if name.endswith(".tmp")}
    assert len([name for name in left if name.startswith(("base/", "published/"))]) == 2


def test_a_failed_step_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = started(tmp_path)
    accepted = record(checkpoint, 0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(UnreachableError, match="No space left"):
            checkpoint.accept(accepted)
    assert not checkpoint.has_batch(0)
    checkpoint.accept(accepted)
    assert Checkpoint.open(str(tmp_path), identity()).recover().pending == [accepted]


def test_a_step_that_failed_after_all_was_written_asks_for_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = started(tmp_path, durable=True)
    checkpoint.accept(record(checkpoint, 0))
    accepted = record(checkpoint, 1)

    def fail(*_: object) -> None:
        raise storage.NotFlushedError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "_flush_folder", fail)
        with pytest.raises(UnreachableError, match="Input/output error"):
            checkpoint.accept(accepted)
    with pytest.raises(ProtocolError, match="start it again"):
        checkpoint.accept(accepted)
    assert Checkpoint.open(str(tmp_path), identity()).recover().newest == accepted
