"""Where and how a session runs: its tasks, its formats, its queries and their ends, its jobs."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from evenflow.errors import InputError
from evenflow.state import Folder


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
