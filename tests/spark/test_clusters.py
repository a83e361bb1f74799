"""Lanes in executors: of a cluster within one machine, and of Master and Workers as processes of their own."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.spark.driver_under_fault import QUICK
from tests.spark.drivers import check_results, driver, log_of, marks, process
from tests.spark.streams import counts_rise_by_one, one_bid_per_key, read_published, until, write_input

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

EPOCHS = 7


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for epoch in range(EPOCHS):
        write_input(tmp_path / "in", epoch, one_bid_per_key(epoch))
    return tmp_path


EXECUTOR_DEATHS = (
    "lane.before-fold@0:1!executor",
    "lane.folded@1:2!executor",
    "lane.changes-written@0:3!executor",
    "lane.done-sent@1:4!executor",
    "lane.releasing@*:*!executor",
    "lane.released@*:*!executor",
)


def test_executors_are_killed_at_every_phase(place: Path) -> None:
    """Their lanes start again in other ones; the results are the same."""
    with driver(place, 2, *EXECUTOR_DEATHS, exchange="shuffle", master="local-cluster[2,2,1024]") as started:
        assert started.wait(200) == 0, log_of(place)
    assert {path.name for path in (place / "deaths").iterdir()} == marks(EXECUTOR_DEATHS)
    published = read_published(place / "out")
    counts_rise_by_one(published.elements(), EPOCHS)
    check_results(place, [one_bid_per_key(epoch) for epoch in range(EPOCHS)])


@contextlib.contextmanager
def standalone(place: Path) -> Iterator[str]:
    """Start a Master and two Workers of two cores each; return the master's address."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    here, log = ["--host", "127.0.0.1", "--webui-port", "0"], place / "master.log"
    with contextlib.ExitStack() as processes:
        command = [spark_class, "org.apache.spark.deploy.master.Master", *here, "--port", "0"]
        processes.enter_context(process(log, *command, SPARK_DAEMON_JAVA_OPTS=QUICK))
        address = re.compile(r"Starting Spark master at (spark://127.0.0.1:\d+)")
        until(lambda: address.search(log.read_text()), "the master is there")
        master = address.findall(log.read_text())[0]
        for number in range(2):
            size = ["--cores", "2", "--memory", "1g", "--work-dir", str(place / f"work{number}")]
            command = [spark_class, "org.apache.spark.deploy.worker.Worker", *here, *size, master]
            processes.enter_context(process(place / f"worker{number}.log", *command, SPARK_DAEMON_JAVA_OPTS=QUICK))
        yield master


def test_a_standalone_cluster(place: Path) -> None:
    with standalone(place) as master, driver(place, 2, exchange="shuffle", master=master) as started:
        assert started.wait(150) == 0, log_of(place)
    check_results(place, [one_bid_per_key(epoch) for epoch in range(EPOCHS)])
    assert (place / "moves").read_text() != "0"


def test_dynamic_allocation_begins_with_no_executor(place: Path) -> None:
    """It is the lanes that wait for a task slot that make Spark ask for executors."""
    settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.executor.cores": "2",
    }
    confs = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    command = [sys.executable, "-m", "tests.spark.driver_under_fault", str(place), "2", "shuffle"]
    log, environment = place / "log", {"PYSPARK_SUBMIT_ARGS": f"{confs} pyspark-shell"}
    with process(log, *command, "local-cluster[2,2,1024]", **environment) as started:
        assert started.wait(150) == 0, log_of(place)
    check_results(place, [one_bid_per_key(epoch) for epoch in range(EPOCHS)])
