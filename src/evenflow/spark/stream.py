"""What users write: `keyed(df, "key").agg(...).balance(...).writeStream`. Describes a query; starts nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pyarrow as pa
from pyspark.sql import DataFrame

from evenflow.control import ControllerOptions
from evenflow.errors import InputError
from evenflow.migration import DEFAULT_STRATEGY, Strategy, strategy_named
from evenflow.model import DEFAULT_SLOTS
from evenflow.operators import HASH, SLOT, Agg, Aggregate, Apply, Operator, SlotOperator
from evenflow.policies import DEFAULT_POLICY, Policy, policy_named
from evenflow.spark.conductor import Handover
from evenflow.spark.internals import arrow_schema, schema_of_ddl
from evenflow.spark.route import Exchange
from evenflow.spark.writer import StreamWriter

_MOST_SLOTS = 1 << 15  # a slot travels as 16 bits
_PATIENCE = 8  # epochs that a report may lag behind, over and above what lanes may
_BRAKES: dict[str, Any] = {
    "settle_windows": 1,
    "warm_up_windows": 2,
}  # a cold first epoch is no measure, one window shows no noise


@dataclass(frozen=True)
class BalanceOptions:
    """How a query is spread over lanes and kept even; every field has a default."""

    lanes: int | None = None
    slots: int = DEFAULT_SLOTS
    policy: Policy = field(default_factory=lambda: policy_named(DEFAULT_POLICY))
    strategy: Strategy = field(default_factory=lambda: strategy_named(DEFAULT_STRATEGY))
    exchange: Exchange | None = None
    max_lag: int = 4
    handover: Handover = "at once"
    controller: ControllerOptions = field(default_factory=lambda: ControllerOptions(**_BRAKES))

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        if self.lanes is not None and self.lanes < 1:
            raise InputError(f"balance: lanes must be at least 1, got {self.lanes}")
        if not 1 <= self.slots <= _MOST_SLOTS:
            raise InputError(f"balance: slots must be from 1 to {_MOST_SLOTS}, got {self.slots}")
        if self.lanes is not None and self.lanes > self.slots:
            raise InputError(
                f"balance: {self.lanes} lanes cannot share {self.slots} slots; give more slots or fewer lanes"
            )
        if self.max_lag < 0:
            raise InputError(f"balance: max_lag is a number of epochs, 0 or more, got {self.max_lag}")
        if self.handover not in get_args(Handover):
            raise InputError(
                f"balance: handover is {' or '.join(map(repr, get_args(Handover)))}, got {self.handover!r}"
            )
        if self.exchange not in (None, "direct", "shuffle"):
            raise InputError(f"balance: exchange is 'direct' or 'shuffle', got {self.exchange!r}")


def keyed(stream: DataFrame, *keys: str) -> KeyedStream:
    """Group a streaming DataFrame by one or more columns; nulls are keys like any other."""
    if not stream.isStreaming:
        raise InputError("keyed: expected a streaming DataFrame (spark.readStream...), got a batch one")
    if not keys:
        raise InputError("keyed: name at least one key column")
    for key in keys:
        if key not in stream.columns:
            raise InputError(f"keyed: there is no column {key!r}; the stream has {', '.join(stream.columns)}")
    if len(set(keys)) != len(keys):
        raise InputError(f"keyed: each key once, got {', '.join(keys)}")
    reserved = {SLOT, HASH} & set(stream.columns)
    if reserved:
        raise InputError(f"keyed: column names {sorted(reserved)} are evenflow's own; rename yours")
    return KeyedStream(stream, keys)


@dataclass(frozen=True)
class KeyedStream:
    """A stream and its key; say next what to keep per key."""

    stream: DataFrame
    keys: tuple[str, ...]

    def agg(self, **aggregates: Agg) -> StatefulStream:
        """Keep aggregates per key: `agg(total=ef.sum("price"), n=ef.count())`."""
        if not aggregates:
            raise InputError("agg: name at least one aggregate, such as n=ef.count()")
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Agg):
                raise InputError(f"agg: {name} must be an aggregate such as ef.sum('column'), got {aggregate!r}")
        return self._with(Aggregate(aggregates))

    def apply(self, operator: SlotOperator) -> StatefulStream:
        """Keep state of your own: see `SlotOperator`."""
        if not isinstance(operator, SlotOperator):
            raise InputError(f"apply: expected a SlotOperator, got {type(operator).__name__}")
        if isinstance(operator.output, str):
            operator.output = arrow_schema(schema_of_ddl(operator.output))
        return self._with(Apply(operator))

    def _with(self, operator: Operator) -> StatefulStream:
        schema = arrow_schema(self.stream.schema, self.stream.sparkSession.conf.get("spark.sql.session.timeZone"))
        needed = operator.columns()
        missing = [column for column in needed or () if column not in schema.names]
        if missing:
            raise InputError(f"there is no column {missing[0]!r}; the stream has {', '.join(schema.names)}")
        columns = tuple(column for column in (schema.names if needed is None else needed) if column not in self.keys)
        narrow = pa.schema([schema.field(name) for name in (*self.keys, *columns)])
        operator.output_schema(narrow, self.keys)  # says now what cannot be summed or compared
        return StatefulStream(self.stream, self.keys, columns, narrow, operator)


@dataclass(frozen=True)
class StatefulStream:
    """A stream with its operator; balance it and write it."""

    stream: DataFrame
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    schema: pa.Schema
    operator: Operator
    options: BalanceOptions = field(default_factory=BalanceOptions)

    def balance(  # noqa: PLR0913 - all by name, all with defaults
        self,
        lanes: int | None = None,
        slots: int = DEFAULT_SLOTS,
        policy: str | Policy = DEFAULT_POLICY,
        strategy: str | Strategy = DEFAULT_STRATEGY,
        *,
        exchange: Exchange | None = None,
        max_lag: int = 4,
        handover: Handover = "at once",
        **controller: Any,
    ) -> StatefulStream:
        """Say how to spread and balance. `lanes`: as many as there are task slots, less one for routing.

        `max_lag`: how many epochs may be under way besides the newest (`max_lag + 1` in all), so that a slow lane does
        not hold up the others at every one; with 0 each waits for the one before. `handover`: whether a slot's old
        lane first folds all input of before the move (`"at the timestamp"`), or lets go at once and leaves its backlog
        to the new lane.
        Further names are the controller's brakes: see `ControllerOptions`.
        """
        try:
            brakes = ControllerOptions(**{**_BRAKES, "patience": max_lag + _PATIENCE, **controller})
        except TypeError as error:
            raise InputError(f"balance: {error}; see ControllerOptions for the names there are") from error
        options = BalanceOptions(
            lanes,
            slots,
            policy_named(policy) if isinstance(policy, str) else policy,
            strategy_named(strategy) if isinstance(strategy, str) else strategy,
            exchange,
            max_lag,
            handover,
            brakes,
        )
        return replace(self, options=options)

    @property
    def writeStream(self) -> StreamWriter:  # noqa: N802 - Spark's name
        """Write the results as they change: the names are those of Spark's DataStreamWriter."""
        return StreamWriter(self)
