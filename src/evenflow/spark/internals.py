"""The few things PySpark has but does not promise, in one place: types and rows between Spark and Arrow.

`to_arrow_schema` and `from_arrow_schema` are what PySpark itself uses for `mapInArrow` and `toArrow`; its public API
has no way from a StructType to an Arrow schema without running a job.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pyarrow as pa
from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from evenflow.errors import InputError


def arrow_schema(schema: StructType, timezone: str | None = "UTC") -> pa.Schema:
    """Return the Arrow schema in which `mapInArrow` sees rows of `schema`; `timezone` is the session's."""
    return to_arrow_schema(schema, timezone=timezone)


def arrow_frames(frame: DataFrame) -> tuple[RDD[bytes], pa.Schema]:
    """Return the rows of a frame as Arrow messages, one per record batch without its schema, and that schema.

    This is how PySpark itself collects for `toArrow`. `mapInArrow` would hand the same batches to Python, but takes
    twice as long: it wraps every row once more and writes it with generic code.
    """
    conf = frame.sparkSession.conf
    large = conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    schema = to_arrow_schema(frame.schema, timezone=conf.get("spark.sql.session.timeZone"), prefers_large_types=large)
    messages = frame._jdf.toArrowBatchRdd().toJavaRDD()  # noqa: SLF001 - as said above
    return RDD(messages, frame.sparkSession.sparkContext, NoOpSerializer()), schema


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of rows that `mapInArrow` returns."""
    return from_arrow_schema(schema)  # a timestamp without a time zone in Arrow is one without in Spark


def schema_of_ddl(ddl: str) -> StructType:
    """Return the schema that a text like ``"auction long, total long"`` describes."""
    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):
        raise InputError(f"expected columns such as 'auction long, total long', got {ddl!r}")
    return schema


def master_of(context: SparkContext) -> str:
    """Return the master's URL; a running context always has one."""
    return context.master or "local"


def task_slots(context: SparkContext) -> int:
    """Return how many tasks can run at once on the executors that are there; `spark.task.cpus` is heeded."""
    scala: Any = context._jsc.sc()  # noqa: SLF001 - PySpark has no other way to ask
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def use_this_python(context: SparkContext) -> None:
    """Have local workers run this very Python, unless the user has named one.

    Spark would take `python3` from the path, which knows nothing of the environment that evenflow is installed in.
    """
    if "PYSPARK_PYTHON" not in os.environ and master_of(context).startswith("local"):
        context.pythonExec = sys.executable
