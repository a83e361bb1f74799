"""A driver with task slots for six lanes: 2, then 6, then 3 of them under load; writes down what it saw.

Usage: ``python -m tests.spark.driver_elastic PLACE``. A line of the file ``lanes`` is an epoch: how many owned slots.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq

from tests.spark.driver_under_fault import session
from tests.spark.streams import Bench, one_bid_per_key, totals, until


def main(place: Path) -> None:
    bench = Bench(session(place, "local[7]"), place)
    # 18 slots: 9 per lane, then 3, then 6. A step of a plan takes an epoch, and there are several steps each way.
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=18, policy="static", strategy="batched"))
    seen: list[int] = []

    def lanes_are(count: int) -> bool:
        """Feed one more epoch, since slots move with epochs, and look."""
        bench.feed(one_bid_per_key(bench.fed))
        query.processAllAvailable()
        table = query._shell.balancer.table
        seen.append(len(set(table.owners.tolist())))
        return len(table.lanes) == seen[-1] == count

    assert lanes_are(2)
    for count in (6, 3):
        query.resize(count)
        until(lambda: lanes_are(count), f"there are {count} lanes", 100)  # noqa: B023 - called at once
    pq.write_table(query.state().toArrow(), place / "state.parquet")
    (place / "lanes").write_text("\n".join(map(str, seen)))
    query.stop()
    bench.spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
