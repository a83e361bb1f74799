"""Top-k: the two highest bids of each auction, put out again whenever they change."""

import tempfile
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

import evenflow as ef


class TopBids(ef.SlotOperator):
    output = "auction long, rank int, bidder string, price long"
    frame = "pandas"

    def __init__(self, k):
        self.k = k

    def init(self):
        return {}  # auction -> its best bids

    def process(self, state, rows):
        changed = []
        for auction, bids in rows.groupby("auction"):
            known = state.get(auction, bids.iloc[:0])
            best = pd.concat([known, bids]).nlargest(self.k, "price")
            best = best.reset_index(drop=True)
            if not best.equals(known):
                state[auction] = best
                changed.append(best.assign(rank=best.index + 1))
        return state, pd.concat(changed) if changed else None


spark = SparkSession.builder.master("local[3]").getOrCreate()
folder = Path(tempfile.mkdtemp())
bids = [(1, "ann", 10), (1, "bob", 30), (2, "cid", 5), (1, "dan", 20), (2, "eve", 7), (2, "ann", 6)]
spark.createDataFrame(bids, "auction long, bidder string, price long").write.parquet(f"{folder}/bids")

stream = spark.readStream.schema("auction long, bidder string, price long").parquet(f"{folder}/bids")
top = ef.keyed(stream, "auction").apply(TopBids(k=2)).balance(lanes=2)
writer = top.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
query = writer.format("parquet").start(f"{folder}/top")
query.awaitTermination()
spark.read.parquet(f"{folder}/top").orderBy("auction", "rank").show()
