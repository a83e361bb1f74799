"""What a lane does with each message: state comes and goes beside the work; nothing is folded from a wrong place."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest

from evenflow.errors import DamagedFileError, ProtocolError
from evenflow.lane import LaneConfig, LaneWorker, chained, traffic
from evenflow.lane.background import Background, Inline
from evenflow.lane.messages import (
    Adopt,
    Adopted,
    BlockPart,
    Done,
    EpochInput,
    Failed,
    Forget,
    FromLane,
    Prepare,
    Prepared,
    Release,
    Released,
    SlotToLoad,
    Work,
)
from evenflow.operators import Agg, Aggregate, Operator, Stage
from evenflow.state import Advance, FileRef, Folder, Segment, SlotRef, block_name

SLOTS = 4  # a key's slot is its remainder
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
TOTALS = Aggregate({"total": Agg("sum", "value"), "n": Agg("count")})
Rows = list[tuple[int, int]]
Value = TypeVar("Value")


@dataclass
class Held:
    """A background in which nothing happens before the test says so."""

    jobs: list[tuple[Callable[[], Any], Future[Any]]] = field(default_factory=list)

    def submit(self, job: Callable[[], Value], /) -> Future[Value]:
        future: Future[Value] = Future()
        self.jobs.append((job, future))
        return future

    def run(self) -> None:
        for job, future in self.jobs:
            future.set_result(job())
        self.jobs.clear()


class Lane:
    """A lane and the files that it reads and writes."""

    def __init__(
        self,
        place: Path,
        background: Background | None = None,
        *,
        operator: Operator = TOTALS,
        complete: bool = False,
    ) -> None:
        self.folder = Folder.at(str(place), durable=False)
        config = LaneConfig(1, str(place), chained([Stage(operator, SCHEMA, ("key",))], SLOTS), complete)
        self.worker = LaneWorker(config, "attempt", self.folder, background=background or Inline())
        self.blocks = 0

    def say(self, message: Any) -> list[FromLane]:
        return self.worker.handle(message)

    def all_of(self, message: Any) -> list[FromLane]:
        """Say something and let it come to its end."""
        answers = self.say(message)
        while self.worker.is_moving_state:
            answers += self.worker.step()
        return answers

    def adopt(self, *entries: SlotToLoad) -> None:
        (answer,) = self.all_of(Adopt(entries))
        assert isinstance(answer, Adopted)
        assert answer.slots == tuple(entry.slot for entry in entries)

    def input(self, epoch: int, rows: Rows, slots: tuple[int, ...] | None = None) -> EpochInput:
        """Return rows as they come out of the block log; `slots`: only of those."""
        if not rows:
            return EpochInput(epoch, ())
        self.blocks += 1
        ordered = sorted(rows, key=lambda row: row[0] % SLOTS)
        there, counts = np.unique([key % SLOTS for key, _ in ordered], return_counts=True)
        columns = [pa.array([row[at] for row in ordered], pa.int64()) for at in range(2)]
        file = self.folder.write_table(block_name(epoch, f"b{self.blocks}", 0), pa.table(columns, schema=SCHEMA))
        segment = Segment(1, 0, len(rows), tuple(there.tolist()), tuple(counts.tolist()))
        return EpochInput(epoch, (BlockPart(file, segment, slots),))

    def work(self, *advances: Advance, **rows: Rows) -> Done:
        """Fold rows by epoch: `e3=[(key, value), ...]`."""
        inputs = tuple(self.input(int(name[1:]), batch) for name, batch in rows.items())
        (answer,) = self.say(Work(max(one.epoch for one in inputs), advances, inputs))
        assert isinstance(answer, Done)
        return answer

    def state(self, *slots: int) -> dict[int, tuple[int, int]]:
        """Return total and count of the keys of some slots, as they are in memory."""
        rows = self.worker.holding.stages[0].resident.output(list(slots or range(SLOTS))).to_pylist()
        return {row["key"]: (row["total"], row["n"]) for row in rows}

    def read(self, ref: FileRef) -> dict[int, tuple[int, int]]:
        return {row["key"]: (row["total"], row["n"]) for row in self.folder.read_table(ref).to_pylist()}


@dataclass
class Written:
    """The state of slots as another lane has written it: at version 0 by a handoff, and the changes of epoch 1."""

    snapshots: dict[int, SlotRef]
    changes: dict[int, SlotRef]

    def whole(self, slot: int) -> SlotToLoad:
        return SlotToLoad(slot, 1, self.snapshots[slot], (self.changes[slot],))

    def at_0(self, slot: int) -> SlotToLoad:
        return SlotToLoad(slot, 0, self.snapshots[slot])

    def since_0(self, slot: int) -> SlotToLoad:
        return SlotToLoad(slot, 1, None, (self.changes[slot],), prepared=0)


KEYS = {slot: [slot + SLOTS * at for at in range(5)] for slot in range(SLOTS)}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Every key has come once with 1 in epoch 0; the first key of each slot once more with 10 in epoch 1."""
    lane = Lane(tmp_path)
    every = tuple(range(SLOTS))
    lane.adopt(*(SlotToLoad(slot, -1) for slot in every))
    lane.work(Advance(-1, 0, every), e0=[(key, 1) for keys in KEYS.values() for key in keys])
    state = lane.worker.holding.stages[0].resident.snapshot(every)
    file = lane.folder.write_table("handoffs/000000000000-00001-x.arrow", state)
    places = lane.worker.holding.stages[0].places(state, every)
    snapshots = {slot: SlotRef(file, 0, start, rows) for slot, start, rows in places}
    done = lane.work(Advance(0, 1, every), e1=[(keys[0], 10) for keys in KEYS.values()])
    (changed,) = done.commit.changes
    changes = {slot: SlotRef(changed.file, 1, start, rows) for slot, start, rows, _ in changed.slots}
    return Written(snapshots, changes)


def expected(slot: int, first: tuple[int, int] = (11, 2)) -> dict[int, tuple[int, int]]:
    return dict.fromkeys(KEYS[slot], (1, 1)) | {KEYS[slot][0]: first}


class TestComing:
    def test_state_is_installed_a_piece_at_a_time_and_work_is_done_in_between(
        self, tmp_path: Path, written: Written, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(traffic, "_PIECE", 2)
        lane = Lane(tmp_path)
        lane.adopt(SlotToLoad(0, 1))
        assert lane.say(Adopt((written.whole(1),))) == []
        answers: list[FromLane] = []
        epoch = 1
        while not answers:
            lane.work(Advance(epoch, epoch + 1, (0,)), **{f"e{epoch + 1}": [(0, 1)]})
            epoch += 1
            answers = lane.worker.step()
        assert [type(answer) for answer in answers] == [Adopted]
        assert epoch - 1 == 4  # three pieces of the snapshot's 5 rows, one of the changes
        assert lane.state(1) == expected(1)
        assert lane.state(0) == {0: (4, 4)}

    def test_a_lane_that_serves_nothing_installs_the_whole(
        self, tmp_path: Path, written: Written, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(traffic, "_PIECE", 2)
        lane = Lane(tmp_path)
        lane.say(Adopt((written.at_0(1),)))
        assert [type(answer) for answer in lane.worker.step()] == [Adopted]

    def test_it_is_read_in_the_background(self, tmp_path: Path, written: Written) -> None:
        background = Held()
        lane = Lane(tmp_path, background)
        lane.say(Adopt((written.whole(1),)))
        assert lane.worker.is_moving_state
        assert lane.worker.step() == []
        with pytest.raises(ProtocolError, match=r"lane 1 was told to fold rows of slots \[1\], which it does not hold"):
            lane.work(Advance(1, 2, (1,)), e2=[(1, 1)])
        background.run()
        assert [type(answer) for answer in lane.all_of(Forget(()))] == [Adopted]
        assert lane.state() == expected(1)

    def test_a_file_that_is_gone_is_told_with_the_slots_that_it_was_for(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.folder.delete([written.changes[1].file.name])
        (answer,) = lane.all_of(Adopt((written.whole(1),)))
        assert isinstance(answer, Failed)
        assert answer.slots == (1,)
        assert answer.kind == DamagedFileError.__name__
        assert written.changes[1].file.name in answer.message
        lane.adopt(written.at_0(2))  # the lane itself goes on
        assert lane.state() == expected(2, (1, 1))


class TestPreparing:
    def test_a_copy_is_brought_up_to_date_by_the_changes_since(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        (answer,) = lane.all_of(Prepare((written.at_0(1),)))
        assert isinstance(answer, Prepared)
        assert answer.slots == ((1, 0),)
        lane.adopt(written.since_0(1))
        assert lane.state() == expected(1)
        lane.work(Advance(1, 2, (1,)), e2=[(1, 100)])
        assert lane.state() == expected(1, (111, 3))

    def test_what_is_prepared_is_not_served_and_not_counted(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.adopt(SlotToLoad(0, 1))
        lane.all_of(Prepare((written.at_0(1),)))
        done = lane.work(Advance(1, 2, (0,)), e2=[(0, 1)])
        assert done.state_rows == 1
        assert done.loads[0].load.slots == (0,)
        with pytest.raises(ProtocolError, match=r"slots \[1\], which it does not hold"):
            lane.work(Advance(0, 1, (1,)), e1=[(1, 1)])
        with pytest.raises(ProtocolError, match=r"hand off slots \[1\], which it does not hold"):
            lane.say(Release((1,)))

    def test_a_copy_that_cannot_be_read_is_none(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.folder.delete([written.changes[1].file.name])
        (answer,) = lane.all_of(Prepare((written.whole(1),)))
        assert isinstance(answer, Prepared)
        assert answer.slots == ((1, None),)

    def test_an_adoption_without_a_copy_replaces_what_was_prepared(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.all_of(Prepare((written.whole(1),)))
        lane.adopt(written.at_0(1))
        assert lane.state() == expected(1, (1, 1))

    def test_a_slot_that_is_served_is_not_overwritten_by_a_copy(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.adopt(written.whole(1))
        lane.say(Prepare((written.at_0(1),)))
        with pytest.raises(ProtocolError, match=r"lane 1 was told to copy slots \[1\], which it serves"):
            lane.worker.step()


class TestForgetting:
    def test_what_was_prepared_is_gone(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.all_of(Prepare((written.at_0(1), written.at_0(2))))
        assert lane.all_of(Forget((1,))) == []
        assert lane.state() == expected(2, (1, 1))

    def test_it_waits_for_what_was_said_before_it(self, tmp_path: Path, written: Written) -> None:
        background = Held()
        lane = Lane(tmp_path, background)
        lane.say(Adopt((written.at_0(1), written.at_0(2))))
        lane.say(Forget((1,)))
        lane.say(Adopt((written.whole(3),)))
        background.run()
        lane.all_of(Forget(()))
        assert lane.worker.holding.versions == {2: 0, 3: 1}
        assert lane.state() == expected(2, (1, 1)) | expected(3)


class TestLeaving:
    def test_a_handoff_holds_the_slots_as_they_stand(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.adopt(written.whole(1), written.at_0(2))
        (answer,) = lane.all_of(Release((1, 2)))
        assert isinstance(answer, Released)
        assert answer.slots == ((1, 1), (2, 0))
        (_, one), (_, two) = answer.handoffs
        assert (one.version, two.version, one.rows, two.rows) == (1, 0, 5, 5)
        assert lane.read(one.file) == expected(1) | expected(2, (1, 1))
        assert lane.state() == {}

    def test_without_a_handoff_nothing_is_written(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.adopt(written.whole(1))
        before = lane.folder.names("handoffs")
        assert [answer.handoffs for answer in lane.all_of(Release((1,), handoff=False))] == [()]  # type: ignore[union-attr]
        assert lane.folder.names("handoffs") == before
        assert lane.state() == {}

    def test_what_is_folded_after_it_is_not_in_it(self, tmp_path: Path, written: Written) -> None:
        background = Held()
        lane = Lane(tmp_path, background)
        lane.say(Adopt((written.whole(1), written.whole(2))))
        background.run()
        lane.all_of(Forget(()))
        lane.say(Release((1,)))
        lane.work(Advance(1, 2, (2,)), e2=[(2, 5)])  # the others are served meanwhile
        with pytest.raises(ProtocolError, match=r"slots \[1\], which it does not hold"):
            lane.work(Advance(1, 2, (1,)), e2=[(1, 5)])
        background.run()
        (answer,) = lane.worker.step()
        assert isinstance(answer, Released)
        assert lane.read(answer.handoffs[0][1].file) == expected(1)

    def test_it_may_come_back(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.adopt(written.whole(1))
        lane.say(Release((1,)))
        lane.say(Prepare((written.at_0(1),)))
        lane.say(Adopt((written.since_0(1),)))
        answers = lane.all_of(Forget(()))
        assert [type(answer) for answer in answers] == [Released, Prepared, Adopted]
        assert lane.state() == expected(1)


class TestWork:
    def test_time_without_a_core_is_charged_to_no_slot(self, tmp_path: Path) -> None:
        lane = Lane(tmp_path)
        lane.adopt(SlotToLoad(1, -1), SlotToLoad(2, -1))
        lane.worker.clock = iter([10.0, 13.0, 13.0]).__next__  # by the clock 3 s, of which others had the core for 2 s
        lane.worker.needed = iter([5.0, 6.0]).__next__
        done = lane.work(Advance(-1, 0, (1, 2)), e0=[(1, 1), (5, 1), (9, 1), (2, 1)])
        (epoch,) = done.loads
        assert (epoch.busy_s, epoch.crowded_s) == (3.0, 2.0)
        assert dict(zip(epoch.load.slots, epoch.load.busy_s, strict=True)) == {1: 0.75, 2: 0.25}

    @pytest.mark.parametrize("since", [0, 2])
    def test_it_must_begin_where_the_slot_is(self, tmp_path: Path, written: Written, since: int) -> None:
        lane = Lane(tmp_path)
        lane.adopt(written.whole(1))
        with pytest.raises(ProtocolError, match=f"told to fold slot 1 from version {since}, it is at 1"):
            lane.work(Advance(since, 3, (1,)), e3=[(1, 1)])
        assert lane.state() == expected(1)

    def test_rows_of_a_slot_that_it_does_not_hold_are_refused(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.adopt(written.whole(1))
        with pytest.raises(ProtocolError, match=r"fold rows of slots \[2\], which it does not hold"):
            lane.work(Advance(1, 2, (1,)), e2=[(1, 1), (2, 1)])

    def test_only_the_chosen_slots_of_a_block_are_folded(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.adopt(written.whole(1))
        rows = lane.input(2, [(1, 1), (2, 1), (5, 1)], slots=(1,))
        lane.say(Work(2, (Advance(1, 2, (1,)),), (rows,)))
        assert lane.state() == expected(1, (12, 3)) | {5: (2, 2)}

    def test_several_epochs_together_put_out_what_they_would_one_by_one(self, tmp_path: Path) -> None:
        lane = Lane(tmp_path)
        lane.adopt(SlotToLoad(1, -1))
        done = lane.work(Advance(-1, 2, (1,)), e0=[(1, 1), (5, 1)], e1=[(1, 10)], e2=[(9, 7), (1, 100)])
        outputs = {epoch: lane.read(file) for epoch, file in done.commit.outputs}
        assert outputs == {0: {1: (1, 1), 5: (1, 1)}, 1: {1: (11, 2)}, 2: {9: (7, 1), 1: (111, 3)}}
        assert [(load.epoch, load.rows) for load in done.loads] == [(0, 2), (1, 1), (2, 2)]
        # The changes of all three, of a key the newest last.
        other = Lane(tmp_path)
        (changes,) = done.commit.changes
        ((slot, start, rows, _),) = changes.slots
        other.adopt(SlotToLoad(slot, 2, None, (SlotRef(changes.file, 2, start, rows),)))
        assert other.state() == {1: (111, 3), 5: (1, 1), 9: (7, 1)}

    def test_slots_at_different_versions_in_one_work(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.adopt(written.whole(1), written.at_0(2))
        done = lane.work(Advance(0, 1, (2,)), Advance(1, 2, (1,)), e1=[(2, 10)], e2=[(1, 100)])
        assert lane.worker.holding.versions == {1: 2, 2: 1}
        assert lane.state() == expected(1, (111, 3)) | expected(2)
        assert {epoch for epoch, _ in done.commit.outputs} == {1, 2}

    def test_complete_mode_puts_out_each_slot_at_the_epochs_that_it_passes(self, tmp_path: Path) -> None:
        lane = Lane(tmp_path, complete=True)
        lane.adopt(SlotToLoad(1, -1), SlotToLoad(2, -1))
        lane.work(Advance(-1, 0, (1, 2)), e0=[(1, 1), (2, 1)])
        done = lane.work(Advance(0, 1, (1,)), Advance(0, 2, (2,)), e1=[(1, 10)], e2=[(6, 1)])
        outputs = {epoch: lane.read(file) for epoch, file in done.commit.outputs}
        assert outputs == {1: {1: (11, 2), 2: (1, 1)}, 2: {2: (1, 1), 6: (1, 1)}}

    def test_snapshots_bear_the_version_that_each_slot_has_reached(self, tmp_path: Path, written: Written) -> None:
        lane = Lane(tmp_path)
        lane.adopt(written.whole(1), written.at_0(2))
        inputs = (lane.input(1, [(2, 1)]), lane.input(2, [(1, 1)]))
        (done,) = lane.say(Work(2, (Advance(0, 1, (2,)), Advance(1, 2, (1,))), inputs, (1, 2)))
        assert isinstance(done, Done)
        assert {slot: ref.version for slot, ref in done.commit.snapshots} == {1: 2, 2: 1}
        other = Lane(tmp_path)
        other.adopt(*(SlotToLoad(slot, ref.version, ref) for slot, ref in done.commit.snapshots))
        assert other.state() == lane.state()

    def test_a_message_that_is_none_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ProtocolError, match="lane 1 cannot handle Adopted"):
            Lane(tmp_path).say(Adopted((), 0, 0.0))
