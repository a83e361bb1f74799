"""Rows as Spark gives them to the functions of `applyInArrow` and `applyInPandas`, and as it reads what they return.

The conversions are PySpark's own, under the settings that the session has when the query starts. One thing differs: a
column of integers with nulls stays one of integers (`Int64`), as with Spark's `preferIntExtensionDtype`. Spark makes it
floats by default, which changes values beyond 2^53; and as a slot has many keys, one null key would change them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegralType, StructField, StructType

from evenflow.errors import InputError
from evenflow.operators import Apply, Operator
from evenflow.operators.group_state import GroupStates
from evenflow.operators.output import check_columns
from evenflow.operators.processor import Processing
from evenflow.spark.internals import arrow_column, arrow_schema, pandas_series, spark_schema

if TYPE_CHECKING:
    import pandas as pd

_ZONE = "spark.sql.session.timeZone"
_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"
_EXTENSION = "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype"
_SAFE = "spark.sql.execution.pandas.convertToArrowArraySafely"
_DECIMALS = "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"
_BY_NAME = "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName"


def seen_in(spark: SparkSession, operator: Operator, schema: pa.Schema, keys: tuple[str, ...]) -> Operator:
    """Return an operator as it runs in a session: user code sees rows as Spark would show them there."""
    if not isinstance(operator, Apply | GroupStates | Processing):
        return operator
    return operator.seeing(SparkFrames.of(spark, schema, operator.output_schema(schema, keys)))


@dataclass(frozen=True)
class SparkFrames:
    """The conversions of one session between rows of `given` and `output`."""

    given: StructType
    output: StructType
    zone: str
    large: bool = False  # strings with 64-bit offsets
    extension: bool = False  # every integer column as pandas' own kind, which knows nulls
    safe: bool = False
    integers_to_decimals: bool = False
    by_name: bool = True

    @classmethod
    def of(cls, spark: SparkSession, schema: pa.Schema, output: pa.Schema) -> SparkFrames:
        """Return the conversions of a session, as it is set now."""
        is_on = {key: spark.conf.get(key) == "true" for key in (_LARGE, _EXTENSION, _SAFE, _DECIMALS, _BY_NAME)}
        zone = spark.conf.get(_ZONE) or "UTC"
        return cls(spark_schema(schema), spark_schema(output), zone, *is_on.values())

    def shown(self, rows: pa.Table) -> pa.Table:
        return rows.cast(arrow_schema(self.given, self.zone, large=self.large))

    def frame(self, rows: pa.Table) -> pd.DataFrame:
        import pandas as pd  # only who asks for frames needs it

        columns = zip(rows.combine_chunks().columns, self.given.fields, strict=True)
        return pd.concat([self._series(column, field) for column, field in columns], axis=1)

    def alone(self, rows: pa.Table) -> pd.DataFrame:
        import pandas as pd  # only who asks for frames needs it

        fields = [self.given[name] for name in rows.column_names]
        shown = rows.cast(arrow_schema(StructType(fields), self.zone, large=self.large)).combine_chunks()
        columns = zip(shown.columns, fields, strict=True)
        return pd.concat([self._series(column, field, keeps_integers=False) for column, field in columns], axis=1)

    def _series(self, column: pa.ChunkedArray, field: StructField, *, keeps_integers: bool = True) -> pd.Series:
        kept = keeps_integers and isinstance(field.dataType, IntegralType) and column.null_count > 0
        try:
            return pandas_series(column, field, self.zone, extension=self.extension or kept)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"column {field.name!r}, {field.dataType.simpleString()}, has values that pandas cannot hold "
                f"({error}): take rows as Arrow instead, frame = 'arrow'"
            ) from error

    def table(self, frame: pd.DataFrame) -> pa.Table:
        output = arrow_schema(self.output, self.zone, large=self.large)
        if frame.empty and not len(frame.columns):
            return output.empty_table()
        if self.by_name and any(isinstance(name, str) for name in frame.columns):
            check_columns(list(frame.columns), output)
            frame = frame[output.names]
        elif len(frame.columns) != len(output):
            raise InputError(
                f"output columns: expected {len(output)}, {', '.join(output.names)}; got {len(frame.columns)}"
            )
        columns = (frame.iloc[:, at] for at in range(len(output)))
        fields = zip(columns, self.output.fields, strict=True)
        return pa.table([self._column(series, field) for series, field in fields], output.names)

    def _column(self, series: pd.Series, field: StructField) -> pa.Array:
        try:
            return arrow_column(
                series,
                field,
                self.zone,
                safe=self.safe,
                large=self.large,
                integers_to_decimals=self.integers_to_decimals,
            )
        except Exception as error:  # pandas and Spark raise all kinds; each is about this column
            if series.isna().all():  # pandas makes floats of a column without values, which Spark takes for few types
                return pa.nulls(len(series), arrow_schema(StructType([field]), self.zone, large=self.large)[0].type)
            raise InputError(
                f"output column {field.name!r}: expected {field.dataType.simpleString()}, got {series.dtype} "
                f"({type(error).__name__}: {error})"
            ) from error
