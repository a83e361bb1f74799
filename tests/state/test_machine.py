"""Random lives of a checkpoint against plain dicts: whatever happens and wherever it dies, nothing is lost.

Rows are numbers. A slot's state counts them, so that one that is lost or applied twice can be seen. The model keeps
the input of every epoch; what a slot must be at a version is what its input up to that epoch adds up to. The machine
plays the lanes with real files: changes, snapshots and outputs, blocks and what dead attempts leave.

Killing: a fuse blows at the n-th write or removal, before it, with a half-written file beside it, or after it. Then a
new checkpoint is opened, and must stand where the model stood before the step or after it, nowhere else.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from evenflow.errors import ProtocolError
from evenflow.state import (
    Block,
    Checkpoint,
    EpochRecord,
    FileRef,
    LaneCommit,
    Recovery,
    Segment,
    block_name,
    changes_name,
    files,
    handoff_name,
    output_name,
    read_slots,
    snapshot_name,
    write_slots,
)
from tests.state.places import Fuse, Killed, MortalStorage, identity

SLOTS = 4
LANES = 3
FOLD_EVERY = 3

some_slots = st.sets(st.integers(0, SLOTS - 1))
some_owners = st.lists(st.integers(0, LANES - 1), min_size=SLOTS, max_size=SLOTS)
some_rows = st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(0, 2)), max_size=6)
some_fuse = st.none() | st.integers(1, 9)


@dataclass(frozen=True)
class Manner:
    """How a lane commits: which slots as a whole, which not at all, and how it takes over what others have begun."""

    whole: set[int]
    absent: set[int]
    bridge_by_snapshot: bool


few_slots = st.just(set[int]()) | some_slots
some_manner = st.builds(Manner, few_slots, few_slots, st.booleans())


@dataclass
class Model:
    """What the checkpoint must say, in the simplest words."""

    records: dict[int, EpochRecord] = field(default_factory=dict)
    rows: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    lanes: dict[int, int] = field(default_factory=dict)
    versions: list[int] = field(default_factory=lambda: [-1] * SLOTS)
    outputs: dict[int, dict[int, FileRef]] = field(default_factory=dict)
    published: int = -1

    @property
    def accepted(self) -> int:
        return max(self.records, default=-1)

    @property
    def frontier(self) -> int:
        done = -1
        for epoch, record in self.records.items():
            if min(self.versions) < epoch or any(self.lanes.get(lane, -1) < epoch for lane in record.lanes):
                break
            done = epoch
        return done

    def state(self, slot: int, version: int) -> Counter[int]:
        rows = [row for epoch, all_rows in self.rows.items() if epoch <= version for row in all_rows]
        return Counter(row for where, row in rows if where == slot)

    def open_epochs(self, lane: int) -> list[int]:
        """Return the epochs that a lane may commit next."""
        after = max(self.lanes.get(lane, -1), self.frontier)
        return [epoch for epoch, record in self.records.items() if epoch > after and lane in record.lanes]

    def misses(self, lane: int, epoch: int, slot: int) -> bool:
        """Return whether another lane has not committed an epoch of the slot that lies before this one."""
        between = [record for record in self.records.values() if self.versions[slot] < record.epoch < epoch]
        return any(record.owners[slot] != lane for record in between)


class CheckpointMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="evenflow-"))
        self.fuse = Fuse()
        self.patch = mock.patch.object(files, "storage_at", lambda at, *, durable=True: self.storage(at, durable))
        self.patch.start()
        self.model = Model()
        self.attempts = 0

    def storage(self, location: str, durable: bool) -> MortalStorage:
        assert durable in {True, False}
        return MortalStorage(location, self.fuse)

    def teardown(self) -> None:
        self.patch.stop()
        shutil.rmtree(self.place)

    def open(self) -> Checkpoint:
        return Checkpoint.open(str(self.place), identity(SLOTS), durable=False, fold_every=FOLD_EVERY)

    @initialize(fuse=some_fuse)
    def start(self, fuse: int | None) -> None:
        self.fuse.steps = fuse
        try:
            self.checkpoint = self.open()
        except Killed:
            self.checkpoint = self.open()
        self.fuse.steps = None

    def attempt(self) -> str:
        self.attempts += 1
        return f"a{self.attempts}"

    def mortal(self, fuse: int | None, step: Callable[[], None], after: Model) -> None:
        """Do a step that leads to the model `after`, unless it is killed; then look which of the two it is."""
        self.fuse.steps = fuse
        try:
            step()
        except Killed:
            self.checkpoint = self.open()
            if stands_at(self.checkpoint.recover(), after):
                self.model = after
        else:
            self.model = after
        self.fuse.steps = None

    @rule(rows=some_rows, owners=some_owners, idle=st.booleans(), gap=st.sampled_from([1, 1, 1, 2]), fuse=some_fuse)
    @precondition(lambda self: len(self.checkpoint.recover().pending) < 4)
    def accept(self, rows: list[tuple[int, int]], owners: list[int], idle: bool, gap: int, fuse: int | None) -> None:
        epoch, attempt = self.model.accepted + gap, self.attempt()
        lanes = range(LANES) if idle else sorted(set(owners))
        after = deepcopy(self.model)

        def step() -> None:
            file = self.checkpoint.folder.write_table(block_name(epoch, attempt, 0), table(row for _, row in rows))
            segment = Segment(0, 0, len(rows), tuple(range(SLOTS)), (0,) * SLOTS)
            record = EpochRecord(
                epoch, epoch, tuple(lanes), tuple(owners), (), (Block(file, (segment,)),), epoch, len(rows), 0.0
            )
            after.records[epoch], after.rows[epoch] = record, rows
            after.outputs[epoch] = {}
            self.checkpoint.accept(record)

        self.mortal(fuse, step, after)

    @rule(
        lanes=st.lists(st.integers(0, LANES - 1), min_size=1, max_size=LANES, unique=True),
        skip=st.integers(0, 2),
        manner=some_manner,
        fuse=some_fuse,
    )
    def commit(self, lanes: list[int], skip: int, manner: Manner, fuse: int | None) -> None:
        after, due = deepcopy(self.model), []
        for lane in lanes:
            open_epochs = self.model.open_epochs(lane)
            if open_epochs:
                due.append((open_epochs[min(skip, len(open_epochs) - 1)], lane))
        claims = [self.claim(after, epoch, lane, manner) for epoch, lane in sorted(due)]

        def step() -> None:
            done = [claim() for claim in claims]
            for entry in done:
                if entry.output:
                    after.outputs[entry.epoch][entry.lane] = entry.output
            self.checkpoint.commit(done[::-1])

        self.mortal(fuse, step, after)

    @rule(lane=st.integers(0, LANES - 1))
    def commit_before_the_old_owner(self, lane: int) -> None:
        for epoch in self.model.open_epochs(lane):
            own = [slot for slot in range(SLOTS) if self.model.records[epoch].owners[slot] == lane]
            if any(self.model.misses(lane, epoch, slot) for slot in own):
                with pytest.raises(ProtocolError, match="which moved since"):
                    self.checkpoint.commit([LaneCommit(lane, "early", epoch)])

    def claim(self, model: Model, epoch: int, lane: int, manner: Manner) -> Callable[[], LaneCommit]:
        """Let the model have the commit, and return what writes it."""
        record = model.records[epoch]
        own = {slot for slot in range(SLOTS) if record.owners[slot] == lane}
        missed = {slot for slot in own if model.misses(lane, epoch, slot)}
        whole = manner.whole | (missed if manner.bridge_by_snapshot else set())
        # An absent slot stays where it is; a missed one is taken over from its committed version, backlog and all.
        stay = own & manner.absent
        taken = missed - stay - whole
        explicit = {slot: model.versions[slot] for slot in stay} | dict.fromkeys(taken, epoch)
        known = {slot: model.versions[slot] for slot in own - stay}
        new = {slot: model.state(slot, epoch) for slot in known}
        old = {slot: model.state(slot, version) for slot, version in known.items()}
        for slot in known:
            model.versions[slot] = max(model.versions[slot], epoch)
        model.lanes[lane] = epoch
        ahead = {slot for slot in known if known[slot] >= epoch}  # a snapshot of a later owner came first

        def write() -> LaneCommit:
            folder, attempt = self.checkpoint.folder, self.attempt()
            changed = {
                slot: changes(old[slot], new[slot]) for slot in known if slot not in ahead and old[slot] != new[slot]
            }
            whole_now = {slot: counts(new[slot]) for slot in known if slot in whole}
            refs = write_slots(folder, changes_name(epoch, lane, attempt), epoch, changed)
            return LaneCommit(
                lane,
                attempt,
                epoch,
                refs[0][1].file if refs else None,
                tuple((slot, ref.start, ref.rows) for slot, ref in refs),
                folder.write_table(output_name(epoch, lane, attempt), table([epoch])) if refs else None,
                write_slots(folder, snapshot_name(epoch, lane, attempt), epoch, whole_now),
                tuple(explicit.items()),
            )

        return write

    @rule(step=st.integers(1, 3), fuse=some_fuse)
    def publish(self, step: int, fuse: int | None) -> None:
        waiting = [epoch for epoch in self.model.records if self.model.published < epoch <= self.model.frontier]
        if waiting:
            epoch, after = waiting[min(step, len(waiting)) - 1], deepcopy(self.model)
            after.published = epoch
            self.mortal(fuse, lambda: self.checkpoint.publish(epoch), after)

    @rule(fuse=some_fuse)
    def sweep(self, fuse: int | None) -> None:
        self.mortal(fuse, lambda: drop(self.checkpoint.sweep()), self.model)

    @rule(epoch=st.integers(-2, 2), lane=st.integers(0, LANES - 1))
    def a_dead_attempt_writes(self, epoch: int, lane: int) -> None:
        at, folder = max(0, self.model.accepted + epoch), self.checkpoint.folder
        for name in (changes_name, snapshot_name, handoff_name, output_name):
            folder.write_table(name(at, lane, self.attempt()), table([1]))

    @rule(fuse=some_fuse)
    def restart(self, fuse: int | None) -> None:
        self.checkpoint = self.open()
        self.mortal(fuse, lambda: drop(self.checkpoint.sweep_orphans()), self.model)

    @rule()
    def restart_and_sweep_leaves_what_is_needed_only(self) -> None:
        self.checkpoint = self.open()
        self.checkpoint.sweep_orphans()
        recovery = self.checkpoint.recover()
        found = {str(path.relative_to(self.place / "evenflow")) for path in self.place.rglob("*") if path.is_file()}
        assert {name for name in found if name.endswith(".arrow")} == {ref.name for ref in needed(recovery)}
        assert not [name for name in found if name.endswith(".tmp")]

    @invariant()
    def the_records_say_what_the_model_says(self) -> None:
        assert stands_at(self.checkpoint.recover(), self.model)

    @invariant()
    def every_slot_can_be_rebuilt(self) -> None:
        recovery = self.checkpoint.recover()
        for slot, version in enumerate(recovery.slot_versions.tolist()):
            sources = recovery.sources(slot)
            refs = [*([sources.snapshot] if sources.snapshot else []), *sources.changes]
            assert [ref.version for ref in refs] == sorted({ref.version for ref in refs})
            state: Counter[int] = Counter()
            for part in read_slots(self.checkpoint.folder, refs):
                state.update(dict.fromkeys(part["row"].to_pylist(), 0))
                state |= Counter(dict(zip(part["row"].to_pylist(), part["count"].to_pylist(), strict=True)))
            assert state == self.model.state(slot, version), f"slot {slot} at {version}"

    @invariant()
    def what_is_needed_is_there(self) -> None:
        for ref in needed(self.checkpoint.recover()):
            self.checkpoint.folder.read_table(ref)

    @invariant()
    def due_snapshots_are_those_with_changes(self) -> None:
        recovery = self.checkpoint.recover()
        changed = {slot for slot in range(SLOTS) if recovery.sources(slot).changes}
        due = self.checkpoint.due_snapshots(2)
        assert set(due) <= changed
        assert len(due) == min(2, len(changed))


def stands_at(recovery: Recovery, model: Model) -> bool:
    pending = [record for epoch, record in model.records.items() if epoch > model.frontier]
    newest = model.records.get(model.accepted)
    lanes = {lane for record in [*pending, *([newest] if newest else [])] for lane in record.lanes}
    unpublished = [
        (epoch, tuple(outputs[lane] for lane in sorted(outputs)))
        for epoch, outputs in model.outputs.items()
        if model.published < epoch <= model.frontier
    ]
    return (
        recovery.last_accepted == model.accepted
        and recovery.last_published == model.published
        and recovery.frontier == model.frontier
        and recovery.lane_epochs == {lane: model.lanes.get(lane, -1) for lane in lanes}
        and recovery.slot_versions.tolist() == model.versions
        and recovery.pending == pending
        and recovery.unpublished == unpublished
        and recovery.table == (newest.table() if newest else None)
    )


def needed(recovery: Recovery) -> set[FileRef]:
    """Return all files that a restart would read."""
    sources = [recovery.sources(slot) for slot in range(SLOTS)]
    refs = {change.file for source in sources for change in source.changes}
    refs |= {source.snapshot.file for source in sources if source.snapshot}
    refs |= {block.file for record in recovery.pending for block in record.blocks}
    later = {file for outputs in recovery.ledger.outputs.values() for _, file in outputs}
    return refs | later | {file for _, files_of_epoch in recovery.unpublished for file in files_of_epoch}


def table(rows: Iterable[int]) -> pa.Table:
    return pa.table({"row": pa.array(list(rows), pa.int64())})


def counts(state: Counter[int]) -> pa.Table:
    return pa.table({"row": pa.array(list(state), pa.int64()), "count": pa.array(list(state.values()), pa.int64())})


def changes(old: Counter[int], new: Counter[int]) -> pa.Table:
    """Return the rows of the state that are not as they were."""
    return counts(Counter({row: count for row, count in new.items() if old[row] != count}))


def drop(_: int) -> None:
    """Make a step of something that returns a number."""


def test_random_lives() -> None:
    run_state_machine_as_test(
        CheckpointMachine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
