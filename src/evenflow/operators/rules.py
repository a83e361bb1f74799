"""Which aggregate goes with which type, and what comes out: Spark's rules."""

from __future__ import annotations

import pyarrow as pa

from evenflow.errors import InputError
from evenflow.operators.accumulators import Count, CountIf, Extreme, FloatSum, IntegerSum
from evenflow.operators.arrays import fixed_dtype, is_variable
from evenflow.operators.chosen import ExtremeBy, ExtremeByRank, First, Last
from evenflow.operators.collected import CollectList, CollectSet, CountDistinct
from evenflow.operators.column import Column
from evenflow.operators.decimals import DecimalSum, mean_type
from evenflow.operators.functions import SPREADS, Agg
from evenflow.operators.mean import Mean
from evenflow.operators.moments import Spread
from evenflow.operators.sketches import ApproxCountDistinct, PercentileApprox

_KEEPING = (
    *("min", "max", "first", "last", "min_by", "max_by"),
    *("count_distinct", "approx_count_distinct", "collect_list", "collect_set"),
)


def column_for(name: str, agg: Agg, schema: pa.Schema) -> Column:
    """Return the empty column of an aggregate; refuse a column that is missing or of a type it cannot take."""
    for column in agg.inputs:
        if schema.get_field_index(column) < 0:
            raise InputError(f"{name}={agg}: there is no column {column!r}; the input has {', '.join(schema.names)}")
    if agg.condition is not None:
        _refuse_no_truth(name, agg, agg.condition, schema)
    if agg.function == "count":
        return Count(name)
    kinds = [schema.field(column).type for column in agg.columns]
    if agg.function == "count_if":
        _refuse_no_truth(name, agg, agg.columns[0], schema)
        return CountIf(name)
    if agg.function in _KEEPING:
        for column, kind in zip(agg.columns, kinds, strict=True):
            _refuse_no_value(name, agg, column, kind)
        return _keeping(name, agg, kinds)
    return _computing(name, agg, kinds[0])


def _keeping(name: str, agg: Agg, kinds: list[pa.DataType]) -> Column:
    """Return the column of an aggregate that takes values of all sorts."""
    if agg.function in ("collect_list", "collect_set", "count_distinct"):
        made = {"collect_list": CollectList, "collect_set": CollectSet, "count_distinct": CountDistinct}[agg.function]
        return made(name, kinds)
    if agg.function == "approx_count_distinct":
        return ApproxCountDistinct(name, f"{name}={agg}", agg.options)
    if agg.function in ("min_by", "max_by"):
        return ExtremeBy(name, agg.function, *kinds)
    if agg.function in ("first", "last"):
        return First(name, kinds[0]) if agg.function == "first" else Last(name, kinds[0])
    dtype = fixed_dtype(kinds[0])
    by_rank = dtype is None or dtype.kind == "V"
    return ExtremeByRank(name, agg.function, kinds[0]) if by_rank else Extreme(name, agg.function, kinds[0])


def _computing(name: str, agg: Agg, kind: pa.DataType) -> Column:
    """Return the column of an aggregate that takes numbers."""
    if agg.function == "percentile_approx":
        if not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_decimal128(kind)):
            _refuse_no_number(name, agg, kind)
        return PercentileApprox(name, f"{name}={agg}", kind, agg.options)
    if agg.function in SPREADS:
        if not pa.types.is_decimal128(kind):
            _refuse_no_number(name, agg, kind)
        return Spread(name, agg.function)
    return _sum(name, agg, kind) if agg.function == "sum" else _mean(name, agg, kind)


def _sum(name: str, agg: Agg, kind: pa.DataType) -> Column:
    if pa.types.is_decimal128(kind):
        return DecimalSum(name, f"{name}={agg}", kind)
    _refuse_no_number(name, agg, kind)
    return FloatSum(name) if pa.types.is_floating(kind) else IntegerSum(name, f"{name}={agg}")


def _mean(name: str, agg: Agg, kind: pa.DataType) -> Column:
    if pa.types.is_decimal128(kind):
        return Mean(name, DecimalSum(f"{name}.sum", f"{name}={agg}", kind), mean_type(kind))
    _refuse_no_number(name, agg, kind)
    return Mean(name, FloatSum(f"{name}.sum"), pa.float64())


def _refuse_no_value(name: str, agg: Agg, column: str, kind: pa.DataType) -> None:
    if fixed_dtype(kind) is None and not is_variable(kind):
        expected = "numbers, booleans, strings, binary, decimals, dates or timestamps"
        raise _refused(name, agg, kind, expected, column)


def _refuse_no_truth(name: str, agg: Agg, column: str, schema: pa.Schema) -> None:
    if not pa.types.is_boolean(schema.field(column).type):
        raise _refused(name, agg, schema.field(column).type, "a condition, true or false", column)


def _refuse_no_number(name: str, agg: Agg, kind: pa.DataType) -> None:
    number = pa.types.is_signed_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    if not number:
        raise _refused(name, agg, kind, "a signed integer, a float, a double or a decimal of up to 38 digits")


def _refused(name: str, agg: Agg, kind: pa.DataType, expected: str, column: str | None = None) -> InputError:
    return InputError(f"{name}={agg}: column {(column or agg.column)!r} has type {kind}; expected {expected}")
