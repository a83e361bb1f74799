"""Rows of several files in slot order, also where they are more than one array of strings can hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from evenflow.model.slots import IntArray
from evenflow.operators import arrays, by_slot


def part(seed: int, rows: int = 60, slots: int = 7) -> tuple[pa.Table, IntArray]:
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, slots, rows))
    names = [f"{seed}/{row}" * int(rng.integers(0, 9)) for row in range(rows)]
    return pa.table({"slot": at, "text": names, "row": np.arange(rows) + 1000 * seed}), at


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("reach", [1, 500, 2000])
def test_a_range_of_slots_at_a_time_is_the_same_as_all_at_once(
    monkeypatch: pytest.MonkeyPatch, parts: int, reach: int
) -> None:
    read = [part(seed) for seed in range(parts)]
    expected, slots = by_slot(read)
    assert slots.tolist() == expected["slot"].to_pylist() == sorted(slots.tolist())
    monkeypatch.setattr(arrays, "JOINED", reach)
    rows, ours = by_slot(read)
    assert rows.to_pylist() == expected.to_pylist()
    assert ours.tolist() == slots.tolist()
    if parts > 1:
        largest = max(sum(batch.nbytes for batch in rows.slice(at, 1).to_batches()) for at in range(rows.num_rows))
        sizes = [batch.nbytes for batch in rows.to_batches()]
        assert max(sizes) <= max(reach, largest, *(table.nbytes for table, _ in read))


def test_rows_of_one_slot_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "JOINED", 1)
    read = [part(seed, slots=1) for seed in range(3)]
    rows, _ = by_slot(read)
    assert rows["text"].num_chunks == 3
    assert rows["row"].to_pylist() == [row + 1000 * seed for seed in range(3) for row in range(60)]


def test_slots_that_need_more_than_16_bits_are_in_order() -> None:
    one, other = np.array([3, 65_536 + 2]), np.array([2, 65_536])
    rows, slots = by_slot([(pa.table({"row": [0, 1]}), one), (pa.table({"row": [2, 3]}), other)])
    assert slots.tolist() == [2, 3, 65_536, 65_538]
    assert rows["row"].to_pylist() == [2, 0, 3, 1]
