"""The first row of each key passes: against plain Python by Spark's rules, with moves and replays between epochs."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from evenflow.errors import InputError
from evenflow.model import EpochTime
from evenflow.model.slots import slots_of_hashes
from evenflow.operators import GONE, HASH, SLOT, Dedup
from evenflow.operators.key_hash import hashes_of
from evenflow.testing import Batch, run_batches
from tests.operators.dedup_oracle import SCHEMA, SECOND, UTC_TIME, events_of, passing, random_epochs, table_of

SLOTS, EVERY = 7, list(range(7))
ALL = ("key", "at", "value")


def in_slots(rows: pa.Table, keys: tuple[str, ...], *, hashed: bool) -> tuple[pa.Table, np.ndarray]:
    hashes = hashes_of(rows, keys)
    slots = slots_of_hashes(hashes, SLOTS)
    order = np.argsort(slots, kind="stable")
    rows = rows.append_column(HASH, pa.array(hashes)) if hashed else rows
    return rows.take(pa.array(order)).combine_chunks(), slots[order]


@pytest.mark.parametrize("keys", [("key",), ("key", "at")])
@pytest.mark.parametrize("within", [None, 5 * SECOND, 60 * SECOND])
@pytest.mark.parametrize("seed", range(20))
def test_what_passes_is_what_spark_s_rules_say(seed: int, within: int | None, keys: tuple[str, ...]) -> None:
    """Two lanes share the slots and exchange some after each epoch, by snapshots or by all changes so far."""
    rng = random.Random(seed)
    delay, epochs = rng.choice([0, 5, 60]) * SECOND, random_epochs(rng)
    operator = Dedup(ALL, "at", within)
    lanes = [operator.open(SCHEMA, keys, SLOTS) for _ in range(2)]
    owner = {slot: slot % 2 for slot in EVERY}
    changes: dict[int, list[pa.Table]] = {slot: [] for slot in EVERY}
    expected = passing(epochs, delay, within, keys)
    for epoch, (rows, (passed, (now, before, late), kept)) in enumerate(zip(epochs, expected, strict=True)):
        table, slots = in_slots(table_of(rows), keys, hashed=operator.needs_hash(SCHEMA, keys))
        time, found = EpochTime(epoch, now, 0, before, late), []
        for number, lane in enumerate(lanes):
            mine = [slot for slot in EVERY if owner[slot] == number]
            chosen = np.isin(slots, mine)
            folded = lane.fold(table.filter(pa.array(chosen)), slots[chosen], time) if chosen.any() else None
            found += events_of(folded.output) if folded is not None else []
            for done in filter(None, (folded, lane.fire(mine, time))):
                for slot in mine:
                    changes[slot].append(done.changes.filter(pa.array(done.changes[SLOT].to_numpy() == slot)))
        assert sorted(found, key=repr) == sorted(passed, key=repr)
        assert sum(int(lane.slot_rows().sum()) for lane in lanes) == kept
        for slot in rng.sample(EVERY, 3):
            source, target = lanes[owner[slot]], lanes[1 - owner[slot]]
            for state in [source.snapshot([slot])] if rng.random() < 0.5 else changes[slot]:
                target.install(state)
            source.drop([slot])
            owner[slot] = 1 - owner[slot]


def test_without_a_watermark_keys_are_kept_for_ever_and_the_first_row_passes() -> None:
    rows = [{"user": "ann", "n": 1}, {"user": "bob", "n": 2}, {"user": "ann", "n": 3}]
    run = run_batches(Dedup(("user", "n")), [rows, [{"user": "ann", "n": 4}, {"user": None, "n": 5}]], keys="user")
    assert sorted(run.rows(0), key=repr) == [{"user": "ann", "n": 1}, {"user": "bob", "n": 2}]
    assert run.rows(1) == [{"user": None, "n": 5}]
    assert run.changes[1].num_rows == 1
    assert sorted(run.state["user"].to_pylist(), key=repr) == ["ann", "bob", None]
    assert run.due is None


def test_a_key_passes_again_in_the_epoch_after_the_one_that_forgets_it() -> None:
    def event(second: int) -> pa.Table:
        return table_of([(1, second * SECOND, second)])

    batches = [Batch(event(20), 20 * SECOND), Batch(event(29), 30 * SECOND), Batch(event(31)), Batch(event(32))]
    run = run_batches(Dedup(ALL, "at", 10 * SECOND), batches, keys="key", schema=SCHEMA)
    assert [row["value"] for row in run.rows()] == [20, 32]
    assert run.changes[2][GONE].to_pylist() == [True]


def test_memory_and_state_go_back_once_keys_are_forgotten() -> None:
    state, sizes = Dedup(ALL, "at", 30 * SECOND).open(SCHEMA, ("key",), SLOTS), []
    for epoch in range(400):
        keys = epoch * 10_000 + np.arange(5000 if epoch % 100 == 50 else 100)
        times = pa.array(np.full(len(keys), epoch * 10 * SECOND)).cast(UTC_TIME)
        table, slots = in_slots(pa.table([keys, times, keys], schema=SCHEMA), ("key",), hashed=False)
        time = EpochTime(epoch, epoch * 10 * SECOND, 0, (epoch - 1) * 10 * SECOND, (epoch - 2) * 10 * SECOND)
        state.fold(table, slots, time)
        state.fire(EVERY, time)
        sizes.append((int(state.slot_bytes().sum()), state.snapshot(EVERY).nbytes))
    for before, after in zip(sizes[40], sizes[399], strict=True):
        assert after <= 1.2 * before


def test_complete_mode_is_refused() -> None:
    with pytest.raises(InputError, match="dedup keeps no rows"):
        Dedup(("key",)).in_mode("complete")
