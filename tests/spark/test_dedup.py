"""Dedup on Spark: the rows that pass are those that Spark's own dropDuplicates passes for the same stream."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import evenflow as ef
from evenflow.errors import InputError
from tests.seeds import seed_of_run
from tests.spark.dedup_seeds import KINDS, compare
from tests.spark.streams import Bench

SEED = seed_of_run("EVENFLOW_DEDUP_SEED")


@pytest.mark.parametrize("kind", KINDS)
def test_it_passes_what_spark_passes(bench: Bench, kind: str) -> None:
    compare(bench, kind, SEED, epochs=5)


def test_rows_pass_with_their_columns_in_their_order(bench: Bench) -> None:
    stateful = ef.keyed(bench.stream(), "BIDDER", F.col("auction")).dedup()
    assert stateful.operator.output_schema(stateful.schema, stateful.keys).names == [
        "auction",
        "BIDDER",
        "price",
        "ratio",
    ]


def test_what_is_wrong_is_said_when_it_is_written(bench: Bench) -> None:
    stream = bench.stream().withColumn("at", F.current_timestamp())
    with pytest.raises(InputError, match=r"dedup: 'at' has no watermark.* withWatermark\('at', '1 hour'\)"):
        ef.keyed(stream, "auction").dedup(within="1 hour", on="at")
    marked = ef.keyed(stream.withWatermark("at", "1 minute"), "auction")
    wrongs: tuple[Any, ...] = ("soon", "0 seconds", "1 month", 5)
    for wrong in wrongs:
        with pytest.raises(InputError, match="dedup: within is a span of time such as '10 minutes'"):
            marked.dedup(within=wrong)
    with pytest.raises(InputError, match="complete mode needs aggregates, and dedup keeps no rows"):
        marked.dedup(within="1 minute").writeStream.outputMode("complete")
