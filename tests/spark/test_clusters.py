"""Lanes in executors: of a cluster within one machine, and of Master and Workers as processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.spark.driver_under_fault import QUICK
from tests.spark.drivers import check_results, descendants, driver, log_of, process
from tests.spark.streams import counts_rise_by_one, one_bid_per_key, read_published, until, write_input

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

EPOCHS = 7


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for epoch in range(EPOCHS):
        write_input(tmp_path / "in", epoch, one_bid_per_key(epoch))
    return tmp_path


def executors_of(pid: int) -> list[int]:
    """Return the JVMs of executors among the processes below one."""
    return [child for child, command in descendants(pid).items() if "CoarseGrainedExecutorBackend" in command]


def test_an_executor_is_killed(place: Path) -> None:
    """Its lanes start again in another one; the results are the same."""
    with driver(place, 2, exchange="shuffle", master="local-cluster[2,2,1024]") as started:
        until(lambda: list((place / "out").glob("part-epoch0000000001-*")) or started.poll() is not None, "epoch 1")
        victims = executors_of(started.pid)
        assert len(victims) == 2, log_of(place)
        os.kill(victims[0], signal.SIGKILL)
        assert started.wait(120) == 0, log_of(place)
    published = read_published(place / "out")
    counts_rise_by_one(published.elements(), EPOCHS)
    check_results(place, [one_bid_per_key(epoch) for epoch in range(EPOCHS)])


@contextlib.contextmanager
def standalone(place: Path) -> Iterator[str]:
    """Start a Master and two Workers of two cores each; return the master's address."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master, here = f"spark://127.0.0.1:{port}", ["--host", "127.0.0.1", "--webui-port", "0"]
    with contextlib.ExitStack() as processes:
        command = [spark_class, "org.apache.spark.deploy.master.Master", *here, "--port", str(port)]
        processes.enter_context(process(place / "master.log", *command, SPARK_DAEMON_JAVA_OPTS=QUICK))
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
