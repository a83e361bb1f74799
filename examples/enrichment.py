"""Enrichment: each order gets its customer's city, as a second stream told it last."""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import evenflow as ef


class WithCity(ef.SlotOperator):
    output = "customer string, amount long, city string"
    frame = "pandas"

    def init(self):
        return {}  # customer -> city

    def process(self, state, rows):
        moved = rows[rows["city"].notna()]
        state.update(zip(moved["customer"], moved["city"], strict=True))
        orders = rows[rows["amount"].notna()]
        return state, orders.assign(city=orders["customer"].map(state))


spark = SparkSession.builder.master("local[3]").getOrCreate()
folder = Path(tempfile.mkdtemp())
homes = [("ann", "Oslo"), ("bob", "Rome")]
spark.createDataFrame(homes, "customer string, city string").write.parquet(f"{folder}/customers")
bought = [("ann", 10), ("bob", 20), ("ann", 30), ("cid", 40)]
spark.createDataFrame(bought, "customer string, amount long").write.parquet(f"{folder}/orders")

customers = spark.readStream.schema("customer string, city string").parquet(f"{folder}/customers")
orders = spark.readStream.schema("customer string, amount long").parquet(f"{folder}/orders")
both = orders.unionByName(customers, allowMissingColumns=True)  # city is null in orders, amount in customers
enriched = ef.keyed(both, "customer").apply(WithCity()).balance(lanes=2)
writer = enriched.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
query = writer.format("parquet").start(f"{folder}/enriched")
query.awaitTermination()
spark.read.parquet(f"{folder}/enriched").orderBy("customer", "amount").show()
