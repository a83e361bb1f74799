"""Upsert: running totals kept in a database table by `foreachBatch`, each epoch once."""

import sqlite3
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import evenflow as ef

folder = Path(tempfile.mkdtemp())
DATABASE = folder / "totals.db"
with sqlite3.connect(DATABASE) as database:
    database.execute("CREATE TABLE totals (auction INTEGER PRIMARY KEY, total INTEGER, bids INTEGER)")
    database.execute("CREATE TABLE done (epoch INTEGER)")


def upsert(rows, epoch):
    """Write one epoch. After a crash the newest may come again: its number, kept in the same transaction, tells."""
    with sqlite3.connect(DATABASE) as database:
        if database.execute("SELECT 1 FROM done WHERE epoch >= ?", [epoch]).fetchone():
            return
        changed = [(row.auction, row.total, row.bids) for row in rows.collect()]
        database.executemany("INSERT OR REPLACE INTO totals VALUES (?, ?, ?)", changed)
        database.execute("INSERT INTO done VALUES (?)", [epoch])


spark = SparkSession.builder.master("local[3]").getOrCreate()
spark.range(1000).selectExpr("id % 3 AS auction", "id AS price").write.parquet(f"{folder}/bids")
stream = spark.readStream.schema("auction long, price long").parquet(f"{folder}/bids")
totals = ef.keyed(stream, "auction").agg(total=ef.sum("price"), bids=ef.count()).balance(lanes=2)
writer = totals.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
query = writer.foreachBatch(upsert).start()
query.awaitTermination()
with sqlite3.connect(DATABASE) as database:
    for row in database.execute("SELECT * FROM totals ORDER BY auction"):
        print(row)
