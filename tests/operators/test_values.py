"""Columns of strings: what is kept stays what it was, however many bytes a lane holds in all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.operators.key_columns import key_column_for
from evenflow.operators.values import Heap, values_for

WORDS = ["a", "", None, "dddd", "ee"]
KEPT = np.array([0, 2, 3])
TYPES = [pa.string(), pa.large_string(), pa.binary()]


@pytest.fixture
def no_narrow_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no heap hand out all it holds with the offsets of its type: 32 bits reach no further than 2 GiB."""

    def narrow(heap: Heap, at: Any) -> pa.Array:
        raise pa.ArrowInvalid(f"input array too large: {heap.kind}, {len(at)} values")

    monkeypatch.setattr(Heap, "take", narrow)


@pytest.mark.usefixtures("no_narrow_take")
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_values_are_cleared_of_outdated_ones_without_32_bit_offsets(
    kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, array = values_for(kind), pa.array(WORDS, pa.string()).cast(kind)
    values.reserve(len(array), 0)
    values.clear(0, len(array))
    values.put(np.arange(len(array)), array)
    values.keep(KEPT)
    monkeypatch.undo()
    assert values.take(np.arange(3)).equals(array.take(KEPT))


@pytest.mark.usefixtures("no_narrow_take")
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_keys_are_cleared_of_dropped_ones_without_32_bit_offsets(
    kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, array = key_column_for(kind), pa.array(WORDS, pa.string()).cast(kind)
    keys.append(keys.encode(array), None)
    keys.keep(KEPT)
    monkeypatch.undo()
    assert keys.take(np.arange(3)).equals(array.take(pa.array(KEPT)))
