"""What users write: `keyed(df, "key").agg(...).balance(...).writeStream`. Describes a query; starts nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from evenflow.control import BalancerOptions
from evenflow.engine import Handover
from evenflow.engine.away import LANE_GRACE_S
from evenflow.errors import InputError
from evenflow.migration import DEFAULT_STRATEGY, Strategy, strategy_of
from evenflow.model import DEFAULT_SLOTS
from evenflow.model.registry import fitted, fitted_options
from evenflow.operators import GONE, HASH, SLOT, Agg, Aggregate, KeyOperator, Operator, SlotOperator, Stage, functions
from evenflow.operators.folding import Folding
from evenflow.policies import DEFAULT_POLICY, Policy, policy_of
from evenflow.spark.aggregates import bound, named_aggregates
from evenflow.spark.columns import Chosen, StreamColumns, refuse_types, told_by_spark
from evenflow.spark.declared import running
from evenflow.spark.dedup import dedup_of
from evenflow.spark.expiring import expiring
from evenflow.spark.group_state import group_states
from evenflow.spark.habits import missing_of_keyed, missing_of_stateful
from evenflow.spark.internals import arrow_schema, refuse_spark_connect
from evenflow.spark.lane_links import LANE_TIMEOUT_S
from evenflow.spark.options import BRAKES, MAX_LAG, PATIENCE, BalanceOptions
from evenflow.spark.processors import processing
from evenflow.spark.route import ARRIVAL, Exchange
from evenflow.spark.top import top_of
from evenflow.spark.writer import StreamWriter


def keyed(stream: DataFrame, *keys: str | Column | list[str | Column]) -> KeyedStream:
    """Group a streaming DataFrame by columns or expressions, as `df.groupBy` does; nulls are keys like any other."""
    refuse_spark_connect(stream)
    if not isinstance(cast("Any", stream), DataFrame):
        raise InputError(f"keyed: expected a streaming DataFrame (spark.readStream...), got {type(stream).__name__}")
    if not stream.isStreaming:
        raise InputError("keyed: expected a streaming DataFrame (spark.readStream...), got a batch one")
    given = tuple(keys[0]) if len(keys) == 1 and isinstance(keys[0], list | tuple) else keys
    if not given:
        raise InputError("keyed: name at least one key column")
    columns = StreamColumns(stream)
    chosen = columns.keys(given)
    own = {SLOT, HASH, GONE, ARRIVAL}
    reserved = sorted(name for name in {*columns.names, *(key.name for key in chosen)} if name.lower() in own)
    if reserved:
        raise InputError(f"keyed: column names {reserved} are evenflow's own; rename yours")
    return KeyedStream(columns, chosen)


@dataclass(frozen=True)
class KeyedStream:
    """A stream and its key; say next what to keep per key."""

    columns: StreamColumns
    key_columns: tuple[Chosen, ...]

    def agg(self, *aggregates: Agg | Column | dict[str, str], **named: Agg | Column) -> StatefulStream:
        """Keep aggregates per key: `agg(total=ef.sum("price"), n=ef.count())`.

        Spark's own forms are understood as well, as far as evenflow has the function:
        `agg(F.sum("price").alias("total"))`, `agg({"price": "sum"})`. What has no name gets Spark's, `sum(price)`.
        """
        asked = named_aggregates(self.columns, aggregates, named)
        plain, needed = bound(self.columns, asked, self.key_columns)
        return self._with(Aggregate(plain), needed)

    def count(self) -> StatefulStream:
        """Count the rows per key, in a column `count`, as `df.groupBy(...).count()` does."""
        return self.agg(count=functions.count())

    def sum(self, *columns: str) -> StatefulStream:
        """Add up these columns per key, or all columns of numbers, as `df.groupBy(...).sum(...)` does."""
        return self._each(functions.sum, columns)

    def min(self, *columns: str) -> StatefulStream:
        """Keep the smallest values per key, as `df.groupBy(...).min(...)` does."""
        return self._each(functions.min, columns)

    def max(self, *columns: str) -> StatefulStream:
        """Keep the largest values per key, as `df.groupBy(...).max(...)` does."""
        return self._each(functions.max, columns)

    def mean(self, *columns: str) -> StatefulStream:
        """Average these columns per key, as `df.groupBy(...).mean(...)` does."""
        return self._each(functions.mean, columns)

    def avg(self, *columns: str) -> StatefulStream:
        """Average these columns per key: another name for `mean`, as in Spark."""
        return self.mean(*columns)

    def apply(self, operator: SlotOperator | KeyOperator) -> StatefulStream:
        """Keep state of your own: per key, columnar, see `KeyOperator`; or per slot, see `SlotOperator`."""
        wrapped = running(operator)
        return self._with(wrapped, self.columns.wanted("apply", wrapped.columns(), self.key_columns))

    def dedup(self, within: str | None = None, on: str | None = None) -> StatefulStream:
        """Pass the first row of each key and drop the others, as `df.dropDuplicates([keys])` does.

        Keys are kept for ever, unless one of them has a watermark (`withWatermark`): then until the watermark has
        reached its time. `within="1 hour"`: a key is forgotten once the watermark is an hour past its first row, and
        the next row passes again. If that is the delay of the watermark, it is `df.dropDuplicatesWithinWatermark`.
        `on` names the time, where not just one column has a watermark.
        """
        return self._with(*dedup_of(self.columns, self.key_columns, within, on))

    def top(
        self,
        n: int,
        by: str | Sequence[str],
        ascending: bool | Sequence[bool] = False,  # noqa: FBT001, FBT002 - Spark's
    ) -> StatefulStream:
        """Keep the first `n` rows of each key in the order of some columns: `top(3, by="price")`, the three highest.

        It is Spark's `row_number().over(Window.partitionBy(keys).orderBy(...)) <= n`, running: rows come with all
        columns and their `rank`, from 1. Rows that are equal in `by` go by the other columns, ascending, in their
        order, so the result does not depend on the order in which rows come. Nulls are the smallest, as in Spark.
        """
        return self._with(*top_of(self.columns, self.key_columns, n, by, ascending))

    def fold(
        self, init: Any, step: Callable[..., Any], *, state: str | pa.Schema | None = None, arrays: bool = False
    ) -> StatefulStream:
        """Fold the rows of each key with a function: `fold(0, lambda total, price: total + price)`.

        The parameters of `step` after the first, the state, name the columns that it takes. State is one value, a tuple
        or a dictionary of values, and `init` that of a new key, or a function that makes it; `state` declares its
        columns where `init` does not show their types. Each epoch puts out the new state of the keys that had rows.
        With `arrays`, `step` is called once per key and epoch, with numpy arrays of all its values.
        """
        return self.apply(Folding(init, step, state, arrays=arrays))

    def applyInPandasWithState(  # noqa: N802 - Spark's names
        self,
        func: Callable[..., Any],
        outputStructType: StructType | str,
        stateStructType: StructType | str,
        outputMode: str,
        timeoutConf: str,
    ) -> StatefulStream:
        """Call `func(key, frames, state)` for each key with rows or a timeout that is over, as Spark's own does."""
        seen = self.columns.stream.schema
        operator = group_states(func, outputStructType, stateStructType, outputMode, timeoutConf, seen)
        return self._with(operator, self.columns.wanted("applyInPandasWithState", None, self.key_columns))

    def transformWithState(  # noqa: N802, PLR0913, PLR0917 - Spark's names
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: GroupedData | None = None,
        eventTimeColumnName: str = "",
    ) -> StatefulStream:
        """Call a processor for each key with rows and for timers that are due, as Spark's own call of this name."""
        given = statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName
        return self._processed("transformWithState", given, in_frames=False)

    def transformWithStateInPandas(  # noqa: N802, PLR0913, PLR0917 - Spark's names
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: GroupedData | None = None,
        eventTimeColumnName: str = "",
    ) -> StatefulStream:
        """Do what `transformWithState` does with a processor that takes and returns pandas frames."""
        given = statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName
        return self._processed("transformWithStateInPandas", given, in_frames=True)

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to use instead of a name that is not there."""
        raise missing_of_keyed(name, dir(type(self)))

    def _each(self, function: Callable[[str], Agg], columns: tuple[str, ...]) -> StatefulStream:
        return self.agg(*(function(column) for column in columns or self.columns.numeric()))

    def _processed(self, who: str, given: tuple[Any, ...], *, in_frames: bool) -> StatefulStream:
        operator = processing(who, *given, schema=self.columns.stream.schema, in_frames=in_frames)
        return self._with(operator, self.columns.wanted(who, None, self.key_columns))

    def _with(self, operator: Operator, values: Sequence[Chosen]) -> StatefulStream:
        keys = tuple(key.name for key in self.key_columns)
        selected = tuple(one.named for one in (*self.key_columns, *values))
        with told_by_spark("keyed", selected):
            narrow = self.columns.stream.select(*selected).schema
        refuse_types(narrow, keys, operator)
        schema = arrow_schema(narrow)
        operator.output_schema(schema, keys)  # says now what cannot be summed or compared
        return StatefulStream(self.columns.stream, keys, selected, schema, operator)


@dataclass(frozen=True)
class StatefulStream:
    """A stream with its operator; balance it and write it."""

    stream: DataFrame
    keys: tuple[str, ...]
    selected: tuple[Column, ...] = field(compare=False)  # keys and value columns, each under its name
    schema: pa.Schema
    operator: Operator
    options: BalanceOptions = field(default_factory=BalanceOptions)
    later: tuple[Stage, ...] = ()  # stages after the first: each is fed by the one before it

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, the first one's rows come from the stream."""
        return (Stage(self.operator, self.schema, self.keys), *self.later)

    def expire(self, after: str, on: str | None = None) -> StatefulStream:
        """Let keys of running aggregates go that have had no rows for so long: `expire(after="7 days")`.

        By processing time, or by the watermark, where `on` names the column with the event time. Nothing is put out
        when a key goes; its next row starts afresh.
        """
        operator, more = expiring(self.stream, self.schema.names, self.operator, after, on)
        selected = (*self.selected, *more)
        schema = arrow_schema(self.stream.select(*selected).schema)
        return replace(self, selected=selected, schema=schema, operator=operator)

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
        lane_timeout_s: float = LANE_TIMEOUT_S,
        lane_grace_s: float = LANE_GRACE_S,
        operator_timeout_s: float | None = None,
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

        `lanes`: workers that hold state; by default on half of the task slots, the others read, route and write.
        `slots`: parts that the key space is cut into, each the least that can move; fixed for a checkpoint's life.
        `policy`: which slots move: a name (`evenflow policies` lists them) or an object with `propose(view)`.
        `strategy`: in which steps: a name (`evenflow strategies` lists them) or an object with `steps(moves, weights)`.
        `max_added_latency`: seconds that a step of strategy `paced` may take, by what moves have cost so far.
        `exchange`: how rows get to lanes: "direct" (default in local mode) or "shuffle", Spark's own (on clusters).
        `max_lag`: epochs that may be under way besides the newest, so that a slow lane does not hold up the others.
        `handover`: a moving slot's old lane lets go "at once", or folds all input of before "at the timestamp" first.
        `lane_timeout_s`: seconds without a heartbeat after which a lane counts as lost and is started again elsewhere.
        `lane_grace_s`: seconds after which the others adopt a lost lane's slots; it gets a share when it is back.
        `operator_timeout_s`: seconds that one call of your own code may take before the query ends with an error.
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
        plain = {
            "lanes": lanes,
            "slots": slots,
            "max_lag": max_lag,
            "lane_timeout_s": lane_timeout_s,
            "lane_grace_s": lane_grace_s,
            "operator_timeout_s": operator_timeout_s,
        }
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
            balancer=BalancerOptions(**fitted_options("balance", BalancerOptions, brakes)),
        )
        return replace(self, options=options)

    @property
    def writeStream(self) -> StreamWriter:  # noqa: N802 - Spark's name
        """Write the results as they change: the names are those of Spark's DataStreamWriter."""
        return StreamWriter(self)

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to use instead of a name that is not there."""
        raise missing_of_stateful(name, dir(type(self)))
