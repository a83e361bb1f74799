"""A quiet Spark session on this machine, for what is meant to be looked at."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from evenflow.errors import EvenflowError

# For a minute's run, code that is compiled quickly beats code that runs quickly.
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TOLD = 600  # characters of Spark's log that an error shows


def quiet_session(task_slots: int, log: Path) -> SparkSession:
    """Start Spark with `task_slots` on this machine; what the JVM has to say goes to the file `log`."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        with _stderr_to(log):
            session = (
                SparkSession.builder.master(f"local[{task_slots},4]")
                .appName("evenflow")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.log.level", "OFF")
                .config("spark.sql.shuffle.partitions", "2")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.extraJavaOptions", _QUICK_START)
                .config("spark.sql.session.timeZone", "UTC")
                .getOrCreate()
            )
    except (PySparkException, OSError) as error:
        said = log.read_text(errors="replace")[-_TOLD:].strip() if log.exists() else ""
        raise EvenflowError(
            f"Spark does not start; it needs Java 17 or newer (`make java`): {said or error}"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own cancels all jobs first
    return session


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Send file descriptor 2 to `log`: a process started meanwhile keeps it, ours gets its own back."""
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
