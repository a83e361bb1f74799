"""Keys that go while slots are folded, written out, copied ahead, moved and read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from evenflow.lane.messages import Done, Prepare, Prepared, Release, Released, SlotToLoad, Work
from evenflow.model.slots import BoolArray
from evenflow.operators import GONE
from evenflow.state import Advance, SlotRef
from tests.lane.test_worker import TOTALS, Lane, Rows
from tests.operators.removing import Removing


def negative(output: pa.Table) -> BoolArray:
    over: BoolArray = output["total"].to_numpy() < 0
    return over


REMOVING = Removing(TOTALS.aggregates, over=negative)  # a key goes when its total is below 0


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    """A lane that serves slot 1 with the keys 1, 5 and 9, at version 0."""
    lane = Lane(tmp_path, operator=REMOVING)
    lane.adopt(SlotToLoad(1, -1))
    lane.work(Advance(-1, 0, (1,)), e0=[(1, 1), (5, 1), (9, 1)])
    return lane


def other(lane: Lane, *, complete: bool = False) -> Lane:
    return Lane(Path(lane.worker.config.location), operator=REMOVING, complete=complete)


def changes_of(done: Done) -> SlotRef:
    (changes,) = done.commit.changes
    ((_, start, rows, _),) = changes.slots
    return SlotRef(changes.file, done.commit.epoch, start, rows)


def snapshot_of(lane: Lane) -> SlotRef:
    """Hand the slot off and take it back."""
    version = lane.worker.holding.versions[1]
    (released,) = lane.all_of(Release((1,)))
    assert isinstance(released, Released)
    ((_, ref),) = released.handoffs
    lane.adopt(SlotToLoad(1, version, ref))
    return ref


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ([[(1, -2)]], {5: (1, 1), 9: (1, 1)}),
        ([[(1, -2)], [(1, 7)]], {1: (7, 1), 5: (1, 1), 9: (1, 1)}),
        ([[(1, -2)], [(1, 7)], [(1, -8)]], {5: (1, 1), 9: (1, 1)}),
        ([[(13, -1), (5, 1)], [(13, 3), (9, -2), (5, -3), (1, -2)]], {13: (3, 1)}),
        ([[(1, -2), (5, -2), (9, -2)]], {}),
    ],
)
@pytest.mark.parametrize("way", ["handoff", "changes", "changes at once", "copy ahead", "snapshot"])
def test_it_stays_gone_whichever_way_the_slot_travels(
    lane: Lane, epochs: list[Rows], expected: dict[int, tuple[int, int]], way: str
) -> None:
    before, to = snapshot_of(lane), other(lane)
    last, rows = len(epochs), {f"e{at}": batch for at, batch in enumerate(epochs, 1)}
    if way == "copy ahead":
        (prepared,) = to.all_of(Prepare((SlotToLoad(1, 0, before),)))
        assert isinstance(prepared, Prepared)
    if way == "changes":
        dones = [lane.work(Advance(at - 1, at, (1,)), **{f"e{at}": batch}) for at, batch in enumerate(epochs, 1)]
    elif way == "snapshot":
        inputs = tuple(lane.input(at, batch) for at, batch in enumerate(epochs, 1))
        (done,) = lane.say(Work(last, (Advance(0, last, (1,)),), inputs, snapshot_slots=(1,)))
        assert isinstance(done, Done)
        ((_, ref),) = done.commit.snapshots
        to.adopt(SlotToLoad(1, last, ref))
    else:
        dones = [lane.work(Advance(0, last, (1,)), **rows)]
    if way == "handoff":
        ref = snapshot_of(lane)
        assert not any(lane.folder.read_table(ref.file)[GONE].to_pylist())
        to.adopt(SlotToLoad(1, last, ref))
    elif way.startswith("changes"):
        to.adopt(SlotToLoad(1, last, before, tuple(changes_of(done) for done in dones)))
    elif way == "copy ahead":
        to.adopt(SlotToLoad(1, last, None, tuple(changes_of(done) for done in dones), prepared=0))
    assert lane.state() == to.state() == expected
    # What comes next is the same on both.
    (one, two) = (each.work(Advance(last, 9, (1,)), e9=[(1, 3), (5, 3)]) for each in (lane, to))
    assert lane.state() == to.state()
    assert [lane.read(file) for _, file in one.commit.outputs] == [to.read(file) for _, file in two.commit.outputs]
    assert one.state_rows == two.state_rows == len(lane.state())


def test_complete_mode_does_not_put_it_out(lane: Lane) -> None:
    to = other(lane, complete=True)
    to.adopt(SlotToLoad(1, 0, snapshot_of(lane)))
    done = to.work(Advance(0, 2, (1,)), e1=[(1, -2)], e2=[(5, -2), (1, 4)])
    outputs = {epoch: to.read(file) for epoch, file in done.commit.outputs}
    assert outputs == {1: {5: (1, 1), 9: (1, 1)}, 2: {9: (1, 1), 1: (4, 1)}}
    assert done.state_rows == 2
