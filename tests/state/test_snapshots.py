"""Snapshots go by bytes: over any history little must be read after a crash, and little is written for it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.errors import InputError
from evenflow.state import Advance, Changes, EpochRecord, FileRef, LaneCommit, SlotRef, SnapshotOptions, work_name
from evenflow.state.ledger import Ledger

SLOTS = 12
ROW = 100  # bytes
BUDGET_ROWS = 40


@dataclass
class History:
    """A query of which each slot holds keys; each epoch puts, changes and removes some of them."""

    lanes: int
    rng: random.Random
    budget: int = BUDGET_ROWS * ROW
    old_epochs: int = 8
    packed: bool = False  # a snapshot has two rows, however many keys it holds, as one of a dict has
    ledger: Ledger = field(init=False)
    keys: list[set[int]] = field(default_factory=lambda: [set() for _ in range(SLOTS)])
    epoch: int = -1
    changed: Counter[int] = field(default_factory=Counter)  # rows, by epoch
    removed: Counter[int] = field(default_factory=Counter)
    written: Counter[int] = field(default_factory=Counter)  # rows of snapshots
    largest: int = 0

    def __post_init__(self) -> None:
        self.ledger = Ledger.empty(SLOTS, SnapshotOptions(self.budget, self.old_epochs))

    def run(self, puts: int, changes: int, removals: int, slots: int) -> None:
        self.epoch += 1
        owners = tuple(slot % self.lanes for slot in range(SLOTS))
        record = EpochRecord(self.epoch, self.epoch, 0, tuple(range(self.lanes)), owners, (), (), (), 0, 0.0)
        self.ledger.check_record(record)
        self.ledger.accept(record)
        touched = self.touch(puts, changes, removals, slots)
        done = [self.commit(lane, touched) for lane in range(self.lanes)]
        self.ledger.commit(self.epoch + 1, self.ledger.checked(done))
        self.ledger.publish(self.epoch)
        self.ledger.settle()
        if self.epoch % 5 == 4:
            self.ledger.planner.look_at_files(self.ledger.frontier)

    def touch(self, puts: int, changes: int, removals: int, slots: int) -> dict[int, int]:
        """Change keys of a few slots; return how many rows that makes in each."""
        chosen = self.rng.sample(range(SLOTS), slots)
        touched: dict[int, set[int]] = {slot: set() for slot in chosen}
        for _ in range(puts):
            slot, key = self.rng.choice(chosen), self.rng.randrange(200)
            self.keys[slot].add(key)
            touched[slot].add(key)
        for count, removes in ((changes, False), (removals, True)):
            for _ in range(count):
                slot = self.rng.choice(chosen)
                if self.keys[slot]:
                    key = self.rng.choice(sorted(self.keys[slot]))
                    touched[slot].add(key)
                    if removes:
                        self.keys[slot].discard(key)
                        self.removed[self.epoch] += 1
        return {slot: len(keys) for slot, keys in touched.items() if keys}

    def commit(self, lane: int, touched: dict[int, int]) -> LaneCommit:
        mine = np.array([slot for slot in range(SLOTS) if slot % self.lanes == lane])
        due = self.ledger.due_snapshots(mine, self.lanes)
        rows = [(slot, touched[slot]) for slot in mine.tolist() if slot in touched]
        total = sum(count for _, count in rows)
        ends = np.cumsum([0, *(count for _, count in rows)]).tolist()
        name = work_name(self.epoch, lane, "a")
        whole = [(slot, len(self.keys[slot])) for slot in due]
        size = sum(count for _, count in whole)
        parts = [(slot, 2 if self.packed else count) for slot, count in whole]
        starts = np.cumsum([0, *(count for _, count in parts)]).tolist()
        snapshot = FileRef(name, size * ROW, 0, total * ROW)
        places = tuple((slot, start, n, len(self.keys[slot])) for start, (slot, n) in zip(ends, rows, strict=False))
        self.changed[self.epoch] += total
        self.written[self.epoch] += size
        self.largest = max(self.largest, *map(len, self.keys))
        return LaneCommit(
            lane,
            "a",
            self.epoch,
            (Advance(self.epoch - 1, self.epoch, tuple(mine.tolist())),),
            (Changes(FileRef(name, total * ROW, 0), places),) if rows else (),
            snapshots=tuple(
                (slot, SlotRef(snapshot, self.epoch, start, n)) for start, (slot, n) in zip(starts, parts, strict=False)
            ),
        )

    @property
    def stored(self) -> int:
        return int(self.ledger.holdings.stored_bytes.sum()) // ROW

    @property
    def state(self) -> int:
        return sum(map(len, self.keys))

    def check(self) -> None:
        """What must be read is at most twice the state and the budget, but for what came after it was decided."""
        lately = sum(self.changed[at] + 2 * self.removed[at] for at in (self.epoch, self.epoch - 1))
        assert self.stored <= 2 * self.state + BUDGET_ROWS + lately + self.lanes * self.largest
        before = self.changed[self.epoch - 1] + 2 * self.removed[self.epoch - 1]
        # A slot is written as a whole: the first one of each lane may be larger than what is left.
        allowed = max(BUDGET_ROWS, before) + BUDGET_ROWS + self.lanes * self.largest
        assert self.written[self.epoch] <= allowed


epochs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 60), st.integers(0, 30), st.integers(1, SLOTS)),
    min_size=1,
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(history=epochs, lanes=st.integers(1, 4), seed=st.integers(0, 1 << 16), packed=st.booleans())
def test_what_must_be_read_after_a_crash_is_bounded(
    history: list[tuple[int, int, int, int]], lanes: int, seed: int, packed: bool
) -> None:
    query = History(lanes, random.Random(seed), packed=packed)
    for epoch in history:
        query.run(*epoch)
        query.check()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_steady_query_writes_about_what_it_changes_and_keeps_few_files(lanes: int, packed: bool) -> None:
    query = History(lanes, random.Random(2), packed=packed)
    most = 0
    for epoch in range(400):
        query.run(20, 40, 10, SLOTS)
        query.check()
        if epoch > 100:
            most = max(most, len(set(query.ledger.files)))
    assert sum(query.written.values()) <= 1.5 * sum(query.changed.values()) + BUDGET_ROWS * 400
    assert most <= 40 * lanes


def test_a_packed_snapshot_counts_by_its_bytes() -> None:
    query = History(1, random.Random(3), budget=0, old_epochs=1 << 30, packed=True)
    for _ in range(10):
        query.run(400, 0, 0, SLOTS)
    for _ in range(200):
        query.run(0, 60, 0, SLOTS)
        assert query.stored <= 2 * query.state + 60 + query.largest


def test_a_slot_that_rests_is_not_written_again() -> None:
    query = History(1, random.Random(4))
    query.run(200, 0, 0, SLOTS)
    for _ in range(60):
        query.run(0, 0, 0, 1)
    assert sum(query.written[at] for at in range(40, 61)) == 0


@pytest.mark.parametrize("name", ["budget_bytes", "old_epochs"])
def test_numbers_that_cannot_be(name: str) -> None:
    with pytest.raises(InputError, match=f"snapshots: {name} must not be negative, got -1"):
        SnapshotOptions(**{name: -1})
