"""A checkpoint that executors do not share with the driver is refused; executors that see other things are played."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from evenflow.errors import UnreachableError
from evenflow.spark import probe as probing
from evenflow.spark.locating import located
from evenflow.spark.probe import Answer, answering, probe
from evenflow.state import FileRef, Folder, Retries
from tests.spark.drivers import log_of, process

HDFS = "hdfs://127.0.0.1:8020"


def answers(location: str, question: FileRef, tasks: int = 1) -> list[Answer]:
    """Answer as tasks on executors do."""
    return [answer for task in range(tasks) for answer in answering(location, question)(task, iter([task]))]


def test_executors_that_see_the_same_are_fine_and_nothing_is_left(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def ask(location: str, question: FileRef) -> list[Answer]:
        found = answers(location, question, tasks=3)
        asked.append(sorted(path.name for path in tmp_path.iterdir()))
        return found

    probe(str(tmp_path), Retries(0), ask, "file:///")
    ((question, *replies),) = asked
    assert replies == [f"{question}-{task}" for task in range(3)]
    assert list(tmp_path.iterdir()) == []


def test_an_executor_with_a_folder_of_its_own_is_told_of(tmp_path: Path) -> None:
    """It has the same path, and another disk below it."""
    shared, own = tmp_path / "driver", tmp_path / "executor"
    with pytest.raises(UnreachableError) as refusal:
        probe(str(shared), Retries(0), lambda _, question: answers(str(own), question), "file:///")
    said = str(refusal.value)
    assert f"checkpoint {shared}: the executor on " in said
    assert "cannot read what the driver on " in said
    assert "the file is not there" in said
    assert "set checkpointLocation to a place that all of them reach" in said
    assert "fs.defaultFS), here file:///." in said
    assert list(shared.iterdir()) == []
    assert not own.exists()


def test_an_executor_that_reads_and_writes_elsewhere_is_told_of(tmp_path: Path) -> None:
    """Such as a folder that is mounted read-only there, below another one."""
    shared, own = tmp_path / "driver", tmp_path / "executor"

    def ask(_: str, question: FileRef) -> list[Answer]:
        shutil.copytree(shared, own)
        return answers(str(own), question)

    with pytest.raises(UnreachableError, match=r"has written a file there which the driver on .* cannot read"):
        probe(str(shared), Retries(0), ask, "file:///")
    assert list(shared.iterdir()) == []


def test_a_damaged_file_and_one_bad_executor_of_many_are_told_of(tmp_path: Path) -> None:
    def ask(location: str, question: FileRef) -> list[Answer]:
        good = answers(location, question)
        (tmp_path / question.name).write_bytes(b"something else")
        return [*good, *answers(location, question)]

    with pytest.raises(UnreachableError, match="cannot read what the driver"):
        probe(str(tmp_path), Retries(0), ask, "file:///")
    assert list(tmp_path.iterdir()) == []


def test_where_no_task_can_run_the_lanes_say_why(tmp_path: Path) -> None:
    probe(str(tmp_path), Retries(0), lambda *_: None, "file:///")
    assert list(tmp_path.iterdir()) == []


# --- with Spark --------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_tasks_answer(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder.at(str(tmp_path))
    question = folder.write_bytes(".probe-x", b"x")
    found = probing._asked(spark.sparkContext, str(tmp_path), question, 60.0)
    assert found is not None
    assert {answer.problem for answer in found} == {""}
    for answer in found:
        assert answer.file is not None
        assert folder.read_bytes(answer.file) == answer.host.encode()


@pytest.mark.spark
def test_a_job_that_gets_no_task_slot_is_given_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = Folder.at(str(tmp_path)).write_bytes(".probe-x", b"x")

    def endless(*_: Any) -> Any:
        while True:
            time.sleep(0.1)

    monkeypatch.setattr(probing, "answering", lambda *_: endless)
    with pytest.raises(UnreachableError, match="no executor has run a task"):
        probing._asked(spark.sparkContext, str(tmp_path), question, 1.0)


@pytest.mark.spark
def test_a_path_without_a_scheme_lies_where_spark_takes_it_to_be(spark: SparkSession) -> None:
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    usual = conf.get("fs.defaultFS")
    try:
        conf.set("fs.defaultFS", HDFS)
        assert located(spark, "/checkpoints/one", "checkpointLocation") == f"{HDFS}/checkpoints/one"
    finally:
        conf.set("fs.defaultFS", usual)
    assert located(spark, "/checkpoints/one", "checkpointLocation") == "/checkpoints/one"


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_a_cluster_whose_executors_lack_the_folder_is_refused(tmp_path: Path) -> None:
    """The executors of a cluster within this machine are made to look into another folder."""
    (tmp_path / "in").mkdir()
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from evenflow.spark import probe\n"
        "from tests.spark.driver_under_fault import main\n"
        "right = probe.answering\n"
        "probe.answering = lambda location, question: right(location + '-elsewhere', question)\n"
        "main(Path(sys.argv[1]), 2, 'shuffle', 'local-cluster[2,2,1024]')\n"
    )
    with process(tmp_path / "log", sys.executable, "-c", code, str(tmp_path)) as started:
        assert started.wait(150) != 0
    assert f"UnreachableError: checkpoint {tmp_path}/checkpoint: the executor on " in log_of(tmp_path)
    assert list((tmp_path / "checkpoint").iterdir()) == []
