"""Keys of running aggregates that go after a time without rows: against plain Python, with moves; memory goes back."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from evenflow.model import Due, EpochTime
from evenflow.operators import GONE, SLOT, Agg, Aggregate, ExpiringAggregate
from evenflow.testing import Batch, run_batches
from tests.operators.dedup_oracle import SCHEMA, SECOND, UTC_TIME, Event, random_epochs, table_of
from tests.operators.test_dedup import EVERY, SLOTS, in_slots

SUMS = Aggregate({"total": Agg("sum", "value"), "n": Agg("count")})
Kept = dict[int | None, tuple[int, int, int]]  # key: newest time, sum, count


def folded(kept: Kept, rows: list[Event], time: EpochTime, *, by_event: bool) -> set[tuple[int | None, int, int]]:
    """Fold an epoch in plain Python; return what it puts out."""
    now = time.watermark_us or 0
    for key, at, value in rows:
        newest, total, n = kept.get(key, (-(1 << 62), 0, 0))
        when = (now if at is None else at) if by_event else time.processing_us
        kept[key] = max(newest, when), total + value, n + 1
    return {(key, *kept[key][1:]) for key, _, _ in rows}


@pytest.mark.parametrize("by_event", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_keys_go_and_start_afresh(seed: int, *, by_event: bool) -> None:
    """Two lanes share the slots and exchange some after each epoch, by snapshots or by all changes so far."""
    rng = random.Random(seed)
    after, epochs = rng.choice([5, 15, 40]) * SECOND, random_epochs(rng, 20)
    operator = ExpiringAggregate(SUMS, after, "at" if by_event else None)
    lanes = [operator.open(SCHEMA, ("key",), SLOTS) for _ in range(2)]
    owner = {slot: slot % 2 for slot in EVERY}
    changes: dict[int, list[pa.Table]] = {slot: [] for slot in EVERY}
    kept: Kept = {}
    now = 0
    for epoch, rows in enumerate(epochs):
        now = max([now, *(at - 10 * SECOND for _, at, _ in rows if at is not None)])
        time = EpochTime(epoch, now, epoch * 10 * SECOND)
        expected = folded(kept, rows, time, by_event=by_event)
        clock = now if by_event else time.processing_us
        kept = {key: held for key, held in kept.items() if held[0] + after > clock}
        table, slots = in_slots(table_of(rows), ("key",), hashed=False)
        found = set()
        for number, lane in enumerate(lanes):
            mine = [slot for slot in EVERY if owner[slot] == number]
            chosen = np.isin(slots, mine)
            done = lane.fold(table.filter(pa.array(chosen)), slots[chosen], time) if chosen.any() else None
            found |= {tuple(row.values()) for row in done.output.to_pylist()} if done is not None else set()
            for each in filter(None, (done, lane.fire(mine, time))):
                for slot in mine:
                    changes[slot].append(each.changes.filter(pa.array(each.changes[SLOT].to_numpy() == slot)))
        assert found == expected
        held = {tuple(row.values()) for lane in lanes for row in lane.view(EVERY).to_pylist()}
        assert held == {(key, total, n) for key, (_, total, n) in kept.items()}
        for slot in rng.sample(EVERY, 3):
            source, target = lanes[owner[slot]], lanes[1 - owner[slot]]
            for state in [source.snapshot([slot])] if rng.random() < 0.5 else changes[slot]:
                target.install(state)
            source.drop([slot])
            owner[slot] = 1 - owner[slot]


def test_a_key_goes_by_processing_time_without_rows_and_is_due_before() -> None:
    operator = ExpiringAggregate(Aggregate({"n": Agg("count")}), 60 * SECOND)
    one = [{"key": 1}]
    run = run_batches(operator, [Batch(one, processing_time=5 * SECOND)], keys="key")
    assert run.due == Due(processing_us=65 * SECOND)
    later = [Batch(one, processing_time=5 * SECOND), Batch(processing_time=65 * SECOND), one]
    run = run_batches(operator, later, keys="key")
    assert [output.to_pylist() for output in run.outputs] == [[{"key": 1, "n": 1}], [], [{"key": 1, "n": 1}]]
    assert run.changes[1][GONE].to_pylist() == [True]


def test_memory_and_state_go_back_once_keys_are_gone() -> None:
    state, sizes = ExpiringAggregate(SUMS, 30 * SECOND, "at").open(SCHEMA, ("key",), SLOTS), []
    for epoch in range(400):
        keys = epoch * 10_000 + np.arange(5000 if epoch % 100 == 50 else 100)
        times = pa.array(np.full(len(keys), epoch * 10 * SECOND)).cast(UTC_TIME)
        table, slots = in_slots(pa.table([keys, times, keys], schema=SCHEMA), ("key",), hashed=False)
        time = EpochTime(epoch, epoch * 10 * SECOND)
        state.fold(table, slots, time)
        state.fire(EVERY, time)
        sizes.append((int(state.slot_bytes().sum()), state.snapshot(EVERY).nbytes))
    for before, after in zip(sizes[40], sizes[399], strict=True):
        assert after <= 1.2 * before
