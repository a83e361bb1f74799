"""The few things PySpark has but does not promise, in one place: types and rows between Spark and Arrow, columns,
ends, jobs.

`to_arrow_schema` and `from_arrow_schema` are what PySpark itself uses for `mapInArrow` and `toArrow`; its public API
has no way from a StructType to an Arrow schema without running a job. `ArrowArrayToPandasConversion` and
`PandasToArrowConversion` are what its workers use for `applyInPandas`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext
from pyspark.errors import ParseException, PySparkException, PySparkTypeError
from pyspark.serializers import NoOpSerializer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.conversion import ArrowArrayToPandasConversion, PandasToArrowConversion
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField, StructType

from evenflow.errors import InputError
from evenflow.state import Folder

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


def master_of(context: SparkContext) -> str:
    """Return the master's URL; a running context always has one."""
    return context.master or "local"


def is_local(context: SparkContext) -> bool:
    """Return whether tasks run on this machine, below the driver's own process; not so on `local-cluster`."""
    return re.fullmatch(r"local(\[.*\])?", master_of(context)) is not None


def task_slots(context: SparkContext) -> int:
    """Return how many tasks can run at once on the executors that are there; `spark.task.cpus` is heeded."""
    scala: Any = context._jsc.sc()  # noqa: SLF001 - PySpark has no other way to ask
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def qualified(context: SparkContext, path: str) -> str:
    """Return a path with its filesystem, as Spark understands it; PySpark has no other way to ask.

    One without a scheme lies on Hadoop's default filesystem, a relative one below the JVM's working directory.
    """
    jvm: Any = context._jvm  # noqa: SLF001 - as said above
    place = jvm.org.apache.hadoop.fs.Path(path)
    filesystem = place.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001 - as said above
    return str(filesystem.makeQualified(place).toString())


def default_filesystem(context: SparkContext) -> str:
    """Return Hadoop's default filesystem, on which paths without a scheme lie."""
    return str(context._jsc.hadoopConfiguration().get("fs.defaultFS"))  # noqa: SLF001 - as said above


def why_no_source(spark: SparkSession, kind: str) -> str | None:
    """Return why this session has no format of that name, None if it has; PySpark would say it with the first rows."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - as said above
    conf = spark._jsparkSession.sessionState().conf()  # noqa: SLF001 - as said above
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(kind, conf)
    except (PySparkException, Py4JJavaError) as error:
        return str(error)
    return None


class ViewInMemory:
    """Rows in the driver's JVM behind a temporary view: what Spark's own memory sink keeps them in.

    Whoever reads the view sees what is there at that moment. PySpark can only make a view anew, from all rows.
    """

    def __init__(self, spark: SparkSession, schema: StructType, name: str) -> None:
        """Make the view, without rows."""
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - as said above
        memory = jvm.org.apache.spark.sql.execution.streaming.sources
        empty: Any = spark.createDataFrame([], schema)
        self._rows = memory.MemorySink()
        plan = memory.MemoryPlan(self._rows, empty._jdf.queryExecution().analyzed().output())  # noqa: SLF001
        found = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)  # noqa: SLF001
        DataFrame(found, spark).createOrReplaceTempView(name)

    def add(self, frame: DataFrame, epoch: int, *, replaces: bool) -> None:
        """Add the rows of an epoch, or let them take the place of all; one that it has, or an older one, is skipped."""
        self._rows.write(epoch, replaces, cast("Any", frame)._jdf.collect())  # noqa: SLF001 - they stay in the JVM


def use_this_python(context: SparkContext) -> None:
    """Have local workers run this very Python, unless the user has named one.

    Spark would take `python3` from the path, which knows nothing of the environment that evenflow is installed in.
    """
    if "PYSPARK_PYTHON" not in os.environ and master_of(context).startswith("local"):
        context.pythonExec = sys.executable


def refuse_spark_connect(stream: object) -> None:
    """Refuse a DataFrame of Spark Connect: lanes are jobs of a SparkContext, which a Connect client does not have."""
    if type(stream).__module__.startswith("pyspark.sql.connect"):
        raise InputError(
            "keyed: this DataFrame is Spark Connect's, and evenflow needs a classic session, whose driver runs in this "
            "process: build it with SparkSession.builder.master(...) and without SPARK_REMOTE or remote(...)"
        )


def give_id(folder: Folder, query_id: str) -> None:
    """Let Spark's query have our id from its first start on: Spark takes it from this file of its checkpoint."""
    if not folder.exists("spark/metadata"):
        folder.write_bytes("spark/metadata", json.dumps({"id": query_id}).encode())


# --- how Spark's query ends --------------------------------------------------------------------------------------

# Spark takes an error out of foreachBatch for its own interruption by stop() if it reads like this. The words stand at
# the end of a short text: Spark searches the whole text with a pattern that needs stack for every character.
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling evenflow: java.lang.InterruptedException"


class InterruptedBySpark(Exception):  # noqa: N818 - it is no error
    """What Spark's thread must come back with when the query was stopped while the thread was in our hands."""

    def __init__(self) -> None:
        """Say it in the words that Spark looks for."""
        super().__init__(_INTERRUPTED)


def _is_news(record: logging.LogRecord) -> bool:
    """Tell whether a line of Py4J's log is any: it takes our way of giving back Spark's thread for an error."""
    return not (record.exc_info and isinstance(record.exc_info[1], InterruptedBySpark))


logging.getLogger("py4j.clientserver").addFilter(_is_news)


def carry_error(query: StreamingQuery, text: str) -> None:
    """Let Spark's query end with `text` as its error: for listeners, `spark.streams`, `exception()` and all who wait.

    To be called before it is stopped. Spark has no call for that: it knows only errors of its own thread, and by the
    time lanes or the sink fail that thread may be idle.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001 - the one there is
    if context is None:
        return  # the session was stopped: nobody is left to be told
    jvm: Any = context._jvm  # noqa: SLF001
    cause = jvm.org.apache.spark.SparkException(text)
    cause.setStackTrace(context._gateway.new_array(jvm.java.lang.StackTraceElement, 0))  # type: ignore[union-attr]  # noqa: SLF001 - py4j's own frames say nothing
    words = {"id": query.id, "runId": query.runId, "message": text}
    parameters = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(words)
    shown = f"=== Streaming Query ===\nIdentifier: {query.name} [id = {query.id}, runId = {query.runId}]"
    error = jvm.org.apache.spark.sql.streaming.StreamingQueryException(
        shown, cause, "", "", "STREAM_FAILED", parameters
    )
    execution = query._jsq.streamingQuery()  # noqa: SLF001
    getattr(execution, "streamDeathCause_$eq")(error)
    if not query.isActive:  # it was through with its input before lanes were: tell at least those who wait for any
        execution.sparkSession().streams().notifyQueryTermination(execution)


def stop_timeout_s(spark: SparkSession) -> float:
    """Return Spark's `spark.sql.streaming.stopTimeout` in seconds; 0 is without end."""
    text = spark.conf.get("spark.sql.streaming.stopTimeout", "0")
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Spark's own reading of "10s", "1min", "5000"
    return float(jvm.org.apache.spark.network.util.JavaUtils.timeStringAsMs(text)) / 1e3


# --- jobs --------------------------------------------------------------------------------------------------------


class CallerJobs:
    """The scheduler pool, tags and other job properties of the thread that starts a query, for threads of the query.

    Spark's own streaming thread inherits them. `pyspark.InheritableThread` copies those of the thread that starts a
    thread, and lanes are also started by threads that have none; it hands one object to all of them.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Keep what is set for this thread."""
        self._spark = spark
        self._properties = self._scala.getLocalProperties().clone()
        self._tags = spark.getTags()

    @property
    def _scala(self) -> Any:
        return self._spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark can set them one by one, but not list them

    def take_on(self) -> None:
        """Set them for this thread."""
        self._scala.setLocalProperties(self._properties.clone())
        for tag in self._tags:
            self._spark.addTag(tag)


# --- the terminal ------------------------------------------------------------------------------------------------

_bars: dict[str, Any] = {}  # the bar that stands for Spark's own, by application


def hide_progress_bar(context: SparkContext) -> None:
    """Stop Spark's progress bar in the terminal: lanes are stages that never end, it would show nothing else."""
    scala: Any = context._jsc.sc()  # noqa: SLF001 - PySpark cannot switch it off while the session runs
    own = scala.progressBar()
    if own.isDefined():
        bar = _bars.get(context.applicationId, own.get())
        bar.finishAll()
        bar.stop()


def show_progress_bar(context: SparkContext) -> None:
    """Show progress again, if the session had a progress bar: Spark's own cannot be started a second time."""
    scala: Any = context._jsc.sc()  # noqa: SLF001
    if scala.progressBar().isDefined():
        jvm: Any = context._jvm  # noqa: SLF001
        _bars[context.applicationId] = jvm.org.apache.spark.ui.ConsoleProgressBar(scala)


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
    """A call of a function in a Column, such as `F.sum("x").alias("total")`."""

    function: str
    arguments: tuple[Column, ...]
    distinct: bool
    alias: str | None


def call_in(column: Column) -> Call | None:
    """Return the function that a Column calls, None if it is something else. PySpark has no way to ask."""
    made = cast("Any", column)._jc  # noqa: SLF001 - as said above
    node, alias = made.node(), None
    if node.getClass().getSimpleName() == "Alias":
        alias, node = str(node.name().apply(0)), node.child()
    if node.getClass().getSimpleName() != "UnresolvedFunction":
        return None
    context = cast("Any", SparkContext._active_spark_context)  # noqa: SLF001 - as above
    arguments = (node.arguments().apply(at) for at in range(node.arguments().size()))
    columns = tuple(cast("Any", type(column))(context._jvm.org.apache.spark.sql.Column(one)) for one in arguments)  # noqa: SLF001
    return Call(str(node.functionName()).lower(), columns, bool(node.isDistinct()), alias)
