"""Which aggregate goes with which type, and what comes out: Spark's rules."""

from __future__ import annotations

import pyarrow as pa

from evenflow.errors import InputError
from evenflow.operators.accumulators import Count, Extreme, FloatSum, IntegerSum
from evenflow.operators.arrays import fixed_dtype, is_variable
from evenflow.operators.chosen import ExtremeByRank, First, Last
from evenflow.operators.column import Column
from evenflow.operators.decimals import DecimalSum, mean_type
from evenflow.operators.functions import Agg
from evenflow.operators.mean import Mean


def column_for(name: str, agg: Agg, schema: pa.Schema) -> Column:
    """Return the empty column of an aggregate; refuse a column that is missing or of a type it cannot take."""
    if agg.column is not None and schema.get_field_index(agg.column) < 0:
        raise InputError(f"{name}={agg}: there is no column {agg.column!r}; the input has {', '.join(schema.names)}")
    if agg.function == "count":
        return Count(name)
    kind = schema.field(agg.column).type
    if agg.function == "sum":
        return _sum(name, agg, kind)
    return _mean(name, agg, kind) if agg.function == "mean" else _chosen(name, agg, kind)


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


def _chosen(name: str, agg: Agg, kind: pa.DataType) -> Column:
    dtype = fixed_dtype(kind)
    if dtype is None and not is_variable(kind):
        raise _refused(name, agg, kind, "numbers, booleans, strings, binary, decimals, dates or timestamps")
    if agg.function in ("first", "last"):
        return First(name, kind) if agg.function == "first" else Last(name, kind)
    by_rank = dtype is None or dtype.kind == "V"
    return ExtremeByRank(name, agg.function, kind) if by_rank else Extreme(name, agg.function, kind)


def _refuse_no_number(name: str, agg: Agg, kind: pa.DataType) -> None:
    number = pa.types.is_signed_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    if not number:
        raise _refused(name, agg, kind, "a signed integer, a float, a double or a decimal of up to 38 digits")


def _refused(name: str, agg: Agg, kind: pa.DataType, expected: str) -> InputError:
    return InputError(f"{name}={agg}: column {agg.column!r} has type {kind}; expected {expected}")
