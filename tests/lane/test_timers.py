"""What is due fires once, in the epoch whose time says so, also without rows, wherever its slot is by then."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from evenflow.lane.cut import Portion, read
from evenflow.lane.messages import (
    Adopt,
    Adopted,
    Done,
    EpochInput,
    Prepare,
    Prepared,
    Release,
    Released,
    SlotToLoad,
    Work,
    decode_from_lane,
    encode,
)
from evenflow.model import Due, EpochTime
from evenflow.operators import GONE
from evenflow.state import Advance, EpochRecord, SlotRef
from tests.lane.test_worker import SLOTS, Lane, Rows
from tests.operators.timers import timers

Clock = Literal["watermark", "processing"]
Outputs = dict[int, dict[int, int]]  # by epoch, how often each key that fired had come
CLOCKS: tuple[Clock, ...] = ("watermark", "processing")


class Timed(Lane):
    """A lane whose epochs have times: epoch e is at e * 100 on both clocks, which differ in what is set."""

    def __init__(self, place: Path, clock: Clock, *, complete: bool = False) -> None:
        super().__init__(place, operator=timers(clock), complete=complete)
        self.clock: Clock = clock

    def at(self, after: int, epoch: int) -> int:
        """Return the value that sets a timer in an epoch to `after`."""
        return after if self.clock == "watermark" else after - 100 * epoch

    def due(self, at: int | None) -> Due | None:
        return None if at is None else Due(watermark_us=at) if self.clock == "watermark" else Due(processing_us=at)

    def epochs(
        self, slots: tuple[int, ...], since: int, epochs: dict[int, Rows], snapshot: tuple[int, ...] = ()
    ) -> Done:
        """Fold epochs, of which each row sets a timer: (key, when)."""
        inputs = []
        for epoch, rows in epochs.items():
            plain = self.input(epoch, [(key, self.at(when, epoch)) for key, when in rows])
            mark = 100 * epoch if self.clock == "watermark" else None
            inputs.append(msgspec.structs.replace(plain, watermark_us=mark, processing_us=100 * epoch))
        last = max(epochs)
        (done,) = self.say(Work(last, (Advance(since, last, slots),), tuple(inputs), snapshot))
        assert isinstance(done, Done)
        return done

    def outputs(self, *dones: Done) -> Outputs:
        return {
            epoch: {row["key"]: row["n"] for row in self.folder.read_table(file).to_pylist()}
            for done in dones
            for epoch, file in done.commit.outputs
        }


@pytest.fixture(params=CLOCKS)
def lane(request: pytest.FixtureRequest, tmp_path: Path) -> Timed:
    """A lane that serves slots 1 and 2; at 250 something is due in both, at 450 in slot 1."""
    lane = Timed(tmp_path, request.param)
    lane.adopt(SlotToLoad(1, -1), SlotToLoad(2, -1))
    done = lane.epochs((1, 2), -1, {0: [(1, 250), (2, 250), (5, 450), (1, 200)]})
    assert done.due == lane.due(250)
    assert lane.outputs(done) == {}
    return lane


EXPECTED = {3: {1: 2, 2: 1}, 5: {5: 1}}


def another(lane: Timed, *, complete: bool = False) -> Timed:
    return Timed(Path(lane.worker.config.location), lane.clock, complete=complete)


def test_it_fires_once_in_the_first_epoch_at_or_after_its_time(lane: Timed) -> None:
    outputs: Outputs = {}
    dues = []
    for epoch in range(1, 8):
        done = lane.epochs((1, 2), epoch - 1, {epoch: []})
        outputs |= lane.outputs(done)
        dues.append(done.due)
    assert outputs == EXPECTED
    assert dues == [lane.due(at) for at in (250, 250, 450, 450, None, None, None)]
    assert lane.worker.holding.stages[0].resident.slot_rows().sum() == 0


def test_several_epochs_in_one_work_fire_what_they_would_one_by_one(lane: Timed) -> None:
    done = lane.epochs((1, 2), 0, {epoch: [] for epoch in range(1, 8)})
    assert lane.outputs(done) == EXPECTED
    assert done.due is None


def test_rows_of_the_epoch_are_folded_before_it_fires(lane: Timed) -> None:
    done = lane.epochs((1, 2), 0, {3: [(1, 120), (2, 320), (9, 300)]})
    assert lane.outputs(done) == {3: {1: 3, 9: 1}}  # one row more, one that puts it off, one that is due at once
    changes = lane.folder.read_table(done.commit.changes[0].file)
    last = {row["key"]: row[GONE] for row in changes.to_pylist()}
    assert last == {1: True, 9: True, 2: False}


def test_only_slots_that_pass_the_epoch_fire(lane: Timed) -> None:
    done = lane.epochs((1,), 0, {3: []})
    assert lane.outputs(done) == {3: {1: 2}}
    assert done.due == lane.due(250)  # of slot 2, which is behind
    done = lane.epochs((2,), 0, {3: []})
    assert lane.outputs(done) == {3: {2: 1}}


@pytest.mark.parametrize("way", ["handoff", "copy ahead", "changes", "snapshot"])
@pytest.mark.parametrize("fired", [0, 3])
def test_timers_move_with_their_slot(lane: Timed, way: str, fired: int) -> None:
    """Slot 1 goes to another lane, before anything has fired or between the two times."""
    to, entry = another(lane), SlotToLoad(1, fired)
    if way == "copy ahead":
        (released,) = lane.all_of(Release((1,)))
        assert isinstance(released, Released)
        lane.adopt(SlotToLoad(1, 0, released.handoffs[0][1]))
        (prepared,) = to.all_of(Prepare((SlotToLoad(1, 0, released.handoffs[0][1]),)))
        assert isinstance(prepared, Prepared)
        assert to.worker.holding.due() is None, "another lane still serves it"
        entry = SlotToLoad(1, fired, prepared=0)
    outputs: Outputs = {}
    changes, since = [], 0
    if way == "changes":
        lane = another(lane)  # everything once more, so that there are changes from the beginning on
        lane.adopt(SlotToLoad(1, -1))
        since = -1
    steps = {0: [(1, 250), (5, 450), (1, 200)]} if way == "changes" else {}
    steps |= {epoch: [] for epoch in range(1, fired + 1)}
    for epoch, rows in steps.items():
        done = lane.epochs((1,), since, {epoch: rows}, (1,) if way == "snapshot" else ())
        outputs |= lane.outputs(done)
        changes += [
            SlotRef(changed.file, epoch, at, n) for changed in done.commit.changes for _, at, n, _ in changed.slots
        ]
        if way == "snapshot":
            entry = SlotToLoad(1, fired, done.commit.snapshots[0][1])
        since = epoch
    if way == "handoff" or (way == "snapshot" and not fired):
        (released,) = lane.all_of(Release((1,)))
        assert isinstance(released, Released)
        entry = SlotToLoad(1, fired, released.handoffs[0][1])
    elif way in ("changes", "copy ahead"):
        entry = msgspec.structs.replace(entry, changes=tuple(changes))
    (adopted,) = to.all_of(Adopt((entry,)))
    assert isinstance(adopted, Adopted)
    assert adopted.due == lane.due(450 if fired else 250)
    done = to.epochs((1,), fired, {epoch: [] for epoch in range(fired + 1, 8)})
    assert outputs | to.outputs(done) == {3: {1: 2}, 5: {5: 1}}


def test_what_fires_after_a_recovery_is_the_same(lane: Timed) -> None:
    """The lane dies after epoch 4 was folded and before it was committed; others go on from the changes of epoch 2."""
    lane.epochs((1, 2), 0, {1: [(13, 500)], 2: [(6, 390)]})
    (released,) = lane.all_of(Release((1, 2)))
    assert isinstance(released, Released)
    refs = dict(released.handoffs)
    told: Outputs = {}
    for _ in range(2):
        again = another(lane)
        again.adopt(*(SlotToLoad(slot, 2, refs[slot]) for slot in (1, 2)))
        done = again.epochs((1, 2), 2, {3: [(1, 440)], 4: [], 5: []})
        told |= again.outputs(done)
        assert again.outputs(done) == told == {3: {2: 1}, 4: {6: 1}, 5: {1: 3, 5: 1, 13: 1}}


def test_complete_mode_puts_out_what_is_left(lane: Timed) -> None:
    to = another(lane, complete=True)
    (released,) = lane.all_of(Release((1, 2)))
    assert isinstance(released, Released)
    to.adopt(*(SlotToLoad(slot, 0, ref) for slot, ref in released.handoffs))
    assert to.outputs(to.epochs((1, 2), 0, {2: [], 3: []})) == {2: {1: 2, 2: 1, 5: 1}, 3: {5: 1}}


def test_an_operator_without_timers_says_so(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.adopt(SlotToLoad(1, -1))
    assert lane.work(Advance(-1, 0, (1,)), e0=[(1, 1)]).due is None


def test_when_something_is_due_survives_the_wire(lane: Timed) -> None:
    done = lane.epochs((1, 2), 0, {1: []})
    assert decode_from_lane(encode(done)) == done
    adopted = Adopted((1,), 0, 0.0, Due(3, None))
    assert decode_from_lane(encode(adopted)) == adopted


def test_the_time_of_an_epoch_is_that_of_its_record() -> None:
    record = EpochRecord(7, 7, 0, (0,), (0,) * SLOTS, (), (), (55, 70), 0, 1_700_000_000.123456, False, 55, 44, 33)
    assert record.time == EpochTime(7, 55, 1_700_000_000_123_456, before_us=44, late_us=33)
    assert EpochInput.of(record, ()).time == record.time
    stored = msgspec.json.decode(msgspec.json.encode(record), type=EpochRecord)
    assert stored.time == record.time


def test_a_reader_of_the_state_fires_what_its_epoch_has_fired(lane: Timed) -> None:
    """Slot 1 is read at epoch 3, which it has passed; slot 2 is behind, and is taken there."""
    (released,) = lane.all_of(Release((1, 2)))
    assert isinstance(released, Released)
    refs, to = dict(released.handoffs), another(lane)
    to.adopt(SlotToLoad(1, 0, refs[1]))
    done = to.epochs((1,), 0, {3: []}, snapshot=(1,))
    behind = EpochInput(3, (), 300 if lane.clock == "watermark" else None, 300)
    portion = Portion((SlotToLoad(1, 3, done.commit.snapshots[0][1]), SlotToLoad(2, 0, refs[2])), (behind,))
    batches = read(lane.worker.config.stages[0], lane.folder, portion)
    assert [row["key"] for batch in batches for row in batch.to_pylist()] == [5]
