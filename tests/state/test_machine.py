"""Random lives of a checkpoint against plain dicts: whatever happens and wherever it dies, nothing is lost.

Rows are numbers. A slot's state counts them, so that one that is lost or applied twice can be seen. The model keeps
the input of every epoch; what a slot must be at a version is what its input up to that epoch adds up to, and what the
outputs of an epoch must hold is the input of the slots that have passed it. The machine plays the lanes with real
files: changes, snapshots, handoffs and outputs, blocks and what dead attempts leave. Any lane may take any slot.

Killing: a fuse blows at the n-th write or removal, before it, with a half-written file beside it, or after it. Then a
new checkpoint is opened, and must stand where the model stood before the step or after it, nowhere else.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import msgspec
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

from evenflow.errors import ProtocolError, TakenOverError
from evenflow.state import (
    Advance,
    Block,
    Changes,
    Checkpoint,
    CheckpointOptions,
    EpochRecord,
    FileRef,
    LaneCommit,
    Recovery,
    Segment,
    SlotRef,
    block_name,
    files,
    handoff_name,
    output_name,
    read_slots,
    work_name,
    write_slots,
)
from tests.state.places import Fuse, Killed, MortalStorage, identity

SLOTS = 4
LANES = 3
OPTIONS = CheckpointOptions(base_bytes=1500, base_ratio=0.5)

some_slots = st.sets(st.integers(0, SLOTS - 1))
some_owners = st.lists(st.integers(0, LANES - 1), min_size=SLOTS, max_size=SLOTS)
some_rows = st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(0, 2)), max_size=6)
some_fuse = st.integers(0, 3).flatmap(lambda dice: st.none() if dice else st.integers(1, 9))
a_lane = st.integers(0, LANES - 1)
a_slot = st.integers(0, SLOTS - 1)


@dataclass(frozen=True)
class Task:
    """What a lane is to do: how many epochs each slot is taken further, and how that is committed.

    `whole` are the slots of which it takes a snapshot, when they are `early` epochs short of where they get.
    """

    lane: int
    steps: tuple[int, ...]
    whole: frozenset[int] = frozenset()
    early: int = 0
    apart: bool = False  # an Advance per slot
    ahead: bool = False  # the lane has reported the newest epoch, although none of these slots is there

    def only(self, slots: set[int]) -> Task:
        return replace(self, steps=tuple(step if slot in slots else 0 for slot, step in enumerate(self.steps)))

    def also(self, slot: int) -> Task:
        return replace(self, steps=(*self.steps[:slot], max(1, self.steps[slot]), *self.steps[slot + 1 :]))


some_steps = st.tuples(*[st.integers(0, 3)] * SLOTS) | st.integers(1, 3).map(lambda steps: (steps,) * SLOTS)
few_slots = st.just(frozenset[int]()) | st.frozensets(a_slot)
some_task = st.builds(Task, a_lane, some_steps, few_slots, st.integers(0, 2), st.booleans(), st.booleans())


@dataclass
class Model:
    """What the checkpoint must say, in the simplest words."""

    records: dict[int, EpochRecord] = field(default_factory=dict)
    rows: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    versions: list[int] = field(default_factory=lambda: [-1] * SLOTS)
    outputs: dict[int, list[tuple[int, FileRef]]] = field(default_factory=dict)
    published: int = -1
    handoffs: dict[int, SlotRef] = field(default_factory=dict)  # in memory: of slots not taken further since

    @property
    def accepted(self) -> int:
        return max(self.records, default=-1)

    @property
    def frontier(self) -> int:
        return max((epoch for epoch in self.records if epoch <= min(self.versions)), default=-1)

    @property
    def pending(self) -> dict[int, EpochRecord]:
        return {epoch: record for epoch, record in self.records.items() if epoch > self.frontier}

    def state(self, slot: int, version: int) -> Counter[int]:
        rows = [row for epoch, all_rows in self.rows.items() if epoch <= version for row in all_rows]
        return Counter(row for where, row in rows if where == slot)

    def ahead_of(self, slot: int) -> list[int]:
        """Return the epochs that a slot has not reached."""
        return [epoch for epoch in self.records if epoch > self.versions[slot]]

    def ways(self, task: Task) -> dict[int, list[int]]:
        """Return the epochs that a task takes each slot through; slots that stay are not in it."""
        ways = {slot: self.ahead_of(slot)[:steps] for slot, steps in enumerate(task.steps)}
        return {slot: epochs for slot, epochs in ways.items() if epochs}

    def fits(self, commit: LaneCommit) -> bool:
        """Return whether each slot is where the lane took it up."""
        return all(self.versions[slot] == advance.since for advance in commit.advances for slot in advance.slots)

    def take(self, commit: LaneCommit) -> None:
        """Let a commit count."""
        for advance in commit.advances:
            for slot in advance.slots:
                self.versions[slot] = advance.version
                self.handoffs.pop(slot, None)
        for epoch, file in commit.outputs:
            self.outputs[epoch].append((commit.lane, file))


class CheckpointMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="evenflow-"))
        self.fuse = Fuse()
        self.patch = mock.patch.object(files, "storage_at", lambda at, *, durable=True: self.storage(at, durable))
        self.patch.start()
        self.model = Model()
        self.under_way: list[LaneCommit] = []  # written, and on their way to the driver
        self.dead: list[Checkpoint] = []  # those of the drivers before; perhaps they only slept
        self.attempts = 0

    def storage(self, location: str, durable: bool) -> MortalStorage:
        assert durable in {True, False}
        return MortalStorage(location, self.fuse)

    def teardown(self) -> None:
        self.patch.stop()
        shutil.rmtree(self.place)

    def open(self) -> Checkpoint:
        checkpoint = Checkpoint.open(str(self.place), identity(SLOTS), durable=False, options=OPTIONS)
        checkpoint.take_over()
        return checkpoint

    @initialize(fuse=some_fuse, epochs=st.lists(st.tuples(some_rows, some_owners), max_size=4))
    def start(self, fuse: int | None, epochs: list[tuple[list[tuple[int, int]], list[int]]]) -> None:
        self.fuse.steps = fuse
        try:
            self.checkpoint = self.open()
        except Killed:
            self.checkpoint = self.open()
        self.fuse.steps = None
        for rows, owners in epochs:
            self.take_in(rows, owners, range(LANES), 1, None)

    def start_again(self) -> None:
        """Open the checkpoint as a new driver does; what was not written down nobody knows any more."""
        before, self.checkpoint, self.under_way, self.model.handoffs = self.checkpoint, self.open(), [], {}
        self.dead = [*self.dead[-2:], before]

    def attempt(self) -> str:
        self.attempts += 1
        return f"a{self.attempts}"

    def mortal(self, fuse: int | None, step: Callable[[], None], after: Model) -> None:
        """Do a step that leads to the model `after`, unless it is killed; then look which of the two it is."""
        self.fuse.steps = fuse
        try:
            step()
        except Killed:
            self.start_again()
            if stands_at(self.checkpoint.recover(), after):
                self.model = after
            self.model.handoffs = {}
        else:
            self.model = after
        self.fuse.steps = None

    @rule(rows=some_rows, owners=some_owners, idle=st.booleans(), gap=st.sampled_from([1, 1, 1, 2]), fuse=some_fuse)
    @precondition(lambda self: len(self.checkpoint.recover().pending) < 4)
    def accept(self, rows: list[tuple[int, int]], owners: list[int], idle: bool, gap: int, fuse: int | None) -> None:
        self.take_in(rows, owners, range(LANES) if idle else sorted(set(owners)), gap, fuse)

    def take_in(
        self, rows: list[tuple[int, int]], owners: list[int], lanes: Iterable[int], gap: int, fuse: int | None
    ) -> None:
        epoch, attempt = self.model.accepted + gap, self.attempt()
        after = deepcopy(self.model)

        def step() -> None:
            file = self.checkpoint.folder.write_table(block_name(epoch, attempt, 0), table(row for _, row in rows))
            segment = Segment(0, 0, len(rows), tuple(range(SLOTS)), (0,) * SLOTS)
            record = EpochRecord(
                epoch, epoch, epoch, tuple(lanes), tuple(owners), (), (Block(file, (segment,)),), (), len(rows), 0.0
            )
            after.records[epoch], after.rows[epoch] = record, rows
            after.outputs[epoch] = []
            self.checkpoint.accept(record)

        self.mortal(fuse, step, after)

    @rule(tasks=st.lists(some_task, min_size=1, max_size=3), written=st.booleans(), sweep=st.booleans(), fuse=some_fuse)
    @precondition(lambda self: bool(self.model.pending))
    def commit(self, tasks: list[Task], written: bool, sweep: bool, fuse: int | None) -> None:
        """Several lanes at once, or one more than once: each begins where the one before has left the slots."""
        after, done = deepcopy(self.model), list[LaneCommit]()

        def write() -> None:
            for task in tasks:
                done.append(self.done(after, task))
                after.take(done[-1])

        def step() -> None:
            if not written:
                write()
            self.checkpoint.commit([each for each in done if each.advances])

        if written:  # so that the fuse blows at the record, not at the many files before it
            write()
        self.mortal(fuse, step, after)
        if sweep:
            self.checkpoint.sweep()

    @rule(task=some_task)
    @precondition(lambda self: bool(self.model.pending) and len(self.under_way) < 3)
    def work(self, task: Task) -> None:
        """Let a lane write what it will commit later, if nobody is faster; sweeps in between must spare it."""
        self.under_way.append(self.done(self.model, task))

    @rule(which=st.integers(0, 2), fuse=some_fuse)
    @precondition(lambda self: bool(self.under_way))
    def commit_what_was_under_way(self, which: int, fuse: int | None) -> None:
        commit = self.under_way.pop(which % len(self.under_way))
        if self.model.fits(commit):
            after = deepcopy(self.model)
            after.take(commit)
            self.mortal(fuse, lambda: self.checkpoint.commit([commit]), after)
        else:
            self.refused([commit], "it took slot . up at version|which is finished")

    def done(self, model: Model, task: Task) -> LaneCommit:
        """Write what a lane writes that takes slots further from where they are in the model."""
        folder, attempt, ways = self.checkpoint.folder, self.attempt(), model.ways(task)
        since = {slot: model.versions[slot] for slot in ways}
        until = {slot: epochs[-1] for slot, epochs in ways.items()}
        epoch = max(0, model.accepted) if task.ahead or not until else max(until.values())
        old = {slot: model.state(slot, since[slot]) for slot in ways}
        new = {slot: model.state(slot, until[slot]) for slot in ways}
        changed = {slot: changes(old[slot], new[slot]) for slot in ways if old[slot] != new[slot]}
        versions = {slot: ways[slot][-1 - min(task.early, len(ways[slot]) - 1)] for slot in task.whole & ways.keys()}
        whole = {slot: counts(model.state(slot, version)) for slot, version in versions.items()}
        outputs = self.outputs(model, ways)
        parts = [pa.concat_tables(each.values()) for each in (changed, whole) if each]
        tables = [*parts, *outputs.values()]
        files = iter(folder.write_tables(work_name(epoch, task.lane, attempt), tables) if tables else ())
        lines = tuple((slot, start, rows, len(new[slot])) for slot, start, rows in places(changed))
        return LaneCommit(
            task.lane,
            attempt,
            epoch,
            advances(since, until, task.apart),
            (Changes(next(files), lines),) if changed else (),
            snapshots=self.snapshots(model, ways, whole, versions, files),
            outputs=tuple(zip(outputs, files, strict=True)),
        )

    def outputs(self, model: Model, ways: dict[int, list[int]]) -> dict[int, pa.Table]:
        """Put out every row that is folded, epoch by epoch."""
        found = {}
        for epoch in sorted({epoch for epochs in ways.values() for epoch in epochs}):
            folded = [(slot, row) for slot, row in model.rows[epoch] if epoch in ways.get(slot, ())]
            if folded:
                found[epoch] = pairs(folded)
        return found

    def snapshots(
        self,
        model: Model,
        ways: dict[int, list[int]],
        whole: dict[int, pa.Table],
        versions: dict[int, int],
        files: Iterator[FileRef],
    ) -> tuple[tuple[int, SlotRef], ...]:
        """Say where the snapshots are; a handoff that was loaded serves for a slot without."""
        file = next(files) if whole else None
        return (
            *((slot, SlotRef(file, versions[slot], start, rows)) for slot, start, rows in places(whole) if file),
            *((slot, ref) for slot, ref in model.handoffs.items() if slot in ways and slot not in whole),
        )

    @rule(lane=a_lane, slots=some_slots.filter(bool))
    def hand_off(self, lane: int, slots: set[int]) -> None:
        """Write slots as they are, all in one file; they may be at different versions."""
        versions = {slot: self.model.versions[slot] for slot in slots}
        states = {slot: counts(self.model.state(slot, version)) for slot, version in versions.items()}
        name = handoff_name(max(versions.values()), lane, self.attempt())
        for slot, ref in write_slots(self.checkpoint.folder, name, 0, states):
            self.model.handoffs[slot] = msgspec.structs.replace(ref, version=versions[slot])

    @rule(first=some_task, second=some_task, shared=a_slot, together=st.booleans())
    @precondition(lambda self: bool(self.model.pending))
    def two_lanes_take_the_same_slot(self, first: Task, second: Task, shared: int, together: bool) -> None:
        """Two attempts, of any lanes, have folded a slot from the same version: one of them counts, once."""
        if not self.model.ahead_of(shared):
            return
        one, other = (self.done(self.model, task.also(shared)) for task in (first, second))
        if together:  # then neither: it is all or nothing
            self.refused([one, other], "it took slot . up at version")
        else:
            self.checkpoint.commit([one])
            self.model.take(one)
            self.refused([one], "it took slot . up at version|which is finished")
            self.refused([other], "it took slot . up at version|which is finished")

    @rule(good=some_task, bad=some_task, slot=a_slot, off=st.integers(-2, 3).filter(bool), good_first=st.booleans())
    @precondition(lambda self: bool(self.model.pending))
    def begin_elsewhere(self, good: Task, bad: Task, slot: int, off: int, good_first: bool) -> None:
        """A lane that took a slot up at another version than the committed one is refused, with all beside it."""
        since = self.model.versions[slot] + off
        later = [epoch for epoch in self.model.pending if epoch > since]
        if not later:
            return
        beside = self.done(self.model, good.only(set(range(SLOTS)) - {slot}))
        free = set(range(SLOTS)) - {slot} - self.model.ways(good).keys()
        right = self.done(self.model, replace(bad.only(free), ahead=True))
        wrong = msgspec.structs.replace(right, advances=(*right.advances, Advance(since, later[0], (slot,))))
        entry = [beside, wrong] if good_first else [wrong, beside]
        self.refused(entry, f"it took slot {slot} up at version {since}, the committed one is {since - off}")

    def refused(self, entry: list[LaneCommit], words: str) -> None:
        """Try to commit, in vain, and see that no trace of it is left, in memory or on disk."""
        before, records = deepcopy(self.checkpoint.recover().ledger), self.names("*.json")
        with pytest.raises(ProtocolError, match=words):
            self.checkpoint.commit(entry)
        ledger = self.checkpoint.recover().ledger
        assert (ledger.to_base(), ledger.pending) == (before.to_base(), before.pending)
        assert (ledger.needed(), ledger.files.garbage) == (before.needed(), before.files.garbage)
        assert self.names("*.json") == records

    def names(self, pattern: str) -> set[str]:
        return {str(path.relative_to(self.place / "evenflow")) for path in self.place.rglob(pattern)}

    @rule(step=st.integers(1, 3), fuse=some_fuse)
    @precondition(lambda self: self.model.published < self.model.frontier)
    def publish(self, step: int, fuse: int | None) -> None:
        waiting = [epoch for epoch in self.model.records if self.model.published < epoch <= self.model.frontier]
        epoch, after = waiting[min(step, len(waiting)) - 1], deepcopy(self.model)
        after.published = epoch
        self.mortal(fuse, lambda: self.checkpoint.publish(epoch), after)

    @rule(fuse=some_fuse)
    def sweep(self, fuse: int | None) -> None:
        self.mortal(fuse, lambda: drop(self.checkpoint.sweep()), self.model)

    @rule(epoch=st.integers(-2, 2), lane=st.integers(0, LANES - 1))
    def a_dead_attempt_writes(self, epoch: int, lane: int) -> None:
        at, folder = max(0, self.model.accepted + epoch), self.checkpoint.folder
        for name in (work_name, handoff_name, output_name):
            folder.write_table(name(at, lane, self.attempt()), table([1]))

    @rule(which=st.integers(0, 2))
    @precondition(lambda self: bool(self.dead))
    def a_driver_of_before_wakes_up(self, which: int) -> None:
        """It ends with whatever step it takes, has changed nothing, and removes nothing."""
        dead = self.dead.pop(which % len(self.dead))
        ledger, files_before = dead.recover().ledger, self.names("*")
        epoch = max(self.model.accepted, ledger.accepted) + 1
        block = dead.folder.write_table(block_name(epoch, self.attempt(), 0), table([]))
        segment = Segment(0, 0, 0, (), ())
        record = EpochRecord(epoch, epoch, 0, (0,), (0,) * SLOTS, (), (Block(block, (segment,)),), (), 0, 0.0)
        steps: list[Callable[[], object]] = [lambda: dead.accept(record), dead.refuse_if_taken_over, dead.sweep_orphans]
        for step in steps:
            with pytest.raises(TakenOverError, match=r"was taken over by another run of its query \(process"):
                step()
        late = {name for name in self.names("*") - files_before if name.endswith(".json")}
        assert len(late) == 1, "the record that came too late; it does not count"
        assert files_before <= self.names("*")

    @rule(fuse=some_fuse, start_fuse=some_fuse)
    def restart(self, fuse: int | None, start_fuse: int | None) -> None:
        self.mortal(start_fuse, self.start_again, self.model)
        self.mortal(fuse, lambda: drop(self.checkpoint.sweep_orphans()), self.model)
        self.checkpoint.sweep_orphans()
        assert self.names("*.arrow") == {ref.name for ref in needed(self.checkpoint.recover())}
        assert not self.names("*.tmp")

    @invariant()
    def the_records_say_what_the_model_says(self) -> None:
        checkpoint, model = self.checkpoint, self.model
        assert stands_at(checkpoint.recover(), model)
        assert (checkpoint.frontier, checkpoint.slot_versions.tolist()) == (model.frontier, model.versions)
        assert list(checkpoint.pending.items()) == list(model.pending.items())
        assert checkpoint.unpublished == len([epoch for epoch in model.records if epoch > model.published])

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
    def every_row_is_put_out_once(self) -> None:
        """Also of the epochs that are not finished: what is there is what the slots that passed them have folded."""
        outputs = self.checkpoint.recover().ledger.outputs
        assert list(outputs) == [epoch for epoch in self.model.records if epoch > self.model.published]
        for epoch, files_of_epoch in outputs.items():
            tables = [self.checkpoint.folder.read_table(file) for _, file in files_of_epoch]
            rows = [pair for each in tables for pair in zip(*each.to_pydict().values(), strict=True)]
            folded = [(slot, row) for slot, row in self.model.rows[epoch] if self.model.versions[slot] >= epoch]
            assert Counter(rows) == Counter(folded), f"epoch {epoch}"

    @invariant()
    def what_is_needed_is_there(self) -> None:
        for ref in needed(self.checkpoint.recover()):
            self.checkpoint.folder.read_table(ref)

    @invariant()
    def what_lanes_may_load_or_commit_is_there(self) -> None:
        refs = [ref.file for ref in self.model.handoffs.values()]
        for commit in filter(self.model.fits, self.under_way):
            refs += [changes.file for changes in commit.changes]
            refs += [file for _, file in commit.outputs] + [ref.file for _, ref in commit.snapshots]
        for ref in refs:
            self.checkpoint.folder.read_table(ref)


def places(tables: dict[int, pa.Table]) -> list[tuple[int, int, int]]:
    """Return (slot, first row, rows) of tables that lie one after the other."""
    ends = itertools.accumulate(each.num_rows for each in tables.values())
    return [(slot, end - each.num_rows, each.num_rows) for (slot, each), end in zip(tables.items(), ends, strict=True)]


def stands_at(recovery: Recovery, model: Model) -> bool:
    newest = model.records.get(model.accepted)
    unpublished = [
        (epoch, tuple(file for _, file in sorted(outputs, key=lambda output: output[0])))
        for epoch, outputs in model.outputs.items()
        if model.published < epoch <= model.frontier
    ]
    return (
        recovery.last_accepted == model.accepted
        and recovery.last_published == model.published
        and recovery.frontier == model.frontier
        and recovery.slot_versions.tolist() == model.versions
        and recovery.pending == list(model.pending.values())
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


def pairs(rows: Iterable[tuple[int, int]]) -> pa.Table:
    slots, numbers = zip(*rows, strict=True)
    return pa.table({"slot": pa.array(slots, pa.int64()), "row": pa.array(numbers, pa.int64())})


def advances(since: dict[int, int], until: dict[int, int], apart: bool) -> tuple[Advance, ...]:
    """Return the slots that go the same way together, or each on its own."""
    ways: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for slot in until:
        ways[since[slot], until[slot], slot if apart else 0].append(slot)
    return tuple(Advance(first, last, tuple(slots)) for (first, last, _), slots in ways.items())


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
            max_examples=40,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )
