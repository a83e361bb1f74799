from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from evenflow.errors import CheckpointMismatchError, DamagedFileError, ProtocolError, UnreachableError
from evenflow.model import Contents
from evenflow.state import (
    Advance,
    Block,
    Changes,
    Checkpoint,
    EpochRecord,
    FileRef,
    Folder,
    LaneCommit,
    Segment,
    SlotRef,
    block_name,
    files,
    handoff_name,
    output_name,
    read_slots,
    storage,
    work_name,
    write_slots,
)
from tests.state.places import KINDS, OFTEN, identity
from tests.state.test_files import spoil

EVEN = (0, 0, 1, 1)


def rows_of(numbers: Iterable[int]) -> pa.Table:
    return pa.table({"n": pa.array(list(numbers), pa.int64())})


def record(checkpoint: Checkpoint, epoch: int, owners: tuple[int, ...] = EVEN, **other: Any) -> EpochRecord:
    """An epoch with one block file, really written."""
    file = checkpoint.folder.write_table(block_name(epoch, other.pop("attempt", "r1"), 0), rows_of([epoch]))
    blocks = (Block(file, (Segment(owners[0], 0, 1, (0,), (1,)),)),)
    values = {"table_version": 0, "lanes": (0, 1), "moves": (), "watermarks": (), "rows": 1, "accepted_at_s": 0.0}
    return EpochRecord(epoch=epoch, batch=epoch, owners=owners, blocks=blocks, **{**values, **other})


def lane_commit(
    checkpoint: Checkpoint, epoch: int, lane: int, slots: Iterable[int], whole: Iterable[int] = (), **other: Any
) -> LaneCommit:
    """What a lane commits that took some slots from where they are to an epoch, with snapshots of the `whole` ones.

    In each slot that is `changed`, by default all of them, it changed one row per epoch.
    """
    folder, attempt, slots = checkpoint.folder, other.pop("attempt", "a1"), sorted(slots)
    advances = other.pop("advances", taken_up(checkpoint, slots, epoch))
    ways = {slot: range(advance.since + 1, advance.version + 1) for advance in advances for slot in advance.slots}
    states = {slot: rows_of(ways[slot]) for slot in sorted(other.pop("changed", slots))}
    refs = write_slots(folder, work_name(epoch, lane, attempt), epoch, states)
    values: dict[str, Any] = {
        "changes": changes_in(refs[0][1].file, *((slot, ref.start, ref.rows, epoch + 1) for slot, ref in refs))
        if refs
        else (),
        "outputs": tuple(
            (at, folder.write_table(output_name(at, lane, attempt), rows_of([at, lane])))
            for at in sorted({at for way in ways.values() for at in way})
        ),
        "snapshots": write_slots(
            folder, work_name(epoch, lane, f"{attempt}.s"), epoch, {slot: rows_of(range(epoch + 1)) for slot in whole}
        ),
    }
    return LaneCommit(lane=lane, attempt=attempt, epoch=epoch, advances=advances, **{**values, **other})


def changes_in(file: FileRef, *slots: tuple[int, int, int, int]) -> tuple[Changes, ...]:
    return (Changes(file, slots),)


def taken_up(checkpoint: Checkpoint, slots: Iterable[int], epoch: int) -> tuple[Advance, ...]:
    """The way from the committed versions of slots to an epoch."""
    ways: defaultdict[int, list[int]] = defaultdict(list)
    for slot in slots:
        ways[int(checkpoint.slot_versions[slot])].append(slot)
    return tuple(Advance(since, epoch, tuple(found)) for since, found in sorted(ways.items()))


def run(checkpoint: Checkpoint, epochs: Iterable[int], snapshots: int = 0) -> None:
    """Take whole epochs, in lock-step, up to the commit."""
    for epoch in epochs:
        checkpoint.accept(record(checkpoint, epoch))
        due = {(epoch + more) % 4 for more in range(snapshots)}
        checkpoint.commit(
            [lane_commit(checkpoint, epoch, lane, own, due & own) for lane, own in ((0, {0, 1}), (1, {2, 3}))]
        )


def rebuilt(checkpoint: Checkpoint, slot: int) -> list[int]:
    sources = checkpoint.recover().sources(slot)
    refs = [*([sources.snapshot] if sources.snapshot else []), *sources.changes]
    tables = read_slots(checkpoint.folder, refs)
    return [number for table in tables for number in table["n"].to_pylist()]


def all_files(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


@pytest.fixture(params=sorted(KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A location on each kind of storage."""

    def storage(location: str, *, durable: bool = True) -> object:
        assert durable in {True, False}
        return KINDS[request.param](Path(location))

    monkeypatch.setattr(files, "storage_at", storage)
    return tmp_path / "checkpoint"


def reopened(place: Path) -> Checkpoint:
    """The checkpoint as somebody sees it who only looks."""
    return Checkpoint.open(str(place), identity())


def started(place: Path, **how: Any) -> Checkpoint:
    """The checkpoint as a driver has it that starts."""
    checkpoint = Checkpoint.open(str(place), identity(), **{"durable": False, **how})
    checkpoint.take_over()
    return checkpoint


def test_a_new_checkpoint_knows_nothing(place: Path) -> None:
    for checkpoint in (reopened(place), reopened(place)):
        recovery = checkpoint.recover()
        assert (recovery.table, recovery.last_accepted, recovery.last_published) == (None, -1, -1)
        assert (recovery.pending, recovery.unpublished) == ([], [])
        assert recovery.slot_versions.tolist() == checkpoint.slot_versions.tolist() == [-1] * 4
        assert (checkpoint.frontier, checkpoint.pending, checkpoint.unpublished) == (-1, {}, 0)
        assert not checkpoint.has_batch(0)


def test_an_epoch_from_accept_to_publish(place: Path) -> None:
    checkpoint = started(place)
    accepted = record(checkpoint, 0, watermarks=(99, 0), table_version=3)
    checkpoint.accept(accepted)
    assert [reopened(place).recover().pending, checkpoint.has_batch(0)] == [[accepted], True]
    slots = {0: {0, 1}, 1: {2, 3}}
    zero, one = (lane_commit(checkpoint, 0, lane, slots[lane], changed={3 * lane}) for lane in (0, 1))
    checkpoint.commit([one])
    for seen in (checkpoint, reopened(place)):
        assert (seen.frontier, seen.unpublished, seen.slot_versions.tolist()) == (-1, 1, [-1, -1, 0, 0])
        assert (dict(seen.pending), seen.recover().unpublished) == ({0: accepted}, [])
    checkpoint.commit([zero])
    recovery = reopened(place).recover()
    assert (recovery.pending, recovery.frontier) == ([], 0)
    assert recovery.unpublished == [(0, (zero.outputs[0][1], one.outputs[0][1]))]
    assert recovery.table is not None
    assert (recovery.table.version, recovery.table.owners.tolist()) == (3, list(EVEN))
    checkpoint.publish(0)
    checkpoint.publish(0)
    assert (reopened(place).recover().unpublished, reopened(place).recover().last_published) == ([], 0)
    assert reopened(place).unpublished == checkpoint.unpublished == 0
    assert rebuilt(reopened(place), 0) == [0]
    assert rebuilt(reopened(place), 1) == []


def test_a_restart_keeps_the_first_identity(place: Path) -> None:
    reopened(place)
    again = msgspec.structs.replace(identity(), query_id="q-2", created_at_s=9.0)
    assert Checkpoint.open(str(place), again).identity == identity()


def test_snapshots_replace_changes(place: Path) -> None:
    checkpoint = started(place)
    run(checkpoint, range(3))
    checkpoint.accept(record(checkpoint, 3))
    checkpoint.commit([lane_commit(checkpoint, 3, 0, {0, 1}, whole={1})])
    sources = checkpoint.recover().sources(1)
    assert sources.snapshot is not None
    assert (sources.snapshot.version, sources.changes) == (3, ())
    assert [change.version for change in checkpoint.recover().sources(0).changes] == [0, 1, 2, 3]
    checkpoint.sweep()
    assert [rebuilt(reopened(place), slot) for slot in (0, 1, 2)] == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2]]


def test_a_handoff_can_serve_as_snapshot(place: Path) -> None:
    checkpoint = started(place)
    run(checkpoint, range(3))
    handoff = write_slots(checkpoint.folder, handoff_name(2, 0, "a1"), 2, {1: rows_of(range(3))})
    checkpoint.accept(record(checkpoint, 3, (0, 1, 1, 1)))
    checkpoint.commit([lane_commit(checkpoint, 3, 0, {0}), lane_commit(checkpoint, 3, 1, {1, 2, 3}, snapshots=handoff)])
    run(checkpoint, range(4, 20))
    checkpoint.sweep()
    assert checkpoint.recover().sources(1).snapshot == handoff[0][1]
    assert [change.version for change in checkpoint.recover().sources(1).changes] == list(range(3, 20))
    assert [rebuilt(reopened(place), slot) for slot in (0, 1)] == [list(range(20))] * 2


def test_a_handoff_shared_by_slots_waits_for_the_last_of_them(tmp_path: Path) -> None:
    checkpoint = started(tmp_path, options=OFTEN)
    run(checkpoint, [0])
    shared = dict(write_slots(checkpoint.folder, handoff_name(0, 0, "a1"), 0, {1: rows_of([0]), 2: rows_of([0])}))
    checkpoint.accept(record(checkpoint, 1))
    checkpoint.accept(record(checkpoint, 2))
    checkpoint.commit([lane_commit(checkpoint, 1, 0, {0, 1, 3}, snapshots=((1, shared[1]),))])
    checkpoint.commit([lane_commit(checkpoint, 2, 0, {0, 1, 3}, whole={1})])  # slot 1 needs it no more, slot 2 may
    assert shared[1].file.name not in checkpoint.recover().ledger.needed()
    checkpoint.sweep()
    checkpoint.commit([lane_commit(checkpoint, 1, 1, {2}, snapshots=((2, shared[2]),))])
    checkpoint.sweep()
    assert checkpoint.recover().sources(2).snapshot == shared[2]
    opened = Checkpoint.open(str(tmp_path), identity())
    assert [rebuilt(opened, slot) for slot in (1, 2)] == [[0, 1, 2], [0, 1]]


def test_the_slowest_slot_holds_back_the_frontier(place: Path) -> None:
    checkpoint = started(place)
    run(checkpoint, [0])
    checkpoint.accept(record(checkpoint, 1, (0, 1, 1, 1), moves=((1, 0, 1),)))
    checkpoint.commit([lane_commit(checkpoint, 1, 0, {0}), lane_commit(checkpoint, 1, 1, {2, 3})])
    assert (checkpoint.frontier, checkpoint.recover().slot_versions.tolist()) == (0, [1, 0, 1, 1])
    checkpoint.accept(record(checkpoint, 2, (0, 1, 1, 1)))
    checkpoint.commit([lane_commit(checkpoint, 2, 0, {0}), lane_commit(checkpoint, 2, 1, {2, 3})])
    assert (reopened(place).frontier, sorted(reopened(place).pending)) == (0, [1, 2])
    checkpoint.commit([lane_commit(checkpoint, 2, 1, {1}, attempt="a2")])
    checkpoint.sweep()
    assert (reopened(place).frontier, rebuilt(reopened(place), 1)) == (2, [0, 1, 2])


def test_one_commit_takes_slots_different_ways(place: Path) -> None:
    checkpoint = started(place)
    run(checkpoint, [0])
    for epoch in range(1, 5):
        checkpoint.accept(record(checkpoint, epoch))
    checkpoint.commit([lane_commit(checkpoint, 2, 0, {0})])
    ways = (Advance(0, 3, (1, 2)), Advance(2, 4, (0,)), Advance(0, 1, (3,)))
    done = lane_commit(checkpoint, 4, 1, range(4), advances=ways)
    checkpoint.commit([done])
    for seen in (checkpoint, reopened(place)):
        assert (seen.frontier, seen.slot_versions.tolist()) == (1, [4, 3, 3, 1])
        assert [rebuilt(seen, slot) for slot in range(4)] == [list(range(version + 1)) for version in (4, 3, 3, 1)]
        assert [epoch for epoch, _ in seen.recover().unpublished] == [0, 1]
    assert [change.version for change in checkpoint.recover().sources(0).changes] == [0, 2, 4]
    outputs = dict(done.outputs)
    assert sorted(outputs) == [1, 2, 3, 4]
    assert outputs[1] in dict(checkpoint.recover().unpublished)[1]
    checkpoint.commit([lane_commit(checkpoint, 4, 0, {1, 2, 3}, attempt="a2")])
    unpublished = dict(reopened(place).recover().unpublished)
    assert list(unpublished) == [0, 1, 2, 3, 4]
    assert all(outputs[epoch] in unpublished[epoch] for epoch in outputs)
    assert [len(unpublished[epoch]) for epoch in unpublished] == [2, 2, 3, 2, 2]


def test_a_slot_goes_on_from_lane_to_lane_within_an_entry(place: Path) -> None:
    checkpoint = started(place)
    checkpoint.accept(record(checkpoint, 0))
    checkpoint.accept(record(checkpoint, 1, (0, 1, 1, 1)))
    old = lane_commit(checkpoint, 0, 0, {0, 1})
    new = lane_commit(checkpoint, 1, 1, {1}, advances=(Advance(0, 1, (1,)),))
    with pytest.raises(ProtocolError, match="it took slot 1 up at version 0, the committed one is -1"):
        checkpoint.commit([new, old])
    checkpoint.commit([old, new])
    assert rebuilt(reopened(place), 1) == [0, 1]
    assert reopened(place).slot_versions.tolist() == [0, 1, -1, -1]


def test_a_slot_is_folded_once_whoever_folds_it(place: Path) -> None:
    checkpoint = started(place)
    run(checkpoint, [0])
    checkpoint.accept(record(checkpoint, 1))
    checkpoint.accept(record(checkpoint, 2))
    dead, alive = (lane_commit(checkpoint, epoch, lane, {1}, attempt="d") for epoch, lane in ((1, 0), (2, 1)))
    checkpoint.commit([alive])
    with pytest.raises(ProtocolError, match=r"lane 0 .* took slot 1 up at version 0, the committed one is 2"):
        checkpoint.commit([dead])
    with pytest.raises(ProtocolError, match=r"lane 1 .* took slot 1 up at version 0, the committed one is 2"):
        checkpoint.commit([alive])
    assert rebuilt(reopened(place), 1) == [0, 1, 2]
    checkpoint.commit([lane_commit(checkpoint, 2, 0, {0, 2, 3})])
    assert [len(outputs) for _, outputs in reopened(place).recover().unpublished] == [2, 2, 2]
    checkpoint.sweep()
    started(place).sweep_orphans()
    assert not reopened(place).folder.exists(dead.changes[0].file.name)


def test_a_snapshot_may_be_older_than_what_it_comes_with(place: Path) -> None:
    checkpoint = started(place)
    run(checkpoint, range(2))
    checkpoint.accept(record(checkpoint, 2))
    checkpoint.accept(record(checkpoint, 3))
    whole = write_slots(checkpoint.folder, work_name(3, 0, "whole"), 2, {0: rows_of(range(3))})
    later = lane_commit(checkpoint, 3, 0, {0}, snapshots=whole)
    checkpoint.commit([later])
    sources = reopened(place).recover().sources(0)
    assert (sources.snapshot, [change.version for change in sources.changes]) == (whole[0][1], [3])


def test_lanes_come_and_go(place: Path) -> None:
    checkpoint = started(place)
    run(checkpoint, range(2))
    checkpoint.accept(record(checkpoint, 2, (0, 0, 5, 5), lanes=(0, 5)))
    checkpoint.commit([lane_commit(checkpoint, 2, 0, {0, 1}), lane_commit(checkpoint, 2, 5, {2, 3})])
    assert reopened(place).frontier == 2
    checkpoint.accept(record(checkpoint, 3, (0, 0, 5, 5), lanes=(0, 5)))
    checkpoint.commit([lane_commit(checkpoint, 3, 7, range(4))])  # a lane that came after the epoch
    assert (reopened(place).frontier, rebuilt(reopened(place), 3)) == (3, [0, 1, 2, 3])


def snapshot_of(slot: int, name: str, version: int) -> tuple[tuple[int, SlotRef], ...]:
    return ((slot, SlotRef(FileRef(name, 1, 1), version, 0, 0)),)


def advance(since: int, version: int, *slots: int) -> tuple[Advance, ...]:
    return (Advance(since, version, slots),)


def bare(epoch: int, lane: int, *advances: Advance, **other: Any) -> LaneCommit:
    return LaneCommit(lane, "a1", epoch, advances, **other)


# Slots 0 and 1 are at 1, slots 2 and 3 at 0; epochs 1 and 2 are open, 3 is not accepted, 0 is published.
REFUSED: dict[str, tuple[Callable[[Checkpoint], None], str]] = {
    "an epoch again": (lambda c: c.accept(record(c, 2)), "2 already is"),
    "an epoch that went by": (lambda c: c.accept(record(c, 0)), "2 already is"),
    "owners of too few slots": (lambda c: c.accept(record(c, 3, (0, 1))), "owners of 2 slots"),
    "an owner that is no lane": (lambda c: c.accept(record(c, 3, (0, 0, 1, 7))), "which do not exist"),
    "a block of another epoch": (
        lambda c: c.accept(msgspec.structs.replace(record(c, 4), epoch=3)),
        "no name for a file of blocks of epoch 3",
    ),
    "a commit that is not accepted": (lambda c: c.commit([lane_commit(c, 3, 0, {0})]), "not accepted"),
    "a commit again": (
        lambda c: c.commit([lane_commit(c, 1, 0, {0, 1}, advances=advance(0, 1, 0, 1))]),
        "it took slot 0 up at version 0, the committed one is 1",
    ),
    "a commit again, by another lane": (
        lambda c: c.commit([lane_commit(c, 1, 1, {1}, advances=advance(0, 1, 1))]),
        "it took slot 1 up at version 0, the committed one is 1",
    ),
    "an epoch left out": (
        lambda c: c.commit([lane_commit(c, 2, 1, {2}, advances=advance(1, 2, 2))]),
        "it took slot 2 up at version 1, the committed one is 0",
    ),
    "one slot of several taken up elsewhere": (
        lambda c: c.commit([lane_commit(c, 2, 1, {0, 2}, advances=advance(0, 2, 2, 0))]),
        "it took slot 0 up at version 0, the committed one is 1",
    ),
    "a commit that went by": (lambda c: c.commit([bare(0, 0, Advance(-1, 0, (0,)))]), "which is finished"),
    "a step back": (lambda c: c.commit([bare(2, 0, Advance(1, 0, (0,)))]), "from 1 to 0"),
    "a step on the spot": (lambda c: c.commit([bare(2, 0, Advance(1, 1, (0,)))]), "from 1 to 1"),
    "further than the commit says": (lambda c: c.commit([bare(1, 1, Advance(0, 2, (2,)))]), "from 0 to 2"),
    "a slot that does not exist": (lambda c: c.commit([bare(1, 1, Advance(0, 1, (2, 4)))]), "slot 4"),
    "a slot below zero": (lambda c: c.commit([bare(1, 1, Advance(0, 1, (-1,)))]), "slot -1"),
    "a slot twice in an advance": (lambda c: c.commit([bare(1, 1, Advance(0, 1, (2, 2)))]), "slot 2.*before"),
    "a slot in two advances": (
        lambda c: c.commit([bare(2, 1, Advance(0, 1, (2,)), Advance(1, 2, (2,)))]),
        "slot 2.*before",
    ),
    "a change of a slot that stays": (
        lambda c: c.commit(
            [lane_commit(c, 1, 1, {2}, changes=changes_in(FileRef(work_name(1, 1, "a1"), 1, 1), (3, 0, 1, 1)))]
        ),
        "changes of slot 3, which it has not advanced",
    ),
    "changes of another epoch": (
        lambda c: c.commit([lane_commit(c, 1, 1, {2}, changes=changes_in(FileRef(work_name(2, 1, "a1"), 1, 1)))]),
        "no name for a file of work of epoch 1",
    ),
    "output under the name of another epoch": (
        lambda c: c.commit([lane_commit(c, 1, 1, {2}, outputs=((1, FileRef(output_name(2, 1, "a1"), 1, 1)),))]),
        "no name for a file of outputs of epoch 1",
    ),
    "output under the name of another kind": (
        lambda c: c.commit([lane_commit(c, 1, 1, {2}, outputs=((1, FileRef(block_name(1, "a1", 1), 1, 1)),))]),
        "no name for a file of work of epoch 1",
    ),
    "output of a finished epoch": (
        lambda c: c.commit([lane_commit(c, 1, 1, {2}, outputs=((0, FileRef(output_name(0, 1, "a1"), 1, 1)),))]),
        "output of epoch 0",
    ),
    "output of an epoch that is not accepted": (
        lambda c: c.commit([lane_commit(c, 2, 1, {2}, outputs=((3, FileRef(output_name(3, 1, "a1"), 1, 1)),))]),
        "output of epoch 3",
    ),
    "output without an advance": (
        lambda c: c.commit([bare(1, 0, outputs=((1, FileRef(output_name(1, 0, "a2"), 1, 1)),))]),
        "output of epoch 1",
    ),
    "output of an epoch that its slots have not passed": (
        lambda c: c.commit([lane_commit(c, 1, 1, {2}, outputs=((2, FileRef(output_name(2, 1, "a1"), 1, 1)),))]),
        "output of epoch 2",
    ),
    "output of an epoch that its slots had passed": (
        lambda c: c.commit([lane_commit(c, 2, 0, {0}, outputs=((1, FileRef(output_name(1, 0, "a2"), 1, 1)),))]),
        "output of epoch 1",
    ),
    "a snapshot of the future": (
        lambda c: c.commit([lane_commit(c, 1, 1, {2}, snapshots=snapshot_of(2, work_name(1, 1, "a1"), 2))]),
        "snapshot of slot 2 at 2",
    ),
    "a snapshot of a slot that stays": (
        lambda c: c.commit([lane_commit(c, 1, 1, {2}, snapshots=snapshot_of(3, work_name(1, 1, "a1"), 0))]),
        "snapshot of slot 3 at 0",
    ),
    "a snapshot of long ago, which may be swept": (
        lambda c: c.commit([lane_commit(c, 2, 0, {0}, snapshots=snapshot_of(0, handoff_name(0, 0, "a1"), 0))]),
        "snapshot of slot 0 at 0",
    ),
    "a snapshot under the name of another epoch": (
        lambda c: c.commit([lane_commit(c, 1, 1, {2}, snapshots=snapshot_of(2, work_name(0, 1, "a1"), 1))]),
        "no name for a file of work",
    ),
    "a snapshot under the name of another kind": (
        lambda c: c.commit([lane_commit(c, 1, 1, {2}, snapshots=snapshot_of(2, block_name(1, "a1", 1), 1))]),
        "no name for a file of work",
    ),
    "a handoff under the name of an older epoch": (
        lambda c: c.commit([lane_commit(c, 2, 0, {0}, snapshots=snapshot_of(0, handoff_name(0, 0, "a1"), 1))]),
        "no name for a file of handoffs",
    ),
    "one bad commit after a good one": (
        lambda c: c.commit([lane_commit(c, 1, 1, {2}), lane_commit(c, 1, 0, {0}, advances=advance(0, 1, 0))]),
        "it took slot 0 up at version 0, the committed one is 1",
    ),
    "one bad commit before a good one": (
        lambda c: c.commit([lane_commit(c, 1, 0, {0}, advances=advance(0, 1, 0)), lane_commit(c, 1, 1, {2})]),
        "it took slot 0 up at version 0, the committed one is 1",
    ),
    "publishing what is not committed": (lambda c: c.publish(1), "cannot be published"),
    "publishing backwards": (lambda c: c.publish(-1), "cannot be published"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_steps_change_nothing(case: str, tmp_path: Path) -> None:
    checkpoint = started(tmp_path)
    run(checkpoint, [0])
    checkpoint.publish(0)
    checkpoint.accept(record(checkpoint, 1))
    checkpoint.accept(record(checkpoint, 2))
    checkpoint.commit([lane_commit(checkpoint, 1, 0, {0, 1}, attempt="a0")])
    before, step, words = state_of(checkpoint), *REFUSED[case]
    with pytest.raises(ProtocolError, match=words):
        step(checkpoint)
    assert state_of(checkpoint) == before
    assert state_of(Checkpoint.open(str(tmp_path), identity())) == before
    checkpoint.commit([lane_commit(checkpoint, 2, 1, range(4), attempt="a9")])
    assert [rebuilt(checkpoint, slot) for slot in range(4)] == [[0, 1, 2]] * 4


def state_of(checkpoint: Checkpoint) -> dict[str, Any]:
    recovery = checkpoint.recover()
    names = ("last_accepted", "last_published", "frontier", "pending", "unpublished", "table")
    return {
        **{name: getattr(recovery, name) for name in names},
        "versions": recovery.slot_versions.tolist(),
        "sources": [recovery.sources(slot) for slot in range(4)],
        "outputs": recovery.ledger.outputs,
        "needed": recovery.ledger.needed(),
    }


def test_who_only_looks_writes_nothing(tmp_path: Path) -> None:
    run(started(tmp_path), [0])
    before, looking = all_files(tmp_path), reopened(tmp_path)
    block = record(looking, 1)
    steps = (lambda: looking.accept(block), lambda: looking.publish(0), looking.sweep_orphans)
    for step in steps:
        with pytest.raises(ProtocolError, match="take it over before you write"):
            step()
    assert [name for name in all_files(tmp_path) if name not in before] == [f"evenflow/{block.blocks[0].file.name}"]


def test_the_number_of_files_is_bounded_everywhere(place: Path) -> None:
    check_the_number_of_files(place, 40)


def test_the_number_of_files_is_bounded_for_long(tmp_path: Path) -> None:
    check_the_number_of_files(tmp_path, 300)


def check_the_number_of_files(place: Path, epochs: int) -> None:
    checkpoint, most = started(place, options=OFTEN), 0
    for epoch in range(epochs):
        run(checkpoint, [epoch], snapshots=1)
        if epoch % 3 == 2:
            checkpoint.publish(epoch)
        # What dead attempts leave behind.
        checkpoint.folder.write_table(work_name(epoch, 1, "dead"), rows_of([]))
        checkpoint.folder.write_table(handoff_name(epoch, 1, "dead"), rows_of([]))
        checkpoint.expect_strays()
        checkpoint.sweep()
        most = max(most, len(all_files(place)))
    assert most < 75
    assert [rebuilt(reopened(place), slot) for slot in range(4)] == [list(range(epochs))] * 4
    needed = reopened(place).recover().ledger.needed()
    started(place).sweep_orphans()
    arrow = {name.removeprefix("evenflow/") for name in all_files(place) if name.endswith("arrow")}
    assert arrow == needed


def test_a_sweep_spares_what_lanes_are_about_to_commit(tmp_path: Path) -> None:
    checkpoint = started(tmp_path, options=OFTEN)
    run(checkpoint, range(3))
    handoff = write_slots(checkpoint.folder, handoff_name(2, 1, "a1"), 2, {1: rows_of([0])})
    checkpoint.expect_strays()
    checkpoint.accept(record(checkpoint, 3))
    zero, one = (lane_commit(checkpoint, 3, lane, slots, slots) for lane, slots in ((0, {0, 1}), (1, {2, 3})))
    next_block = record(checkpoint, 4)
    checkpoint.sweep()
    checkpoint.commit([one])
    checkpoint.sweep()
    assert read_slots(checkpoint.folder, [handoff[0][1]])
    checkpoint.commit([zero])
    checkpoint.accept(next_block)
    assert checkpoint.sweep() > 0
    assert not checkpoint.folder.exists(handoff[0][1].file.name)
    assert [rebuilt(reopened(tmp_path), slot) for slot in range(4)] == [[0, 1, 2, 3]] * 4
    assert checkpoint.folder.read_table(next_block.blocks[0].file).num_rows == 1


# Identity


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keys": ("auction",)}, "key columns: was auction, bidder, is auction"),
        ({"key_types": ("int", "string")}, "types of the key columns: was bigint, string, is int, string"),
        ({"slots": 8}, "number of slots: was 4, is 8"),
        ({"contents": Contents("Sessions")}, "operator: was aggregates, is Sessions"),
        ({"stages": ()}, "number of stages: was 1, is 0"),
        ({"output_mode": "complete"}, "output mode: was update, is complete"),
        ({"slots": 8, "output_mode": "complete"}, "number of slots: was 4, is 8; output mode: was update, is complete"),
    ],
)
def test_another_query_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    run(started(tmp_path), [0])
    before = {name: (tmp_path / name).read_bytes() for name in all_files(tmp_path)}
    with pytest.raises(CheckpointMismatchError, match=f"{words}.*new checkpoint location. It was not touched"):
        Checkpoint.open(str(tmp_path), identity(**change))
    assert {name: (tmp_path / name).read_bytes() for name in all_files(tmp_path)} == before


@pytest.mark.parametrize("name", ["offsets/0", "data.parquet", "evenflow/readme.txt", "evenflow/blocks/strange"])
def test_a_location_of_something_else_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(CheckpointMismatchError, match=r"belongs to something else.* was not touched"):
        Checkpoint.open(str(tmp_path), identity())
    assert all_files(tmp_path) == [name]


def test_hidden_files_and_an_unfinished_beginning_are_no_obstacle(tmp_path: Path) -> None:
    Checkpoint.open(str(tmp_path), identity())
    (tmp_path / ".metadata.crc").write_text("hadoop's")
    (tmp_path / "evenflow/identity.json").rename(tmp_path / "evenflow/identity.json.0a.tmp")
    checkpoint = started(tmp_path)
    run(checkpoint, [0])
    checkpoint.sweep_orphans()
    assert "evenflow/identity.json.0a.tmp" not in all_files(tmp_path)


def test_a_location_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnreachableError, match="file/below"):
        Checkpoint.open(f"{tmp_path}/file/below", identity())
    with pytest.raises(UnreachableError, match="nosuch://x"):
        Checkpoint.open("nosuch://x/y", identity())


# Damage

KINDS_OF_RECORDS = {
    "identity": "evenflow/identity.json",
    "base": "evenflow/base/*.json",
    "published": "evenflow/published/*.json",
    "commit": "evenflow/commits/*.json",
    "epoch": "evenflow/epochs/*.json",
}


def busy(place: Path) -> Checkpoint:
    """A checkpoint in the middle of its life: a base, entries after it, something pending and something unpublished."""
    checkpoint = started(place, options=OFTEN)
    for epoch in range(6):
        run(checkpoint, [epoch], snapshots=1)
        checkpoint.publish(max(0, epoch - 1))
        if epoch < 4:
            checkpoint.sweep()
    checkpoint.accept(record(checkpoint, 6))
    checkpoint.accept(record(checkpoint, 7))
    checkpoint.commit([lane_commit(checkpoint, 6, 0, {0})])
    return checkpoint


@pytest.mark.parametrize("flaw", ["cut", "longer", "emptied", "flipped", "missing", "foreign"])
@pytest.mark.parametrize("kind", KINDS_OF_RECORDS)
def test_a_damaged_record_is_named(kind: str, flaw: str, tmp_path: Path) -> None:
    busy(tmp_path)
    paths = sorted(tmp_path.glob(KINDS_OF_RECORDS[kind]))
    # The newest entry and the newest epoch cannot be missed if nothing speaks of them: take those before.
    path = paths[-2] if kind in {"commit", "epoch"} else paths[-1]
    for old in paths[:-1]:
        if kind in {"base", "published"}:
            old.unlink()
    spoil(path, flaw)
    left = all_files(tmp_path)
    with pytest.raises(DamagedFileError) as caught:
        Checkpoint.open(str(tmp_path), identity())
    named = str(path.parent) if kind in {"base", "published"} and flaw == "missing" else str(path)
    assert named in str(caught.value)
    assert all_files(tmp_path) == left


@pytest.mark.parametrize("folder", ["commits", "epochs"])
def test_a_lost_record_is_noticed_by_the_others(folder: str, tmp_path: Path) -> None:
    checkpoint = started(tmp_path)
    run(checkpoint, range(3))
    checkpoint.publish(2)
    for path in sorted((tmp_path / "evenflow" / folder).iterdir()):
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(DamagedFileError):
            Checkpoint.open(str(tmp_path), identity())
        path.write_bytes(content)
    assert Checkpoint.open(str(tmp_path), identity()).frontier == 2


def test_all_records_of_a_kind_lost(tmp_path: Path) -> None:
    busy(tmp_path)
    for folder in ("base", "commits", "epochs", "published"):
        moved = tmp_path / "evenflow" / folder
        moved.rename(tmp_path / "aside")
        with pytest.raises(DamagedFileError):
            Checkpoint.open(str(tmp_path), identity())
        (tmp_path / "aside").rename(moved)
    Checkpoint.open(str(tmp_path), identity())


@pytest.mark.parametrize("flaw", ["cut", "flipped", "missing", "foreign"])
@pytest.mark.parametrize("kind", ["block", "change", "snapshot", "output"])
def test_a_damaged_data_file_is_named(kind: str, flaw: str, tmp_path: Path) -> None:
    recovery = busy(tmp_path).recover()
    checkpoint = Checkpoint.open(str(tmp_path), identity())
    slot_sources = [recovery.sources(slot) for slot in range(4)]
    file = {
        "block": recovery.pending[0].blocks[0].file,
        "change": next(source.changes[0].file for source in slot_sources if source.changes),
        "snapshot": next(source.snapshot.file for source in slot_sources if source.snapshot),
        "output": recovery.unpublished[0][1][0],
    }[kind]
    path = tmp_path / "evenflow" / file.name
    spoil(path, flaw)
    with pytest.raises(DamagedFileError, match=str(path)):
        checkpoint.folder.read_table(file)


def test_two_data_files_exchanged(tmp_path: Path) -> None:
    folder = busy(tmp_path).folder
    one = folder.write_table("blocks/one", rows_of(np.arange(5)))
    two = folder.write_table("blocks/two", rows_of(np.arange(5) + 1))
    (tmp_path / "evenflow/blocks/two").rename(tmp_path / "evenflow/blocks/one")
    assert one.size == two.size
    with pytest.raises(DamagedFileError, match="checksum"):
        folder.read_table(one)


def test_what_lanes_wrote_survives_a_power_cut_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes flush what is in their files; the commit flushes the names, once per folder, and only then counts them."""
    checkpoint = started(tmp_path, durable=True)
    checkpoint.accept(record(checkpoint, 0))
    flushed: list[str] = []

    def flush(folder: Path) -> None:
        entries = len(list((tmp_path / "evenflow" / "commits").glob("*.json")))
        flushed.append(f"{folder.name} with {entries} entries")

    monkeypatch.setattr(storage, "_flush_folder", flush)
    monkeypatch.setattr(checkpoint, "folder", Folder.at(checkpoint.folder.location, durable="content"))
    commits = [lane_commit(checkpoint, 0, lane, own, own) for lane, own in ((0, {0, 1}), (1, {2, 3}))]
    made = {"evenflow with 0 entries"}  # a folder that is new is flushed where it is made
    assert set(flushed) <= made
    flushed.clear()
    monkeypatch.setattr(checkpoint, "folder", Folder.at(checkpoint.folder.location))
    checkpoint.commit(commits)
    assert [name for name in flushed if name not in made] == [
        "outputs with 0 entries",
        "work with 0 entries",
        "commits with 1 entries",
    ]
