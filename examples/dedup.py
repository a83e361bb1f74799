"""Dedup: each event once, though the source sends some twice; ids are forgotten after an hour of event time."""

import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

import evenflow as ef


class FirstOfEach(ef.SlotOperator):
    output = "id string, at timestamp, amount long"
    frame = "pandas"

    def __init__(self, within):
        self.within = within

    def init(self):
        return {}  # id -> when it was seen first

    def process(self, state, rows):
        fresh = rows.drop_duplicates("id")
        fresh = fresh[~fresh["id"].isin(state.keys())]
        state.update(zip(fresh["id"], fresh["at"], strict=True))
        oldest = max(state.values()) - self.within
        return {id_: at for id_, at in state.items() if at >= oldest}, fresh


spark = SparkSession.builder.master("local[3]").getOrCreate()
folder = Path(tempfile.mkdtemp())
noon = datetime(2026, 1, 1, 12)
events = [("a", noon, 1), ("b", noon, 2), ("a", noon, 1), ("c", noon + timedelta(minutes=5), 3)]
for number, part in enumerate([events, events[:2]]):  # the second file repeats two of them
    frame = spark.createDataFrame(part, "id string, at timestamp, amount long")
    frame.coalesce(1).write.parquet(f"{folder}/events/{number}")

stream = spark.readStream.schema("id string, at timestamp, amount long").parquet(f"{folder}/events/*")
once = ef.keyed(stream, "id").apply(FirstOfEach(within=timedelta(hours=1))).balance(lanes=2)
writer = once.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
query = writer.format("parquet").start(f"{folder}/once")
query.awaitTermination()
spark.read.parquet(f"{folder}/once").select("id", "amount").orderBy("id").show()
