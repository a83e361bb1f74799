"""A state object as bytes: Arrow tables as Arrow IPC, everything else pickled.

What plain pickle takes is left to it. What it does not, classes of the user's script, functions made on the way,
closures, is pickled as Spark pickles user code (cloudpickle), with one difference: what the operator reaches is stored
by name (`reach`), not as a copy of itself that would live on when the program is changed.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

import cloudpickle
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.operators.reach import Named, Reach

TABLE, BATCH, PICKLE = "table", "batch", "pickle"
_PROTOCOL = 5  # fixed, so that the same state gives the same bytes whatever Python's default


@dataclass(frozen=True, slots=True)
class StoredState:
    """Bytes, how to read them, and the version of the operator that wrote them."""

    kind: str
    data: bytes
    version: int = 1


class StateCodec:
    """Stores and loads the states of one operator."""

    def __init__(self, operator: object) -> None:
        """Find classes through the operator, once there is one to be found."""
        self._operator = operator
        self._needs_names = False  # a state that plain pickle has refused once is not tried again

    @cached_property
    def reach(self) -> Reach:
        """What the operator can name."""
        return Reach(self._operator)

    def store(self, state: Any, version: int = 1) -> StoredState:
        """Write a state object."""
        return StoredState(*self._written(state), version)

    def _written(self, state: Any) -> tuple[str, bytes]:
        if isinstance(state, pa.Table | pa.RecordBatch):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, state.schema) as writer:
                writer.write(state)
            return TABLE if isinstance(state, pa.Table) else BATCH, sink.getvalue().to_pybytes()
        if not self._needs_names:
            try:
                return PICKLE, pickle.dumps(state, _PROTOCOL)
            except Exception:  # noqa: BLE001 - pickle raises whatever a class's own methods do
                data = self._with_names(state)
                self._needs_names = True
                return PICKLE, data
        return PICKLE, self._with_names(state)

    def load(self, stored: StoredState) -> Any:
        """Read a state object. Pickles come from our own checkpoint; who can write there can run code anyway."""
        if stored.kind == PICKLE:
            if _MARK not in stored.data:
                return pickle.loads(stored.data)  # noqa: S301 - several times as fast
            return _Unpickler(stored.data, self).load()
        if stored.kind not in (TABLE, BATCH):
            raise InputError(f"a stored state has kind {stored.kind!r}; expected {TABLE}, {BATCH} or {PICKLE}")
        with pa.ipc.open_stream(stored.data) as reader:
            return reader.read_all() if stored.kind == TABLE else reader.read_next_batch()

    def _with_names(self, state: Any) -> bytes:
        sink = io.BytesIO()
        _Pickler(sink, self.reach).dump(state)
        return sink.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # it ships no types
    """Pickles by name what the operator reaches, and by value what nobody can name."""

    def __init__(self, sink: io.BytesIO, reach: Reach) -> None:
        self._reach = reach
        # In one dict, since it is asked for every object: as a chain of two it takes three times as long.
        self.dispatch_table = dict(cloudpickle.Pickler.dispatch_table)
        super().__init__(sink, _PROTOCOL)

    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, type | FunctionType):
            return NotImplemented
        name = self._reach.name_of(thing)
        return (_named, name) if name is not None else super().reducer_override(thing)


def _named(module: str, qualname: str) -> Named:
    """Stand in pickles for the method that finds a thing: see `_Unpickler`."""
    raise InputError(f"{qualname} of {module} was stored by the name that an operator has for it; load it through one")


_MARK = _named.__name__.encode()  # what no pickle lacks in which something is stored by name


class _Unpickler(pickle.Unpickler):
    """Finds what was stored by name."""

    def __init__(self, data: bytes, codec: StateCodec) -> None:
        super().__init__(io.BytesIO(data))
        self._codec = codec

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_named.__module__, _named.__qualname__):
            find: Callable[[str, str], Named] = self._codec.reach.named
            return find
        return super().find_class(module, name)
