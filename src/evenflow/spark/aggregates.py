"""What `agg(...)` is given, in any of the ways that Spark's users write it, as named aggregates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from evenflow.errors import InputError
from evenflow.operators import functions
from evenflow.operators.functions import FUNCTIONS, Agg
from evenflow.spark.columns import Chosen, StreamColumns, told_by_spark
from evenflow.spark.internals import Call, call_in, column_text

_OURS = ", ".join(f"ef.{name}" for name in (*FUNCTIONS, "avg"))
_THERE_ARE = f"there are {_OURS}; more is an operator of your own: apply(...)"
_ALL_ROWS = ("*", "1")
_ALSO = {"avg": "mean", "array_agg": "collect_list"}  # of which Spark itself makes the other's name
_BY_ANOTHER_NAME = {"std": "stddev", "approx_percentile": "percentile_approx"}  # Spark names results as they are called
_WITH_OPTIONS = {"approx_count_distinct": 1, "percentile_approx": 1}  # how many columns come before the options
_NUMBER = r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?"
_OPTION = re.compile(rf"({_NUMBER})(?:BD|[DFL])?|array\(((?:{_NUMBER}(?:BD|[DFL])?(?:, )?)+)\)")


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
    inputs = [one for agg in aggregates.values() for one in _inputs(agg)]
    chosen = columns.values("agg", inputs, keys)
    names, plain = iter([one.name for one in chosen]), {}
    for name, agg in aggregates.items():
        mine = [next(names) for _ in agg.columns]
        condition = None if agg.condition is None else next(names)
        first, more = (mine[0], tuple(mine[1:])) if mine else (None, ())
        plain[name] = Agg(agg.function, first, more=more, options=agg.options, condition=condition)
    of_keys = {key.identity for key in keys}
    return plain, list({one.name: one for one in chosen if one.identity not in of_keys}.values())


def _inputs(agg: Agg) -> list[Any]:
    """Return what the user gave for the columns of an aggregate and for its condition."""
    given = list(agg.given or agg.inputs)
    if agg.condition is not None and isinstance(given[-1], str):
        given[-1] = F.expr(given[-1])
    return given


def _aggregates_in(given: Any) -> list[Agg]:
    if not isinstance(given, Mapping):
        return [_aggregate("agg", given)]
    if not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise InputError(f"agg: a dict says which function for which column, as {{'price': 'sum'}}, got {given!r}")
    return [_from_dict(column, function) for column, function in given.items()]


def _from_dict(column: str, function: str) -> Agg:
    if function.lower() == "count":
        return functions.count(column)
    return _made(function, [column], f"{function}({column})")


def _aggregate(who: str, given: Any) -> Agg:
    if isinstance(given, Agg):
        return given
    if not isinstance(given, Column):
        hint = ": call it" if callable(given) else ""
        raise InputError(f"{who} must be an aggregate such as ef.sum('column'), got {given!r}{hint}")
    call, text = call_in(given), column_text(given)
    if call is None:
        raise InputError(f"agg: {text} is no call of an aggregate over a column; {_THERE_ARE}")
    made = _called(call, text)
    if call.condition is not None:
        made = made.where(call.condition)
    return made if call.alias is None else made.alias(call.alias)


def _called(call: Call, text: str) -> Agg:
    """Return the aggregate that a call of one of Spark's functions means."""
    if call.distinct and call.function != "count":
        raise InputError(f"agg: evenflow cannot compute {text} of distinct values; {_THERE_ARE}")
    if call.distinct:
        return functions.count_distinct(*call.arguments)
    if call.function in ("first", "last"):
        if call.passes_nulls or any(column_text(option) != "false" for option in call.arguments[1:]):
            raise InputError(f"agg: evenflow cannot compute {text}: first and last take the value of a row, be it null")
        return _made(call.function, call.arguments[:1], text)
    if len(call.arguments) > 1 and call.function == "count":
        raise InputError(f"agg: evenflow cannot compute {text}: count takes one column, or none for all rows")
    if call.function == "count" and (not call.arguments or column_text(call.arguments[0]) in _ALL_ROWS):
        return functions.count()
    return _made(call.function, call.arguments, text)


def _made(function: str, arguments: Sequence[Any], text: str) -> Agg:
    """Return the aggregate that one of Spark's functions means."""
    called = function.lower()
    name = _ALSO.get(called) or _BY_ANOTHER_NAME.get(called, called)
    if name not in FUNCTIONS:
        raise InputError(f"agg: evenflow cannot compute {text}; {_THERE_ARE}")
    columns = _WITH_OPTIONS.get(name, len(arguments))
    options = [_option(one, text) for one in arguments[columns:]]
    try:
        made: Agg = getattr(functions, name)(*arguments[:columns], *options)
    except TypeError as error:
        raise InputError(f"agg: evenflow cannot compute {text}: {error}") from error
    return made.alias(text) if called in _BY_ANOTHER_NAME else made


def _option(column: Column, text: str) -> float | int | list[float]:
    """Return a number, or several, that stand in a call."""
    found = _OPTION.fullmatch(column_text(column))
    if found is None:
        raise InputError(f"agg: evenflow cannot compute {text}: {column_text(column)} must be a number, or an array")
    if found[1] is not None:
        return int(found[1]) if found[1].isdigit() else float(found[1])
    return [float(one) for one in re.findall(_NUMBER, found[2])]


def _spark_names(columns: StreamColumns, aggregates: Sequence[Agg]) -> list[str]:
    """Return the names that Spark gives such aggregates."""
    calls, conditions = [], []
    for agg in aggregates:
        given = _inputs(agg)
        inputs = [columns.column("agg", one) for one in given]
        conditions.append(inputs.pop() if agg.condition is not None else None)
        options = [list(one) if isinstance(one, tuple) else one for one in agg.options]
        calls.append(getattr(F, agg.function)(*(inputs or [F.lit(1)]), *options))
    if not calls:
        return []
    with told_by_spark("agg", calls):
        names = columns.stream.groupBy().agg(*calls).schema.names
        filters = [None if one is None else columns.stream.select(one).schema.names[0] for one in conditions]
    return [name if one is None else f"{name} FILTER (WHERE {one})" for name, one in zip(names, filters, strict=True)]
