"""One Spark session for all tests, and a place for each to work in."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.driver_under_fault import session as spark_session
from tests.spark.streams import Bench


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = spark_session(tmp_path_factory.mktemp("spark"), "local[4]")
    yield session
    session.stop()


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    """A place to work in; what a test leaves running is stopped."""
    made = Bench(spark, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def kill_lanes(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Script the deaths of lanes that start later; returns the folder in which each death leaves its mark."""
    done = tmp_path / "deaths"
    done.mkdir()
    environment = spark.sparkContext.environment

    def script(*faults: str) -> Path:
        environment.update(EVENFLOW_FAULTS=",".join(faults), EVENFLOW_FAULTS_DONE=str(done))
        return done

    yield script
    for name in ("EVENFLOW_FAULTS", "EVENFLOW_FAULTS_DONE"):
        environment.pop(name, None)
