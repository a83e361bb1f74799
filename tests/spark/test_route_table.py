"""The routing table on its way into Spark's shuffle: as cheap for 10,000 slots as for ten, and right for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from evenflow.model import RoutingTable
from evenflow.operators.base import SLOT
from evenflow.spark.route import lane_column

pytestmark = pytest.mark.spark

SLOTS = 10_000
LANES = (3, 5, 8, 13, 21)


@pytest.fixture
def table() -> RoutingTable:
    return RoutingTable(np.random.default_rng(7).choice(LANES, SLOTS), LANES)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is sent to the JVM; that Python lets go of an object there is left out."""
    sent: list[str] = []
    send = GatewayClient.send_command

    def counted(self: Any, command: str, *given: Any, **named: Any) -> Any:
        if not command.startswith("m\n"):
            sent.append(command)
        return send(self, command, *given, **named)

    for client in {GatewayClient, *GatewayClient.__subclasses__()}:
        monkeypatch.setattr(client, "send_command", counted)
    return sent


def test_the_calls_to_the_jvm_do_not_grow_with_the_slots(
    spark: SparkSession, table: RoutingTable, calls: list[str]
) -> None:
    spark.range(1)
    assert calls, "they are counted"
    calls.clear()
    lane_column(table)
    assert len(calls) < 100


def test_each_slot_goes_to_its_lane(spark: SparkSession, table: RoutingTable) -> None:
    slots = spark.range(SLOTS).select(F.col("id").cast("short").alias(SLOT))
    routed = slots.repartitionById(len(LANES), lane_column(table)).select(SLOT, F.spark_partition_id().alias("part"))
    found = routed.toArrow().sort_by(SLOT)
    assert found[SLOT].to_pylist() == list(range(SLOTS))
    assert [LANES[part] for part in found["part"].to_pylist()] == table.owners.tolist()


def test_spark_sees_one_literal(spark: SparkSession, table: RoutingTable) -> None:
    """The text is not taken apart again for every row."""
    slots = spark.range(SLOTS).select(F.col("id").cast("short").alias(SLOT))
    shuffled = slots.repartitionById(len(LANES), lane_column(table))
    plan = shuffled._jdf.queryExecution().optimizedPlan()
    lane = plan.expressions().apply(0)
    assert "split(" not in lane.toString()
    nodes, waiting = 0, [lane]
    while waiting:
        node = waiting.pop()
        nodes += 1
        waiting += [node.children().apply(at) for at in range(node.children().size())]
    assert nodes < 10
