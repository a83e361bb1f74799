"""What `agg(...)` is given, in any of the ways that Spark's users write it, as named aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from evenflow.errors import InputError
from evenflow.operators import functions
from evenflow.operators.functions import FUNCTIONS, Agg
from evenflow.spark.columns import Chosen, StreamColumns, told_by_spark
from evenflow.spark.internals import call_in, column_text

_OURS = ", ".join(f"ef.{name}" for name in (*FUNCTIONS, "avg"))
_THERE_ARE = f"there are {_OURS}; more is an operator of your own: apply(...)"
_ALL_ROWS = ("*", "1")


def named_aggregates(columns: StreamColumns, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Agg]:
    """Return each aggregate under its name: the one it was given, or else Spark's, such as `sum(price)`."""
    asked = [agg for one in positional for agg in _aggregates_in(one)]
    if not asked and not named:
        raise InputError("agg: name at least one aggregate, such as n=ef.count()")
    names = _spark_names(columns, asked)
    pairs = [(agg.name or name, agg) for agg, name in zip(asked, names, strict=True)]
    pairs += [(name, _aggregate(f"agg: {name}", one)) for name, one in named.items()]
    found: dict[str, Agg] = {}
    for name, agg in pairs:
        if name in found:
            raise InputError(f"agg: two aggregates are named {name!r}: give one another name with .alias('...')")
        found[name] = agg
    return found


def bound(
    columns: StreamColumns, aggregates: Mapping[str, Agg], keys: Sequence[Chosen]
) -> tuple[dict[str, Agg], list[Chosen]]:
    """Return the aggregates over columns by name, and those columns."""
    over = {name: agg for name, agg in aggregates.items() if agg.column is not None}
    chosen = columns.values("agg", [_input(agg) for agg in over.values()], keys)
    names = {name: one.name for name, one in zip(over, chosen, strict=True)}
    plain = {name: Agg(agg.function, names.get(name)) for name, agg in aggregates.items()}
    of_keys = {key.identity for key in keys}
    return plain, list({one.name: one for one in chosen if one.identity not in of_keys}.values())


def _input(agg: Agg) -> Any:
    return agg.column if agg.expression is None else agg.expression


def _aggregates_in(given: Any) -> list[Agg]:
    if not isinstance(given, Mapping):
        return [_aggregate("agg", given)]
    if not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise InputError(f"agg: a dict says which function for which column, as {{'price': 'sum'}}, got {given!r}")
    return [_made(function, column, f"{function}({column})") for column, function in given.items()]


def _aggregate(who: str, given: Any) -> Agg:
    if isinstance(given, Agg):
        return given
    if not isinstance(given, Column):
        hint = ": call it" if callable(given) else ""
        raise InputError(f"{who} must be an aggregate such as ef.sum('column'), got {given!r}{hint}")
    call, text = call_in(given), column_text(given)
    if call is None:
        raise InputError(f"agg: {text} is no call of an aggregate over a column; {_THERE_ARE}")
    if call.distinct:
        raise InputError(f"agg: evenflow cannot compute {text} of distinct values; {_THERE_ARE}")
    passes_nulls = any(column_text(option) != "false" for option in call.arguments[1:])
    if call.function in ("first", "last") and passes_nulls:
        raise InputError(f"agg: evenflow cannot compute {text}: first and last take the value of a row, be it null")
    column = call.arguments[0] if call.arguments else None
    if len(call.arguments) > 1 and call.function == "count":
        raise InputError(f"agg: evenflow cannot compute {text}: count takes one column, or none for all rows")
    rows = call.function == "count" and column is not None and column_text(column) in _ALL_ROWS
    made = _made(call.function, "*" if rows else column, text)
    return made if call.alias is None else made.alias(call.alias)


def _made(function: str, column: Any, text: str) -> Agg:
    """Return the aggregate that one of Spark's functions means."""
    ours = {name: getattr(functions, name) for name in (*FUNCTIONS, "avg")}
    if function.lower() not in ours:
        raise InputError(f"agg: evenflow cannot compute {text}; {_THERE_ARE}")
    made: Agg = ours[function.lower()](column)
    return made


def _spark_names(columns: StreamColumns, aggregates: Sequence[Agg]) -> list[str]:
    """Return the names that Spark gives such aggregates."""
    if not aggregates:
        return []
    inputs = [F.lit(1) if agg.column is None else columns.column("agg", _input(agg)) for agg in aggregates]
    calls = [getattr(F, agg.function)(column) for agg, column in zip(aggregates, inputs, strict=True)]
    with told_by_spark("agg", inputs):
        return list(columns.stream.groupBy().agg(*calls).schema.names)
