"""When Spark does not start, the error says why and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.streaming.query import StreamingQuery

import evenflow as ef
from evenflow.errors import InputError
from evenflow.spark.session import _why

SCRIPT = """
import sys
from pathlib import Path
from evenflow.errors import EvenflowError
from evenflow.spark.session import quiet_session
try:
    quiet_session(2, Path(sys.argv[1]))
except EvenflowError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("environment", "words", "others"),
    [
        ({"SPARK_LOCAL_IP": "no.such.host.invalid"}, ["'no.such.host.invalid'", "/etc/hosts", "SPARK_LOCAL_"], "Java"),
        ({"JAVA_HOME": "/does/not/exist"}, ["Java 17 or newer", "finds none", "JAVA_HOME"], "hosts"),
    ],
)
def test_what_keeps_spark_from_starting_is_named(
    tmp_path: Path, environment: dict[str, str], words: list[str], others: str
) -> None:
    (tmp_path / "log").write_text("Caused by: java.net.UnknownHostException: of.another.run\nJAVA_HOME is not set\n")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "log")]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Spark does not start: "), done.stderr
    assert all(word in done.stdout for word in words), done.stdout
    assert others not in done.stdout


def test_other_causes_are_told_in_sparks_words() -> None:
    said = (
        "26/01/01 WARN x\nException in thread main java.lang.Ex: a\n\tat b\nCaused by: java.net.BindException: taken\n"
    )
    assert _why(said) == "java.net.BindException: taken"
    assert "an older one" in _why("java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main")
    assert _why("[SOMETHING] else") == "[SOMETHING] else"


def test_spark_connect_is_refused_in_one_sentence() -> None:
    remote = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    with pytest.raises(InputError, match=r"keyed: this DataFrame is Spark Connect's.*without SPARK_REMOTE"):
        ef.keyed(remote(), "auction")


def test_a_query_has_every_name_of_sparks() -> None:
    names = {name for name in dir(StreamingQuery) if not name.startswith("_")}
    assert names - set(dir(ef.Query)) == set()
