"""A driver that dies in a move: takes the first kill of a list that has not happened yet, and has it happen to itself.

Usage: ``python -m tests.spark.driver_of_moves PLACE MARK...``. A kill that has happened has left a
file of the name of its mark in PLACE/deaths. When all have, it writes down the state and ends by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq

from tests.spark.driver_under_fault import session
from tests.spark.kill_matrix import Disturbed, all_kills
from tests.spark.killing import Kill, Trap
from tests.spark.streams import Bench


def main(place: Path, marks: list[str]) -> None:
    known = {kill.mark: kill for kill in all_kills()}
    deaths = place / "deaths"
    left = [known[mark] for mark in marks if not (deaths / mark).exists()]
    bench = Bench(session(place, "local[3]"), place, fed=len(list((place / "in").glob("*.parquet"))))

    def leave_mark(kill: Kill) -> None:
        (deaths / kill.mark).touch(exist_ok=False)

    life = Disturbed(bench, (left or [known[marks[-1]]])[0].kind, Trap(leave_mark))
    life.check_state("after a restart")
    if left:
        life.disturb(left[0])
        raise SystemExit(f"{left[0]}: the driver lives")
    pq.write_table(life.query.state().toArrow(), place / "state.parquet")
    life.query.stop()
    bench.spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
