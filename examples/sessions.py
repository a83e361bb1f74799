"""Sessions: a user's clicks belong together until nothing comes for half an hour; state is a class of our own."""

import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

import evenflow as ef

GAP = timedelta(minutes=30)


@dataclass
class Session:
    start: pd.Timestamp
    end: pd.Timestamp
    clicks: int = 0


class Sessions(ef.SlotOperator):
    output = "user string, start timestamp, minutes long, clicks long"
    frame = "pandas"

    def init(self):
        return {}  # user -> the session that is open

    def process(self, state, rows):
        ended = []
        for click in rows.sort_values("at").itertuples():
            session = state.get(click.user)
            if session is not None and click.at - session.end > GAP:
                minutes = (session.end - session.start) // timedelta(minutes=1)
                ended.append((click.user, session.start, minutes, session.clicks))
                session = None
            if session is None:
                session = state[click.user] = Session(click.at, click.at)
            session.end, session.clicks = max(session.end, click.at), session.clicks + 1
        return state, pd.DataFrame(ended, columns=["user", "start", "minutes", "clicks"])


spark = SparkSession.builder.master("local[3]").getOrCreate()
folder = Path(tempfile.mkdtemp())
nine = datetime(2026, 1, 1, 9)
clicks = [("ann", 0), ("bob", 5), ("ann", 10), ("ann", 25), ("bob", 50), ("ann", 90)]
rows = [(user, nine + timedelta(minutes=minute)) for user, minute in clicks]
spark.createDataFrame(rows, "user string, at timestamp").write.parquet(f"{folder}/clicks")

stream = spark.readStream.schema("user string, at timestamp").parquet(f"{folder}/clicks")
sessions = ef.keyed(stream, "user").apply(Sessions()).balance(lanes=2)
writer = sessions.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
query = writer.format("parquet").start(f"{folder}/sessions")
query.awaitTermination()
spark.read.parquet(f"{folder}/sessions").orderBy("user").show()
