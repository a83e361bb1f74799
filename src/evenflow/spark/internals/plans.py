"""What Spark's plans and Columns say, for which PySpark has no question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from evenflow.model import Heard

_DAY_US = 86_400_000_000
_MARKS = "EventTimeWatermark"  # by withWatermark, in a plan


def has_watermark(stream: DataFrame) -> bool:
    """Tell whether `withWatermark` was called on the way to a stream."""
    return any(name == _MARKS for name, _ in _nodes(stream._jdf.queryExecution().analyzed()))  # noqa: SLF001


def heard_by_spark(spark: SparkSession) -> Heard:
    """Return what Spark itself has heard of event time from the batch that this thread has just read.

    Spark counts where `withWatermark` stands, before later filters or joins, and of each side of a union by itself. The
    figures are accumulators of the plan that runs; Spark shows them only later, and only what they come to.
    """
    query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    running = spark._jsparkSession.streams().get(query).streamingQuery().lastExecution()  # noqa: SLF001
    watermarks: list[int | None] = []
    for name, node in _nodes(running.executedPlan()):
        if name == f"{_MARKS}Exec":
            seen = node.eventTimeStats().value()
            watermarks.append((seen.max() - node.delayMs()) * 1000 if seen.count() else None)
    # As the offset log has it: Spark keeps to the policy with which a checkpoint began.
    policy = running.offsetSeqMetadata().conf().get("spark.sql.streaming.multipleWatermarkPolicy")
    return Heard(tuple(watermarks), max if policy.isDefined() and policy.get().lower() == "max" else min)


def _nodes(plan: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name of each node of a plan, and the node, from the top."""
    yield plan.getClass().getSimpleName(), plan
    children = plan.children()
    for at in range(children.size()):
        yield from _nodes(children.apply(at))


def interval_us(text: str) -> int:
    """Return how long an interval such as "10 minutes" is, in microseconds; Spark has no months in windows."""
    context = cast("Any", SparkContext._active_spark_context)  # noqa: SLF001 - the one there is
    interval = context._jvm.org.apache.spark.sql.catalyst.util.IntervalUtils.fromIntervalString(text)  # noqa: SLF001
    days, clock = int(interval.extractAsPeriod().getDays()), interval.extractAsDuration()
    return days * _DAY_US + int(clock.getSeconds()) * 1_000_000 + int(clock.getNano()) // 1000


# --- what a Column says ------------------------------------------------------------------------------------------


def column_text(column: Column) -> str:
    """Return a column as Spark writes it; PySpark wraps that in `Column<'...'>`."""
    return str(cast("Any", column)._jc.toString())  # noqa: SLF001 - as said above


@dataclass(frozen=True)
class Expression:
    """What Spark's analysis knows of a selected column.

    `identity` is the same for what is the same, however it was written; `sessions` are those of the session windows
    that it is computed from.
    """

    identity: str
    deterministic: bool
    sessions: frozenset[str]


def expressions_of(selected: DataFrame) -> list[Expression]:
    """Return what was selected, as Spark understands it. PySpark has no way to ask."""
    found = cast("Any", selected)._jdf.queryExecution().analyzed().expressions()  # noqa: SLF001 - as said above
    expressions = []
    for at in range(found.size()):
        one = found.apply(at)
        inner = one.child() if one.getClass().getSimpleName() == "Alias" else one
        inputs = one.references().toSeq()
        columns = [inputs.apply(place) for place in range(inputs.size())]
        sessions = (it.canonicalized().toString() for it in columns if it.metadata().contains("spark.sessionWindow"))
        expressions.append(
            Expression(inner.canonicalized().toString(), bool(one.deterministic()), frozenset(map(str, sessions)))
        )
    return expressions


def output_of(frame: DataFrame) -> list[str]:
    """Return the identities of a frame's own columns."""
    output = cast("Any", frame)._jdf.queryExecution().analyzed().output()  # noqa: SLF001 - as above
    return [str(output.apply(at).canonicalized().toString()) for at in range(output.size())]


@dataclass(frozen=True)
class Call:
    """A call of a function in a Column, such as `F.sum("x").alias("total")` or `F.expr("sum(x) FILTER (WHERE y)")`."""

    function: str
    arguments: tuple[Column, ...]
    distinct: bool
    alias: str | None
    condition: Column | None = None
    passes_nulls: bool = False


def call_in(column: Column) -> Call | None:
    """Return the function that a Column calls, None if it is something else. PySpark has no way to ask."""
    made = cast("Any", column)._jc  # noqa: SLF001 - as said above
    node, alias = made.node(), None
    if node.getClass().getSimpleName() == "Alias":
        alias, node = str(node.name().apply(0)), node.child()
    if node.getClass().getSimpleName() == "SqlExpression":
        return _call_in_sql(str(node.expression()), alias)
    if node.getClass().getSimpleName() != "UnresolvedFunction":
        return None
    context = cast("Any", SparkContext._active_spark_context)  # noqa: SLF001 - as above
    arguments = (node.arguments().apply(at) for at in range(node.arguments().size()))
    columns = tuple(cast("Any", type(column))(context._jvm.org.apache.spark.sql.Column(one)) for one in arguments)  # noqa: SLF001
    return Call(str(node.functionName()).lower(), columns, bool(node.isDistinct()), alias)


def _call_in_sql(text: str, alias: str | None) -> Call | None:
    """Return the function that an expression in SQL calls, as Spark's own parser reads it."""
    session = cast("Any", SparkSession.active())._jsparkSession  # noqa: SLF001 - as above
    node = session.sessionState().sqlParser().parseExpression(text)
    if node.getClass().getSimpleName() == "Alias":
        alias, node = alias or str(node.name()), node.child()
    if node.getClass().getSimpleName() != "UnresolvedFunction":
        return None
    arguments = tuple(F.expr(node.arguments().apply(at).sql()) for at in range(node.arguments().size()))
    condition = F.expr(node.filter().get().sql()) if node.filter().isDefined() else None
    passes_nulls = bool(node.ignoreNulls().isDefined() and node.ignoreNulls().get())
    name = str(node.nameParts().mkString(".")).lower()
    return Call(name, arguments, bool(node.isDistinct()), alias, condition, passes_nulls)
