"""A quiet Spark session on this machine, for what is meant to be looked at."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from evenflow.errors import EvenflowError

# For a minute's run, code that is compiled quickly beats code that runs quickly.
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TOLD = 600  # characters of what Spark says that an error shows
_NO_JAVA = r"JAVA_HOME is not set|java: (command )?not found|JAVA_NOT_FOUND|/bin/java: No such file"


def quiet_session(task_slots: int, log: Path) -> SparkSession:
    """Start Spark with `task_slots` on this machine; what the JVM has to say goes to the file `log`."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    old = log.stat().st_size if log.exists() else 0
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
    except (PySparkException, Py4JError, OSError) as error:
        said = log.read_bytes()[old:].decode(errors="replace") if log.exists() else ""
        raise EvenflowError(f"Spark does not start: {_why(f'{said}{error}')}") from error
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


def _why(said: str) -> str:
    """Return what keeps Spark from starting, out of all that it says, and what to do."""
    if (unknown := re.search(r"UnknownHostException: ([^\s:]+)", said)) is not None:
        return (
            f"the name {unknown[1]!r}, which stands for this machine, does not resolve. Set SPARK_LOCAL_IP=127.0.0.1 "
            f"and SPARK_LOCAL_HOSTNAME=localhost, or add a line '127.0.0.1 {unknown[1]}' to /etc/hosts"
        )
    if re.search(_NO_JAVA, said) is not None:
        return "it needs Java 17 or newer (`make java`), and finds none: see that `java` is on PATH, or set JAVA_HOME"
    if "UnsupportedClassVersionError" in said:
        return "it needs Java 17 or newer (`make java`), and finds an older one: set JAVA_HOME to a newer one"
    causes = re.findall(
        r"^(?:Caused by: |Exception in thread \S+ |[:\s]*)([\w.$]+(?:Exception|Error): .+)$", said, re.MULTILINE
    )
    return causes[-1] if causes else said[-_TOLD:].strip()
