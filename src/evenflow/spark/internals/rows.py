"""Types and rows between Spark and Arrow.

`to_arrow_schema` and `from_arrow_schema` are what PySpark itself uses for `mapInArrow` and `toArrow`; its public API
has no way from a StructType to an Arrow schema without running a job. `ArrowArrayToPandasConversion` and
`PandasToArrowConversion` are what its workers use for `applyInPandas`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark import RDD
from pyspark.errors import ParseException, PySparkTypeError
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.conversion import ArrowArrayToPandasConversion, PandasToArrowConversion
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from evenflow.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def arrow_schema(schema: StructType, zone: str = "UTC", *, large: bool = False) -> pa.Schema:
    """Return the Arrow schema of rows in Spark; `zone` and `large` say how a session shows them to user code.

    Instants are the same in every zone. Inside evenflow they are in UTC, so that no session's zone is part of what is
    stored.
    """
    fields: list[pa.Field] = []
    for field in schema.fields:
        try:
            bare = StructField(field.name, field.dataType, field.nullable)  # user code is not shown Spark's own notes
            fields += to_arrow_schema(StructType([bare]), timezone=zone, prefers_large_types=large)
        except PySparkTypeError as error:
            raise InputError(
                f"column {field.name!r} has the type {field.dataType.simpleString()}, which Spark cannot hand to "
                f"Python: cast it to another type or leave it out"
            ) from error
    return pa.schema(fields)


def arrow_frames(frame: DataFrame) -> tuple[RDD[bytes], pa.Schema]:
    """Return the rows of a frame as Arrow messages, one per record batch without its schema, and that schema.

    This is how PySpark itself collects for `toArrow`. `mapInArrow` would hand the same batches to Python, but takes
    twice as long: it wraps every row once more and writes it with generic code.
    """
    large = frame.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    schema = arrow_schema(frame.schema, large=large)  # a message holds instants, and no zone
    messages = frame._jdf.toArrowBatchRdd().toJavaRDD()  # noqa: SLF001 - as said above
    return RDD(messages, frame.sparkSession.sparkContext, NoOpSerializer()), schema


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of rows that `mapInArrow` returns."""
    fields: list[StructField] = []
    for field in schema:
        try:
            fields += from_arrow_schema(pa.schema([field]))  # a timestamp without a zone is one without in Spark, too
        except PySparkTypeError as error:
            raise InputError(f"column {field.name!r} has the type {field.type}, which Spark does not have") from error
    return StructType(fields)


def pandas_series(column: pa.ChunkedArray, field: StructField, zone: str, *, extension: bool) -> pd.Series:
    """Return a column as a function of `applyInPandas` is given it; `extension`: integers that know nulls."""
    series = ArrowArrayToPandasConversion.convert(
        column, field.dataType, ser_name=field.name, timezone=zone, prefer_int_ext_dtype=extension
    )
    return cast("pd.Series", series)  # a frame only for a struct, if asked for


def arrow_column(  # noqa: PLR0913 - the settings of a session that count here
    series: pd.Series, field: StructField, zone: str, *, safe: bool, large: bool, integers_to_decimals: bool
) -> pa.Array:
    """Return a column as it is read from what a function of `applyInPandas` returns."""
    batch = PandasToArrowConversion.convert(
        [series],
        StructType([field]),
        timezone=zone,
        safecheck=safe,
        arrow_cast=True,
        prefers_large_types=large,
        int_to_decimal_coercion_enabled=integers_to_decimals,
    )
    return batch.column(0)


class StateFrame(ClassicDataFrame):
    """A DataFrame with the state of a query at the end of an epoch; what is made from it is an ordinary DataFrame."""

    def __init__(self, frame: DataFrame, epoch: int) -> None:
        """Be the frame, and say of which epoch it is."""
        super().__init__(frame._jdf, frame.sparkSession)  # noqa: SLF001 - there is no other way to make one
        self.epoch = epoch


def schema_of_ddl(ddl: str) -> StructType:
    """Return the schema that a text like ``"auction long, total long"`` describes."""
    try:
        schema = StructType.fromDDL(ddl)
    except ParseException:
        schema = None
    if not isinstance(schema, StructType):  # it takes a bare type as well
        raise InputError(f"expected columns with types, such as 'user string, total long', got {ddl!r}")
    return schema
