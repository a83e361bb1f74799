"""Work that takes CPU time in Python, so much per record: what nothing can skip and no sleep stands for."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

import evenflow as ef


def burn(turns: int) -> int:
    """Do work that nothing can skip."""
    value = 1
    for _ in range(turns):
        value = (value * 1_103_515_245 + 12_345) & 0x7FFFFFFF
    return value


def turns_for(seconds: float) -> int:
    """Return how many turns take so much CPU time here; the least of some trials, for others use the caches too."""
    trial = 20_000
    took = []
    for _ in range(20):
        began = time.thread_time()
        burn(trial)
        took.append(time.thread_time() - began)
    return max(1, round(trial * seconds / min(took)))


class Burning(ef.SlotOperator):
    """Sums and counts per key, at a price."""

    output = pa.schema([("key", pa.int64()), ("total", pa.int64()), ("n", pa.int64())])

    def __init__(self, turns: int) -> None:
        """Burn so many turns per row."""
        self.turns = turns

    def init(self) -> dict[int, tuple[int, int]]:
        """Start with no key."""
        return {}

    def process(self, state: dict[int, tuple[int, int]], rows: pa.Table) -> tuple[Any, pa.Table]:
        """Fold one slot's rows."""
        touched = set()
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
            burn(self.turns)
            total, n = state.get(key, (0, 0))
            state[key] = (total + value, n + 1)
            touched.add(key)
        changed = [(key, *state[key]) for key in sorted(touched)]
        return state, pa.table([pa.array(column) for column in zip(*changed, strict=True)], schema=self.output)
