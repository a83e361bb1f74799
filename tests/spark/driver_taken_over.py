"""A driver that runs until another one takes its checkpoint over; when its lanes have ended, it notes what it was told.

Usage: ``python -m tests.spark.driver_taken_over PLACE NOTE``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from evenflow.errors import TakenOverError
from tests.spark.driver_under_fault import session, writer
from tests.spark.streams import until


def main(place: Path, note: Path) -> None:
    spark = session(place, "local[3]")
    query = writer(spark, place, 2, "direct").start(str(place / "out"))
    try:
        query.awaitTermination()
    except TakenOverError as error:
        tracker = spark.sparkContext.statusTracker()
        until(lambda: not tracker.getActiveJobsIds(), "all lanes end")
        note.write_text(str(error))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
