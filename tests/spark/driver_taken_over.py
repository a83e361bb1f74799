"""A driver that runs until another one takes its checkpoint over, and then writes down what it was told.

Usage: ``python -m tests.spark.driver_taken_over PLACE NOTE``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from evenflow.errors import TakenOverError
from tests.spark.driver_under_fault import session, writer


def main(place: Path, note: Path) -> None:
    spark = session(place, "local[3]")
    query = writer(spark, place, 2, "direct").start(str(place / "out"))
    try:
        query.awaitTermination()
    except TakenOverError as error:
        jobs = spark.sparkContext.statusTracker().getActiveJobsIds()
        note.write_text(f"{error} Jobs of lanes that still run: {len(jobs)}")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
