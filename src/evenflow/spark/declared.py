"""Operators of the user's own, with the columns that they declare in whatever form Spark's users write them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from evenflow.errors import InputError
from evenflow.operators import Apply, ApplyKeys, KeyOperator, SlotOperator
from evenflow.spark.internals import arrow_schema, schema_of_ddl, spark_schema


def running(operator: SlotOperator | KeyOperator) -> Apply | ApplyKeys:
    """Return what runs an operator of the user's own; refuse what is none."""
    if not isinstance(operator, KeyOperator):
        wrapped = Apply(operator)  # refuses what is no operator
        operator.output = _declared(operator, "output", "which rows process() returns")
        return wrapped
    operator.state = _declared(operator, "state", "what is held for each key")
    operator.output = _declared(operator, "output", "which rows are put out besides the key")
    return ApplyKeys(operator)


def _declared(operator: SlotOperator | KeyOperator, attribute: str, what: str) -> pa.Schema:
    """Return the columns that an operator declares, in whatever form it does."""
    name, declared = f"{type(operator).__name__}.{attribute}", getattr(operator, attribute, None)
    if isinstance(declared, str):
        try:
            declared = schema_of_ddl(declared)
        except InputError as error:
            raise InputError(f"apply: {name}: {error}") from error
    if isinstance(declared, pa.Schema):
        declared = spark_schema(declared)
    if not isinstance(declared, StructType) or not declared.names:
        raise InputError(
            f"apply: {name} must say {what}: 'user string, total long', a StructType or a pyarrow.Schema, "
            f"got {declared!r}"
        )
    twins = {column for column in declared.names if [one.lower() for one in declared.names].count(column.lower()) > 1}
    if twins:
        raise InputError(f"apply: {name} names columns twice: {', '.join(sorted(twins))}")
    return arrow_schema(declared)  # a type of Spark's has one form in Arrow
