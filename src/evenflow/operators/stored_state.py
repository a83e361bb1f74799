"""A state object as bytes: Arrow tables as Arrow IPC, everything else pickled."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from evenflow.errors import InputError

TABLE, BATCH, PICKLE = "table", "batch", "pickle"
_PROTOCOL = 5  # fixed, so that the same state gives the same bytes whatever Python's default


@dataclass(frozen=True, slots=True)
class StoredState:
    """Bytes, and how to read them."""

    kind: str
    data: bytes


def store_state(state: Any) -> StoredState:
    """Write a state object."""
    if isinstance(state, pa.Table | pa.RecordBatch):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, state.schema) as writer:
            writer.write(state)
        return StoredState(TABLE if isinstance(state, pa.Table) else BATCH, sink.getvalue().to_pybytes())
    return StoredState(PICKLE, pickle.dumps(state, _PROTOCOL))


def load_state(stored: StoredState) -> Any:
    """Read a state object. Pickles come from our own checkpoint; who can write there can run code anyway."""
    if stored.kind == PICKLE:
        return pickle.loads(stored.data)  # noqa: S301
    if stored.kind not in (TABLE, BATCH):
        raise InputError(f"a stored state has kind {stored.kind!r}; expected {TABLE}, {BATCH} or {PICKLE}")
    with pa.ipc.open_stream(stored.data) as reader:
        return reader.read_all() if stored.kind == TABLE else reader.read_next_batch()
