"""One short life of a checkpoint, killed at each of its writes and removals in turn: it always ends the same."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from evenflow.errors import ProtocolError, UnreachableError
from evenflow.state import Checkpoint, files, storage
from tests.state.places import Fuse, Killed, MortalStorage, identity
from tests.state.test_checkpoint import all_files, lane_commit, rebuilt, record

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
        checkpoint = Checkpoint.open(str(self.place), identity(), durable=False, fold_every=2)
        checkpoint.sweep_orphans()
        for epoch in EVERYTHING:
            self.accept(checkpoint, epoch)
            self.commit(checkpoint)
            self.publish(checkpoint)
            checkpoint.sweep()

    def accept(self, checkpoint: Checkpoint, epoch: int) -> None:
        if not checkpoint.accepted(epoch):
            # A move there and back, so that a slot has changes of two lanes.
            checkpoint.accept(record(checkpoint, epoch, (0, epoch % 2, 1, 1), attempt=self.attempt))

    def commit(self, checkpoint: Checkpoint) -> None:
        recovery = checkpoint.recover()
        for pending in recovery.pending:
            folder = checkpoint.folder
            assert [folder.read_table(block.file)["n"].to_pylist() for block in pending.blocks] == [[pending.epoch]]
            due = set(checkpoint.due_snapshots(1))
            for lane in (0, 1):
                own = {slot for slot in range(4) if pending.owners[slot] == lane}
                if recovery.lane_epochs[lane] < pending.epoch:
                    done = lane_commit(checkpoint, pending.epoch, lane, own, due & own, attempt=self.attempt)
                    checkpoint.commit([done])

    def publish(self, checkpoint: Checkpoint) -> None:
        for epoch, outputs in checkpoint.recover().unpublished:
            tables = [checkpoint.folder.read_table(output) for output in outputs]
            self.sink[epoch] = [number for table in tables for number in table["n"].to_pylist()]
            checkpoint.publish(epoch)

    @property
    def attempt(self) -> str:
        return f"a{self.starts}"


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
    checkpoint = Checkpoint.open(str(place), identity(), durable=False)
    recovery = checkpoint.recover()
    assert (recovery.last_accepted, recovery.frontier, recovery.last_published) == (EPOCHS - 1,) * 3
    assert [rebuilt(checkpoint, slot) for slot in range(4)] == [EVERYTHING] * 4
    assert driver.sink == {epoch: [epoch, 0, epoch, 1] for epoch in EVERYTHING}
    checkpoint.sweep_orphans()
    left = {name.removeprefix("evenflow/") for name in all_files(place)}
    assert {name for name in left if name.endswith(".arrow")} == set(recovery.ledger.holders)
    assert not {name for name in left if name.endswith(".tmp")}
    assert len([name for name in left if name.startswith(("base/", "published/"))]) == 2


def test_a_failed_step_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint.open(str(tmp_path), identity(), durable=False)
    accepted = record(checkpoint, 0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(UnreachableError, match="No space left"):
            checkpoint.accept(accepted)
    assert not checkpoint.accepted(0)
    checkpoint.accept(accepted)
    assert Checkpoint.open(str(tmp_path), identity()).recover().pending == [accepted]


def test_a_step_that_failed_after_all_was_written_asks_for_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint.open(str(tmp_path), identity())
    checkpoint.accept(record(checkpoint, 0))
    accepted = record(checkpoint, 1)

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "_flush_folder", fail)
        with pytest.raises(UnreachableError, match="Input/output error"):
            checkpoint.accept(accepted)
    with pytest.raises(ProtocolError, match="start it again"):
        checkpoint.accept(accepted)
    assert Checkpoint.open(str(tmp_path), identity()).recover().newest == accepted
