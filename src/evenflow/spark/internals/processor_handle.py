"""Spark's `StatefulProcessorHandle` and its state variables over evenflow's own state.

The classes are public; that they can be made without Spark's state server is not promised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import ListState, MapState, StatefulProcessorHandle, ValueState
from pyspark.sql.types import StructType

from evenflow.errors import InputError
from evenflow.operators.key_variables import TIMERS, KeyVariables
from evenflow.operators.processor import TimeMode
from evenflow.spark.internals.rows import schema_of_ddl
from evenflow.spark.internals.state_types import Codec


class _Variable:
    """What the three kinds have in common."""

    def __init__(self, state: KeyVariables, name: str, codec: Codec, ttl_ms: int | None) -> None:
        self._state, self._name, self._codec, self._ttl = state, name, codec, ttl_ms

    def exists(self) -> bool:
        return any(True for _ in self._state.alive(self._name))

    def clear(self) -> None:
        self._state.clear(self._name)

    def _put(self, entry: Any, value: Any, codec: Codec) -> None:
        if value is None:
            raise PySparkRuntimeError(f"Error updating state {self._name}: a value cannot be None")
        ends = None if self._ttl is None else self._state.now_ms + self._ttl
        self._state.put(self._name, entry, codec.write(value), ends)


class OneValue(_Variable, ValueState):
    """A value per key."""

    def get(self) -> tuple[Any, ...] | None:
        cell = self._state.cells(self._name).get(None)
        if cell is None or (cell[1] is not None and cell[1] <= self._state.now_ms):
            return None
        return self._codec.read(cell[0])

    def update(self, newValue: tuple[Any, ...]) -> None:
        self._put(None, newValue, self._codec)


class ManyValues(_Variable, ListState):
    """A list of values per key."""

    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter([self._codec.read(value) for _, value in self._state.alive(self._name)])

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        values = self._some(newState)
        self.clear()
        for at, value in enumerate(values):
            self._put(at, value, self._codec)

    def appendValue(self, newState: tuple[Any, ...]) -> None:  # noqa: N802 - Spark's names
        cells = self._state.cells(self._name)
        self._put(_last(cells) + 1 if cells else 0, newState, self._codec)

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:  # noqa: N802 - Spark's names
        for value in self._some(newState):
            self.appendValue(value)

    def _some(self, values: Any) -> list[Any]:
        found = list(values)
        if not found:
            raise PySparkRuntimeError(f"Error updating list state {self._name}: the list cannot be empty")
        return found


class ValuesByKey(_Variable, MapState):
    """A map of values per key."""

    def __init__(self, state: KeyVariables, name: str, codecs: tuple[Codec, Codec], ttl_ms: int | None) -> None:
        """Stand for a variable."""
        super().__init__(state, name, codecs[1], ttl_ms)
        self._keys = codecs[0]

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:  # noqa: N802 - Spark's names
        value = self._found(key)
        return None if value is None else self._codec.read(value)

    def containsKey(self, key: tuple[Any, ...]) -> bool:  # noqa: N802 - Spark's names
        return self._found(key) is not None

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:  # noqa: N802 - Spark's names
        self._put(self._keys.write(key), value, self._codec)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return iter([(self._keys.read(entry), self._codec.read(value)) for entry, value in self._ordered()])

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return iter([self._keys.read(entry) for entry, _ in self._ordered()])

    def values(self) -> Iterator[tuple[Any, ...]]:
        return iter([self._codec.read(value) for _, value in self._ordered()])

    def removeKey(self, key: tuple[Any, ...]) -> None:  # noqa: N802 - Spark's names
        self._state.remove(self._name, self._keys.write(key))

    def _found(self, key: tuple[Any, ...]) -> Any:
        cell = self._state.cells(self._name).get(self._keys.write(key))
        if cell is None or (cell[1] is not None and cell[1] <= self._state.now_ms):
            return None
        return cell[0]

    def _ordered(self) -> list[tuple[Any, Any]]:
        """Return entries in an order that is the same wherever the key has been."""
        return sorted(self._state.alive(self._name), key=repr)


def _last(cells: Mapping[Any, Any]) -> int:
    """Return the last place of a list; places rise."""
    last: int = next(reversed(cells))
    return last


class Handle(StatefulProcessorHandle):
    """What a processor gets. Variables are declared in `init` only; what it declares is in `declared`.

    `schemas` has the columns of each text that was given for them: Spark reads such texts, and lanes have no Spark.
    """

    def __init__(self, state: KeyVariables, clock: TimeMode, schemas: Mapping[str, StructType] | None = None) -> None:
        """Start with no variable declared; without `schemas`, texts are read here."""
        self._state, self._clock = state, clock
        self._known = schemas
        self.schemas: dict[str, StructType] = dict(schemas or {})
        self.declared: dict[str, str] = {}
        self.is_open = True

    def getValueState(  # noqa: N802 - Spark's names
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ValueState:
        codec = Codec(self._schema(stateName, schema))
        self._declare(stateName, f"value {codec.schema.simpleString()}", ttlDurationMs)
        return OneValue(self._state, stateName, codec, ttlDurationMs)

    def getListState(  # noqa: N802 - Spark's names
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ListState:
        codec = Codec(self._schema(stateName, schema))
        self._declare(stateName, f"list {codec.schema.simpleString()}", ttlDurationMs)
        return ManyValues(self._state, stateName, codec, ttlDurationMs)

    def getMapState(  # noqa: N802 - Spark's names
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        codecs = Codec(self._schema(stateName, userKeySchema)), Codec(self._schema(stateName, valueSchema))
        text = " to ".join(codec.schema.simpleString() for codec in codecs)
        self._declare(stateName, f"map {text}", ttlDurationMs)
        return ValuesByKey(self._state, stateName, codecs, ttlDurationMs)

    def registerTimer(self, expiryTimestampMs: int) -> None:  # noqa: N802 - Spark's names
        self._with_timers("registering")
        if expiryTimestampMs not in self._state.cells(TIMERS):
            self._state.put(TIMERS, int(expiryTimestampMs), True)  # noqa: FBT003 - that it is there is all there is

    def deleteTimer(self, expiryTimestampMs: int) -> None:  # noqa: N802 - Spark's names
        self._with_timers("deleting")
        self._state.remove(TIMERS, expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:  # noqa: N802 - Spark's names
        self._with_timers("listing")
        return iter(sorted(self._state.cells(TIMERS)))

    def deleteIfExists(self, stateName: str) -> None:  # noqa: N802 - Spark's names
        raise InputError(f"deleteIfExists({stateName!r}) is not there yet: clear the variable key by key, .clear()")

    def _declare(self, name: str, what: str, ttl_ms: int | None) -> None:
        if not self.is_open:
            raise PySparkRuntimeError(f"Error initializing state {name}: declare it in init(), not later")
        if name in self.declared:
            raise PySparkRuntimeError(f"Error initializing state {name}: a variable of this name is declared already")
        if ttl_ms is not None and self._clock != "processing":
            raise PySparkRuntimeError(
                f"Error initializing state {name}: a variable can have a TTL in time mode ProcessingTime only"
            )
        if ttl_ms is not None and ttl_ms <= 0:
            raise PySparkRuntimeError(f"Error initializing state {name}: its TTL must be positive, got {ttl_ms}")
        self.declared[name] = what

    def _schema(self, name: str, given: StructType | str) -> StructType:
        if isinstance(given, StructType):
            return given
        if given not in self.schemas:
            if self._known is not None:
                raise InputError(
                    f"state {name}: the columns {given!r} were not named when the query was made: init() must declare "
                    f"the same variables each time"
                )
            self.schemas[given] = schema_of_ddl(given)
        return self.schemas[given]

    def _with_timers(self, doing: str) -> None:
        if self._clock == "none":
            raise PySparkRuntimeError(
                f"Error {doing} a timer: timers need time mode ProcessingTime or EventTime, this one is None"
            )
        if self.is_open:
            raise PySparkRuntimeError(f"Error {doing} a timer: timers belong to a key, and init() has none")
