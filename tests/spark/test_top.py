"""top(...) on Spark: what is kept in the end is what Spark's row_number has first in a batch of all rows."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import evenflow as ef
from evenflow.errors import InputError
from tests.operators.rows_oracle import DDL, plain, random_rows, table_of
from tests.seeds import seed_of_run
from tests.spark.streams import Bench, Wanderlust

SEED = seed_of_run("EVENFLOW_TOP_SEED")


@pytest.mark.parametrize("ascending", [False, True])
def test_it_keeps_what_spark_s_row_number_has_first(bench: Bench, *, ascending: bool) -> None:
    bench.feed(*(table_of(rows) for rows in random_rows(random.Random(SEED), epochs=5) if rows))
    folder = str(bench.place / "in")
    stream = bench.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(folder)
    best = ef.keyed(stream, "key").top(2, by="price", ascending=ascending)
    query = bench.run(best.balance(lanes=2, slots=8, policy=Wanderlust(SEED), window_epochs=1))
    price = F.asc("price") if ascending else F.desc("price")
    order = Window.partitionBy("key").orderBy(price, "name", "at")
    batch = bench.spark.read.schema(DDL).parquet(folder).withColumn("rank", F.row_number().over(order))
    expected = sorted(plain(batch.where("rank <= 2").toArrow()), key=repr)
    assert sorted(plain(query.state().toArrow()), key=repr) == expected
    written = plain(bench.spark.read.parquet(str(bench.out)).toArrow())
    assert set(expected) <= set(written)


def test_what_is_wrong_is_said_when_it_is_written(bench: Bench) -> None:
    keyed = ef.keyed(bench.stream(), "auction")
    with pytest.raises(InputError, match="top: say how many rows of each key, 1 or more, got 0"):
        keyed.top(0, by="price")
    with pytest.raises(InputError, match=r"top: there is no column 'prise'.* Did you mean 'price'"):
        keyed.top(1, by="prise")
    with pytest.raises(InputError, match="top: each column of by once"):
        keyed.top(1, by=["price", "PRICE"])
    with pytest.raises(InputError, match="top: ascending is True or False, or a list"):
        keyed.top(1, by=["price", "ratio"], ascending=[True])
    with pytest.raises(InputError, match="top: 'auction' is a key"):
        keyed.top(1, by="auction")
    with pytest.raises(InputError, match="better rows may still come"):
        keyed.top(1, by="price").writeStream.outputMode("append")
