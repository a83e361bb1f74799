"""The few things PySpark has but does not promise, in one place: type conversion between Spark and Arrow.

`to_arrow_schema` and `from_arrow_schema` are what PySpark itself uses for `mapInArrow` and `toArrow`; the public API has no
way from a StructType to an Arrow schema without running a job.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which `mapInArrow` sees rows of `schema`."""
    return to_arrow_schema(schema)


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of rows that `mapInArrow` returns."""
    return from_arrow_schema(schema)
