"""What the state of a user's operator costs per epoch: one slot with many entries of which a few are touched.

    python -m benchmarks.user_state [--entries 100000] [--touched 10]

CPU seconds of one process, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.operators import Apply, Resident, SlotOperator

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])


class Totals(SlotOperator):
    """A number per key."""

    output = SCHEMA

    def init(self) -> Any:
        return {}

    def process(self, state: Any, rows: pa.Table) -> tuple[Any, None]:
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
            state[key] = state.get(key, 0) + value
        return state, None


class Lists(Totals):
    """A list per key, changed in place."""

    def process(self, state: Any, rows: pa.Table) -> tuple[Any, None]:
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
            held = state.setdefault(key, [0, 0])
            held[0], held[1] = held[0] + 1, value
        return state, None


class Fresh(Totals):
    """A number per key, in a dict that is made anew each time."""

    def process(self, state: Any, rows: pa.Table) -> tuple[Any, None]:
        came = dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
        return {key: value + came.pop(key, 0) for key, value in state.items()} | came, None


def rows_of(keys: Any) -> tuple[pa.Table, Any]:
    return pa.table([pa.array(keys), pa.array(np.ones(len(keys), np.int64))], SCHEMA), np.zeros(len(keys), np.int64)


def measured(operator: SlotOperator, entries: int, touched: int, epochs: int = 20) -> dict[str, Any]:
    """Return CPU milliseconds and bytes of an epoch, and milliseconds of one that touches all, and of a slot's move."""
    resident = opened(operator)
    resident.fold(*rows_of(np.arange(entries)))
    rng, size, began = np.random.default_rng(1), 0, time.process_time()
    for _ in range(epochs):
        size += resident.fold(*rows_of(np.sort(rng.integers(0, entries, touched)))).changes.nbytes
    epoch = time.process_time()
    for _ in range(3):
        resident.fold(*rows_of(np.arange(entries)))
    dense = time.process_time()
    snapshot = resident.snapshot([0])
    written = time.process_time()
    other = opened(operator)
    other.install(snapshot)
    installed = time.process_time()
    other.fold(*rows_of(np.arange(1)))
    used = time.process_time()
    return {
        "operator": type(operator).__name__,
        "epoch_ms": round(1e3 * (epoch - began) / epochs, 2),
        "epoch_bytes": size // epochs,
        "all_touched_ms": round(1e3 * (dense - epoch) / 3, 1),
        "snapshot_ms": round(1e3 * (written - dense), 1),
        "snapshot_bytes": snapshot.nbytes,
        "install_ms": round(1e3 * (installed - written), 1),
        "first_use_ms": round(1e3 * (used - installed), 1),
    }


def opened(operator: SlotOperator) -> Resident:
    return Apply(operator).open(SCHEMA, ("key",), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--touched", type=int, default=10)
    options = parser.parse_args()
    for operator in (Totals(), Lists(), Fresh()):
        print(json.dumps(measured(operator, options.entries, options.touched)))


if __name__ == "__main__":
    main()
