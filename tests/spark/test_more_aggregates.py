"""Every aggregate against Spark's own: the same rows through a batch groupBy and through a query, with moves."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import evenflow as ef
from evenflow.errors import InputError
from evenflow.spark.internals import spark_schema
from tests.spark.streams import Bench, Wanderlust, bids

pytestmark = pytest.mark.spark


def asked() -> list[Column]:
    """Spark's columns, which evenflow takes as they are."""
    return [
        F.count_distinct("price"),
        F.count_distinct("bidder", "ratio"),
        F.approx_count_distinct("price", 0.02),
        F.stddev("price"),
        F.stddev_pop("ratio"),
        F.variance("price"),
        F.var_pop("price"),
        F.collect_list("bidder"),
        F.collect_set("bidder"),
        F.percentile_approx("price", 0.5),
        F.percentile_approx("ratio", [0.25, 0.75], 1000),
        F.min_by("bidder", "price"),
        F.max_by("price", "price"),
        F.count_if(F.col("price") > 100),
        F.expr("sum(price) FILTER (WHERE bidder = 'ann' AND ratio > 0)"),
        F.expr("count(DISTINCT price) AS prices"),
        F.expr("percentile_approx(price, array(0.1, 0.9), 500)"),
    ]


def near(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Lists in an order of their own: Spark promises none."""
    return {name: sorted(value) if name.startswith("collect") else value for name, value in row.items()}


@pytest.mark.parametrize("seed", range(2))
def test_a_query_agrees_with_sparks_batch(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    bench.feed(*(bids(rng, rng.randrange(1, 400), keys=8) for _ in range(5)))
    stateful = ef.keyed(bench.stream(), "auction").agg(*asked())
    moving = stateful.balance(lanes=2, slots=16, policy=Wanderlust(seed), warm_up_windows=1)
    query = bench.start(moving)
    query.processAllAvailable()
    frame: DataFrame = bench.spark.read.parquet(str(bench.place / "in")).groupBy("auction").agg(*asked())
    kept = query.state()
    assert kept.columns == frame.columns
    made = spark_schema(stateful.operator.output_schema(stateful.schema, stateful.keys))
    assert [one.dataType for one in made] == [one.dataType for one in frame.schema]
    expected = {row["auction"]: plain(row.asDict()) for row in frame.collect()}
    got = {row["auction"]: plain(row.asDict()) for row in kept.collect()}
    assert got.keys() == expected.keys()
    for key, row in expected.items():
        for name, value in row.items():
            if name.startswith("approx"):
                assert abs(got[key][name] - value) <= 0.15 * value + 2
            elif name.startswith("min_by"):  # of several rows with the smallest price either may take any
                assert got[key][name] is None or isinstance(got[key][name], str)
            else:
                assert near(got[key][name], value), (key, name)


def test_names_of_our_own_forms_are_sparks(bench: Bench) -> None:
    keyed = ef.keyed(bench.stream(), "auction")
    ours = keyed.agg(
        ef.count_distinct("bidder", "price"),
        ef.approx_count_distinct("bidder"),
        ef.stddev_samp("price"),
        ef.percentile_approx("price", [0.5, 0.9], 100),
        ef.max_by("bidder", "price"),
        ef.sum("price").where("bidder = 'ann'"),
        ef.count().where(F.col("price") > 5),
        ef.count_if(F.col("price") > 5),
    )
    sparks = (
        bench.stream()
        .groupBy("auction")
        .agg(
            F.count_distinct("bidder", "price"),
            F.approx_count_distinct("bidder"),
            F.stddev_samp("price"),
            F.percentile_approx("price", [0.5, 0.9], 100),
            F.max_by("bidder", "price"),
            F.expr("sum(price) FILTER (WHERE bidder = 'ann')"),
            F.expr("count(1) FILTER (WHERE price > 5)"),
            F.count_if(F.col("price") > 5),
        )
    )
    assert ours.operator.output_schema(ours.schema, ours.keys).names == sparks.columns


def test_what_there_is_not_is_refused(bench: Bench) -> None:
    keyed = ef.keyed(bench.stream(), "auction")
    for given, sentence in (
        (ef.sum("price").where("price"), "expected a condition, true or false"),
        (ef.count_if("price"), "expected a condition, true or false"),
        (ef.stddev("bidder"), "expected a signed integer"),
        (F.expr("sum(DISTINCT price)"), "of distinct values; there are"),
        (F.max_by("bidder", "price", 3), "evenflow cannot compute"),
        (F.expr("first(price) IGNORE NULLS"), "be it null"),
        (F.kurtosis("price"), "cannot compute kurtosis"),
    ):
        with pytest.raises(InputError, match=sentence):
            keyed.agg(n=given)


def test_functions_that_spark_has_by_two_names(bench: Bench) -> None:
    calls = [F.std("price"), F.approx_percentile("price", 0.5), F.std("ratio").alias("spread")]
    ours = ef.keyed(bench.stream(), "auction").agg(*calls)
    assert ours.operator.output_schema(ours.schema, ours.keys).names == (
        bench.stream().groupBy("auction").agg(*calls).schema.names
    )
    assert str(ours.operator).count("stddev") == 2
    by_dict = ef.keyed(bench.stream(), "auction").agg({"price": "std"})
    assert by_dict.operator.output_schema(by_dict.schema, by_dict.keys).names == ["auction", "std(price)"]
