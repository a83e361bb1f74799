"""Spark's `applyInPandasWithState`: one call of the user's function per key and epoch, with a state object per key.

The rows of an epoch are sorted by key once and become one pandas frame, of which each call gets a part. A state rests
as bytes until its key has rows. Only the rows of keys whose state or timeout has changed are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model import Contents, EpochTime
from evenflow.operators.frames import Frames
from evenflow.operators.group_calls import GroupCalls
from evenflow.operators.group_held import Entry, held_schema
from evenflow.operators.key_groups import Key
from evenflow.operators.keys import check_keys
from evenflow.operators.readable import VIEW_SCHEMA

if TYPE_CHECKING:
    import pandas as pd

Timeout = Literal["none", "processing", "event"]


class EpochStates(Protocol):
    """Makes state objects for the calls of one epoch, and reads what a call has left in one."""

    def given(self, stored: bytes | None, *, timed_out: bool) -> Any:
        """Return what the user's function gets; None: the key has no state."""
        ...

    def left(self, given: Any) -> Entry | None:
        """Return what to keep after a call; None if it stays as it was, timeout included."""
        ...

    def frames(self, answer: Any) -> Iterator[pd.DataFrame]:
        """Yield the frames of what the function has returned; refuse what are none."""
        ...


class StateObjects(Protocol):
    """The state objects of the engine that the function was written for."""

    @property
    def schema(self) -> str:
        """The columns of a state, as text."""
        ...

    def at(self, time: EpochTime) -> EpochStates:
        """Return those of an epoch."""
        ...

    def shown(self, entry: Entry) -> str:
        """Return what is kept as people read it."""
        ...


@dataclass(frozen=True)
class GroupStates:
    """Runs a function of (key, frames, state) for each key that has rows, and for those whose timeout is over.

    `columns_shown` are those of its frames, in order; `late_by` names the time by which rows are late, if any are;
    `frames` are set when the query starts.
    """

    function: Callable[[Key, Iterable[pd.DataFrame], Any], Any]
    output: pa.Schema
    states: StateObjects
    mode: str
    columns_shown: tuple[str, ...]
    timeout: Timeout = "none"
    late_by: str | None = None
    frames: Frames | None = None

    def __str__(self) -> str:
        """Name the function."""
        return f"applyInPandasWithState({self.name})"

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)

    def seeing(self, frames: Frames) -> GroupStates:
        """Return this operator with another view of its rows."""
        return replace(self, frames=frames)

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        check_keys(schema, keys)
        return False

    def columns(self) -> tuple[str, ...] | None:
        return None

    def output_modes(self) -> tuple[str, ...]:
        return (self.mode,)

    def uses_event_time(self) -> bool:
        return self.timeout == "event"

    def in_mode(self, mode: str) -> GroupStates:
        if mode != self.mode:
            raise InputError(
                f"writeStream: applyInPandasWithState in {self.mode} mode is not supported with outputMode({mode!r}): "
                f"both must be the same"
            )
        return self

    def contents(self, schema: pa.Schema, keys: tuple[str, ...]) -> Contents:
        check_keys(schema, keys)
        inputs = tuple((each.name, str(each.type)) for each in schema if each.name not in keys)
        return Contents(f"applyInPandasWithState with state {self.states.schema}", inputs=inputs)

    def resumed(self, contents: Contents) -> GroupStates:  # noqa: ARG002 - a state of other columns is refused before
        return self

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        check_keys(schema, keys)
        return self.output

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return held_schema(schema, keys)

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:  # noqa: ARG002 - the same for all
        return VIEW_SCHEMA

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> GroupCalls:
        if self.frames is None:
            raise InputError(f"{self} runs in a query only: its frames are made as the Spark session makes them")
        return GroupCalls(self, self.frames, self.state_schema(schema, keys), keys, slots)
