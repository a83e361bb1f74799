"""What users write: `keyed(df, "key").agg(...).balance(...).writeStream`. Describes a query; starts nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from evenflow.control import ControllerOptions
from evenflow.errors import InputError
from evenflow.migration import DEFAULT_STRATEGY, Strategy, strategy_of
from evenflow.model import DEFAULT_SLOTS
from evenflow.model.registry import fitted, fitted_options
from evenflow.operators import HASH, SLOT, Agg, Aggregate, Apply, Operator, SlotOperator
from evenflow.policies import DEFAULT_POLICY, Policy, policy_of
from evenflow.spark.conductor import Handover
from evenflow.spark.internals import arrow_schema, refuse_spark_connect, schema_of_ddl, spark_schema
from evenflow.spark.options import BRAKES, MAX_LAG, PATIENCE, BalanceOptions
from evenflow.spark.route import Exchange
from evenflow.spark.writer import StreamWriter


def keyed(stream: DataFrame, *keys: str) -> KeyedStream:
    """Group a streaming DataFrame by one or more columns; nulls are keys like any other."""
    refuse_spark_connect(stream)
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
        elif isinstance(operator.output, pa.Schema):
            operator.output = arrow_schema(spark_schema(operator.output))  # a type of Spark's has one form in Arrow
        return self._with(Apply(operator))

    def _with(self, operator: Operator) -> StatefulStream:
        schema, needed = self.stream.schema, operator.columns()
        missing = [column for column in needed or () if column not in schema.names]
        if missing:
            raise InputError(f"there is no column {missing[0]!r}; the stream has {', '.join(schema.names)}")
        columns = tuple(column for column in (schema.names if needed is None else needed) if column not in self.keys)
        narrow = arrow_schema(StructType([schema[name] for name in (*self.keys, *columns)]))
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
        max_added_latency: float | None = None,
        exchange: Exchange | None = None,
        max_lag: int = MAX_LAG,
        handover: Handover = "at once",
        window_epochs: int = BRAKES.window_epochs,
        settle_windows: int = BRAKES.settle_windows,
        warm_up_windows: int = BRAKES.warm_up_windows,
        history: int = BRAKES.history,
        cooldown_windows: int = BRAKES.cooldown_windows,
        max_bytes_in_flight: int | None = BRAKES.max_bytes_in_flight,
        min_gain: float = BRAKES.min_gain,
        min_lanes: int | None = BRAKES.min_lanes,
        max_lanes: int | None = BRAKES.max_lanes,
        patience: int | None = None,
        copy_ahead_bytes: int | None = BRAKES.copy_ahead_bytes,
    ) -> StatefulStream:
        """Say how to spread the stream over lanes and how to keep it even.

        `lanes`: workers that hold state; by default as many as there are task slots, less one for routing.
        `slots`: parts that the key space is cut into, each the least that can move; fixed for a checkpoint's life.
        `policy`: which slots move: a name (`evenflow policies` lists them) or an object with `propose(view)`.
        `strategy`: in which steps: a name (`evenflow strategies` lists them) or an object with `steps(moves, weights)`.
        `max_added_latency`: seconds that a step of strategy `paced` may take, by what moves have cost so far.
        `exchange`: how rows get to lanes: "direct" (default in local mode) or "shuffle", Spark's own (on clusters).
        `max_lag`: epochs that may be under way besides the newest, so that a slow lane does not hold up the others.
        `handover`: a moving slot's old lane lets go "at once", or folds all input of before "at the timestamp" first.
        `window_epochs`: epochs per load window, at least.
        `settle_windows`: windows not used after the start and after the loss of a lane.
        `warm_up_windows`: windows to see before the policy is asked for the first time.
        `history`: windows kept for policies that look back.
        `cooldown_windows`: windows to watch after a move before the policy is asked again.
        `max_bytes_in_flight`: state that may be on its way at a time; one slot may always go.
        `min_gain`: share of the busiest lane's time that a plan must take off it; 0 trusts the policy.
        `min_lanes`, `max_lanes`: bounds for policies that ask for more or fewer lanes; None keeps the number.
        `patience`: epochs that a report may lag behind before its window is given up; by default `max_lag` + 8.
        `copy_ahead_bytes`: slots with at least so much state are loaded by their new lane before they move.
        """
        plain = {"lanes": lanes, "slots": slots, "max_lag": max_lag}
        numbers = fitted_options("balance", BalanceOptions, plain)
        brakes = {
            "window_epochs": window_epochs,
            "settle_windows": settle_windows,
            "warm_up_windows": warm_up_windows,
            "history": history,
            "cooldown_windows": cooldown_windows,
            "max_bytes_in_flight": max_bytes_in_flight,
            "min_gain": min_gain,
            "min_lanes": min_lanes,
            "max_lanes": max_lanes,
            "patience": numbers["max_lag"] + PATIENCE if patience is None else patience,
            "copy_ahead_bytes": copy_ahead_bytes,
        }
        pace = fitted("balance", "max_added_latency", max_added_latency, float | None)
        options = BalanceOptions(
            **numbers,
            policy=policy_of("balance", policy),
            strategy=strategy_of("balance", strategy, pace),
            exchange=exchange,
            handover=handover,
            controller=ControllerOptions(**fitted_options("balance", ControllerOptions, brakes)),
        )
        return replace(self, options=options)

    @property
    def writeStream(self) -> StreamWriter:  # noqa: N802 - Spark's name
        """Write the results as they change: the names are those of Spark's DataStreamWriter."""
        return StreamWriter(self)
