"""What one commit of a lane comes to, checked against how far the slots are; or why it cannot count."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from evenflow.errors import ProtocolError
from evenflow.model import Epoch, LaneId, SlotId
from evenflow.model.slots import IntArray
from evenflow.state.files import FileRef
from evenflow.state.naming import HANDOFFS, OUTPUTS, WORK, epoch_of
from evenflow.state.records import Block, LaneCommit, SlotRef


@dataclass(slots=True)
class Step:
    """A commit that fits: where its slots get, and what is added for them.

    `changes` are files, what of them is whose, and how many rows of state each slot has now: `parts` are columns of
    slot, file, version, first row, rows and bytes; the file has no number yet.
    """

    lane: LaneId
    slots: IntArray
    since: IntArray
    until: IntArray
    changes: list[tuple[FileRef, IntArray, IntArray]]
    snapshots: list[tuple[SlotId, SlotRef, int]]
    outputs: tuple[tuple[Epoch, FileRef], ...]
    feeds: tuple[tuple[Epoch, Block], ...]


def checked_step(done: LaneCommit, versions: IntArray, pending: Container[Epoch], frontier: Epoch) -> Step:
    """Return what a commit comes to and bring `versions` there; raise if it cannot count.

    This is what makes a commit count once: whoever folded a slot from another version than the committed one has
    missed input, or has folded some that another lane has committed.
    """
    who = f"lane {done.lane} (attempt {done.attempt}) cannot commit epoch {done.epoch}"
    step = _advanced(done, who, versions, pending, frontier)
    _check_changes(done, who, step)
    _check_snapshots(done, who, step)
    for epoch in [*(epoch for epoch, _ in done.outputs), *(epoch for epoch, _ in done.feeds)]:
        if epoch not in pending:
            raise ProtocolError(
                f"{who}: it has output of epoch {epoch}, which is {_state_of(epoch, pending, frontier)}"
            )
        if not ((step.since < epoch) & (epoch <= step.until)).any():
            raise ProtocolError(f"{who}: it has output of epoch {epoch}, which it has taken no slot through")
    for epoch, block in done.feeds:
        check_name(block.file, done.epoch, WORK)
        _check_fed(who, epoch, block, versions)
    for epoch, file in done.outputs:
        own = file.name.startswith(f"{OUTPUTS}/")
        check_name(file, epoch if own else done.epoch, OUTPUTS if own else WORK)
    versions[step.slots] = step.until
    return step


def _advanced(done: LaneCommit, who: str, versions: IntArray, pending: Container[Epoch], frontier: Epoch) -> Step:
    """Return the ways of all slots, by slot; each must be where the lane took it up."""
    for advance in done.advances:
        if advance.version not in pending or not advance.since < advance.version <= done.epoch:
            state = _state_of(advance.version, pending, frontier)
            raise ProtocolError(f"{who}: it goes from {advance.since} to {advance.version}, which is {state}")
    sizes = [len(advance.slots) for advance in done.advances]
    slots = np.array([slot for advance in done.advances for slot in advance.slots], dtype=np.int64)
    since = np.repeat(np.array([advance.since for advance in done.advances], dtype=np.int64), sizes)
    until = np.repeat(np.array([advance.version for advance in done.advances], dtype=np.int64), sizes)
    order = np.argsort(slots, kind="stable")
    slots, since, until = slots[order], since[order], until[order]
    strange = (slots < 0) | (slots >= versions.size)
    strange[1:] |= slots[1:] == slots[:-1]
    if strange.any():
        raise ProtocolError(f"{who}: it names slot {slots[strange][0]}, which does not exist or was named before")
    elsewhere = np.flatnonzero(versions[slots] != since)
    if elsewhere.size:
        first = elsewhere[0]
        raise ProtocolError(
            f"{who}: it took slot {slots[first]} up at version {since[first]}, "
            f"the committed one is {versions[slots[first]]}"
        )
    return Step(done.lane, slots, since, until, [], [], done.outputs, done.feeds)


def _check_fed(who: str, epoch: Epoch, block: Block, versions: IntArray) -> None:
    """Refuse input for units that have passed its epoch: they would never fold it."""
    units = np.array([unit for segment in block.segments for unit in segment.slots], dtype=np.int64)
    strange = (units < 0) | (units >= versions.size)
    if strange.any():
        raise ProtocolError(f"{who}: it feeds unit {units[strange][0]}, which does not exist")
    late = versions[units] >= epoch
    if late.any():
        unit = units[late][0]
        raise ProtocolError(
            f"{who}: it feeds unit {unit} at epoch {epoch}, which that has passed: it is at {versions[unit]}"
        )


def _check_changes(done: LaneCommit, who: str, step: Step) -> None:
    for changes in done.changes:
        check_name(changes.file, done.epoch, WORK)
        slots, starts, rows, state_rows = np.array(changes.slots, dtype=np.int64).reshape(-1, 4).T
        at = _places(step.slots, slots)
        if (at < 0).any():
            raise ProtocolError(f"{who}: it has changes of slot {slots[at < 0][0]}, which it has not advanced")
        listed = rows > 0
        total = max(1, int((starts + rows).max(initial=0)))
        sizes = rows * changes.file.size // total
        columns = (slots, np.zeros_like(slots), step.until[at], starts, rows, sizes)
        step.changes.append((changes.file, np.stack(columns)[:, listed], state_rows[listed]))


def _check_snapshots(done: LaneCommit, who: str, step: Step) -> None:
    if not done.snapshots:
        return
    at = _places(step.slots, np.array([slot for slot, _ in done.snapshots], dtype=np.int64)).tolist()
    ends: dict[FileRef, int] = {}
    for place, (slot, ref) in zip(at, done.snapshots, strict=True):
        # One of an older version may lie in a file that is swept already.
        if place < 0 or not step.since[place] <= ref.version <= step.until[place]:
            raise ProtocolError(
                f"{who}: it has a snapshot of slot {slot} at {ref.version}, where it has not taken the slot"
            )
        _check_snapshot_name(ref, done.epoch)
        ends[ref.file] = max(ends.get(ref.file, 1), ref.start + ref.rows)
    step.snapshots = [(slot, ref, ref.rows * ref.file.size // ends[ref.file]) for slot, ref in done.snapshots]


def _places(slots: IntArray, wanted: IntArray) -> IntArray:
    """Return where each wanted slot is among others that are sorted; -1 where it is not."""
    if not slots.size:
        return np.full(wanted.size, -1)
    at = np.minimum(np.searchsorted(slots, wanted), slots.size - 1)
    return np.where(slots[at] == wanted, at, -1)


def _state_of(epoch: Epoch, pending: Container[Epoch], frontier: Epoch) -> str:
    if epoch in pending:
        return "open"
    return "finished" if epoch <= frontier else "not accepted"


def check_name(file: FileRef, epoch: Epoch, folder: str) -> None:
    """Refuse a file that does not bear the epoch of the record: sweeping goes by that."""
    if epoch_of(file.name) != epoch or file.name.partition("/")[0] != folder:
        raise ProtocolError(f"{file.name} is no name for a file of {folder} of epoch {epoch}")


def _check_snapshot_name(ref: SlotRef, epoch: Epoch) -> None:
    """Refuse a snapshot in a file that may be swept before this record: a handoff bears its newest slot's version."""
    if ref.file.name.startswith(f"{HANDOFFS}/"):
        check_name(ref.file, max(ref.version, epoch_of(ref.file.name) or 0), HANDOFFS)
    else:
        check_name(ref.file, epoch, WORK)
