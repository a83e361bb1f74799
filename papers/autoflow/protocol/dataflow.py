"""A query as its user writes it (AutoFlow, IV-A): source, map, keyby, reduce and a parallelism; run on the simulator.

The logical graph is what the user wrote; `Query.run` builds the physical one, with as many sources, mappers and lanes
as the parallelism says, every one of them connected to every one of the next kind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenflow.errors import InputError
from evenflow.model import RoutingTable
from evenflow.model.slots import slots_of_hashes
from evenflow.policies.murmur import murmur3
from papers.autoflow.protocol.run import autoflow_run
from papers.messages.decider import Decider
from papers.messages.folds import fold_of
from papers.messages.loop import SECOND
from papers.messages.plant import Plant
from papers.messages.run import Result
from papers.messages.stream import RecordStream


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a query runs: how many instances every operator has, and how fast records come."""

    parallelism: int = 3
    slots_per_lane: int = 16
    rate: int = 1_000
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        if min(self.parallelism, self.slots_per_lane, self.rate) < 1:
            raise InputError(
                f"an environment needs a parallelism, slots and a rate of at least 1, got {self.parallelism}, "
                f"{self.slots_per_lane} and {self.rate}"
            )

    @property
    def table(self) -> RoutingTable:
        """The table that queries start with."""
        return RoutingTable.even(self.parallelism * self.slots_per_lane, self.parallelism)

    def source(self, records: Iterable[Any]) -> LogicalStream:
        """Begin a query with records of any kind."""
        return LogicalStream(self, tuple(records))


@dataclass(frozen=True, slots=True)
class LogicalStream:
    """Records and what is done to each."""

    environment: Environment
    records: tuple[Any, ...]
    functions: tuple[Callable[[Any], Any], ...] = ()

    def map(self, function: Callable[[Any], Any]) -> LogicalStream:
        """Apply a function to every record."""
        return LogicalStream(self.environment, self.records, (*self.functions, function))

    def keyby(self, key: Callable[[Any], Hashable]) -> KeyedStream:
        """Say what the key of a record is."""
        return KeyedStream(self, key)

    def mapped(self) -> list[Any]:
        """Return the records as the mappers send them."""
        done = list(self.records)
        for function in self.functions:
            done = [function(record) for record in done]
        return done


@dataclass(frozen=True, slots=True)
class KeyedStream:
    """A stream with a key."""

    stream: LogicalStream
    key: Callable[[Any], Hashable]

    def reduce(self, step: Callable[[Any, Any], Any], initial: Any) -> Query:
        """Keep a state per key: `state = step(state, record)`, `initial` at first."""
        return Query(self, step, initial)


@dataclass(frozen=True, slots=True)
class Answer:
    """The state of every key, and the run that gave it."""

    state: dict[Hashable, Any]
    result: Result


@dataclass(frozen=True, slots=True)
class Query:
    """A whole query."""

    keyed: KeyedStream
    step: Callable[[Any, Any], Any]
    initial: Any

    def run(self, decider: Decider | None = None) -> Answer:
        """Build the physical graph and run it; `decider` may be a balancer for `environment.table`."""
        environment = self.keyed.stream.environment
        values = self.keyed.stream.mapped()
        keys = [self.keyed.key(value) for value in values]
        names = sorted(set(keys), key=repr)
        number = {name: at for at, name in enumerate(names)}
        fold = fold_of("reduce", lambda state, at: self.step(state, values[at]), self.initial)
        stream = self._physical([number[key] for key in keys], names)
        plant = Plant(environment.table, fold=fold, seed=environment.seed)
        result = autoflow_run(stream, plant, decider).run()
        return Answer({names[key]: state for key, state in result.state.items()}, result)

    def _physical(self, keys: list[int], names: list[Hashable]) -> RecordStream:
        """Lay out the records: a key takes one path, so that the order of its records is kept."""
        environment = self.keyed.stream.environment
        hashes = murmur3(map(repr, names), environment.seed)
        column, width = np.array(keys, np.int64), environment.parallelism
        due = np.arange(column.size) * SECOND // environment.rate
        slots = environment.table.slots
        path = column % width
        return RecordStream(due, path, path, column, np.arange(column.size), slots_of_hashes(hashes, slots), slots)
