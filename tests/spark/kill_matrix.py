"""Every kind of move, killed into at every phase: the source, the target, the driver. All of it, or a selection.

    python -m tests.spark.kill_matrix                       all kills there are
    python -m tests.spark.kill_matrix --seed 7              a selection: what the tests take with EVENFLOW_KILLS=7
    python -m tests.spark.kill_matrix --only "at once"      those whose name holds a text

In each case two epochs are accepted that no lane may fold yet, the second of which begins a move of half of a lane's
slots: so that "at once" has a backlog to take along and "at the timestamp" one to wait for. Then somebody dies. What
is held afterwards, all that was published, and the order in which each key was counted are compared with a run without
any death; a kill that did not happen is a failure.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, get_args

import pyarrow.parquet as pq

import evenflow as ef
from evenflow.control.journal import LanesChanged, StateMoved
from tests.spark.driver_under_fault import session
from tests.spark.drivers import kill_chain
from tests.spark.killing import COPYING, KINDS, SPEAKERS, Kill, Kind, Trap, Victim, shells_with
from tests.spark.streams import (
    Bench,
    Expected,
    one_bid_per_key,
    pids_of,
    read_published,
    rows_of,
    state_of,
    totals,
    until,
)

LANES, SLOTS = 2, 16
Tell: TypeAlias = Callable[[str], None]
BACKLOG = 2  # epochs: the one that waits, and the one that the move begins with


def all_kills() -> list[Kill]:
    """Return all cases; whoever has something to say dies both before and after it is heard."""
    kills = []
    for kind in KINDS:
        for phase in kind.phases:
            kills += [Kill(kind, phase, victim) for victim in get_args(Victim)]
            kills += [Kill(kind, phase, SPEAKERS[phase], unsaid=True)] if phase in SPEAKERS else []
    return kills


def of_lanes(kills: Iterable[Kill]) -> list[Kill]:
    return [kill for kill in kills if kill.victim != "driver"]


def of_drivers(kills: Iterable[Kill]) -> list[Kill]:
    return [kill for kill in kills if kill.victim == "driver"]


def selection(seed: int) -> list[Kill]:
    """Return one kill of a lane for each phase of each kind, and one of the driver for each kind."""
    rng, kills = random.Random(seed), all_kills()
    phases = {kill: (kill.kind, kill.phase) for kill in of_lanes(kills)}
    lanes = [rng.choice([kill for kill in phases if phases[kill] == one]) for one in dict.fromkeys(phases.values())]
    return lanes + [rng.choice([kill for kill in of_drivers(kills) if kill.kind == kind]) for kind in KINDS]


# --- one query ---------------------------------------------------------------------------------------------------


@dataclass
class Disturbed:
    """A query whose moves are disturbed, one after the other."""

    bench: Bench
    kind: Kind
    trap: Trap = field(default_factory=Trap)
    backlogs: set[int] = field(default_factory=set)  # epochs that a slot had not been taken through when it left

    def __post_init__(self) -> None:
        stateful = totals(self.bench.stream()).balance(
            lanes=LANES,
            slots=SLOTS,
            policy="static",
            strategy="sudden",
            settle_windows=0,
            max_lag=2 * BACKLOG,
            **self.kind.options,
        )
        with shells_with(self.trap):
            self.query: ef.Query = self.bench.start(stateful)
        self._go_on()

    def disturb(self, kill: Kill) -> None:
        """Have slots moved and somebody killed meanwhile; return when all is as before."""
        owners = self.query._shell.balancer.table.owners.tolist()
        source = max(range(LANES), key=owners.count)
        target = 1 - source
        mine = [slot for slot, lane in enumerate(owners) if lane == source]
        slots = mine[: SLOTS // 2]
        self.trap.set_for(kill, source, target, frozenset(slots), BACKLOG)
        self.query.rebalance([(slot, target) for slot in slots], not_before=self.bench.fed + BACKLOG - 1)
        if kill.kind.copied:
            assert self.trap.passed.wait(60), f"{kill}: nothing was copied"
        for _ in range(BACKLOG):
            self.bench.feed(one_bid_per_key(self.bench.fed))
        self.query.processAllAvailable()
        assert self.trap.killed is not None, f"{kill}: did not happen, only {self.trap.reached}"
        self.backlogs |= {self.trap.epoch - 1 - version for version in self.trap.left_at.values()}
        until(self._all_is_well, f"{kill}: the lane comes back")
        self.check_state(str(kill))

    def _go_on(self) -> None:
        self.bench.feed(one_bid_per_key(self.bench.fed))
        self.query.processAllAvailable()

    def _all_is_well(self) -> bool:
        pids, shell = pids_of(self.query), self.query._shell
        with shell._lock:
            quiet = not shell.engine.missing() and not shell.balancer.in_flight
        return quiet and len(pids) == LANES and self.trap.killed not in pids.values()

    def check_state(self, after: str) -> None:
        expected = Expected([one_bid_per_key(epoch) for epoch in range(self.bench.fed)])
        assert state_of(self.query) == collections.Counter(expected.state.values()), after

    def check(self, kills: Sequence[Kill]) -> None:
        """Compare all there is with a run in which nobody died."""
        check_published(self.bench.out, self.bench.fed)
        journal = self.query.journal()
        assert sum(bool(entry.lost) for entry in journal.of(LanesChanged)) == len(kills)
        moved = journal.of(StateMoved)
        assert any(entry.ahead for entry in moved) == self.kind.copied
        if any(kill.phase not in (*COPYING, "announced", "releasing") for kill in kills):
            assert self.backlogs == {1 if self.kind.handover == "at once" else 0}


def check_published(out: Path, epochs: int) -> None:
    """Check that each epoch published each key once, with the count of that epoch, and all else as it should be."""
    expected = Expected([one_bid_per_key(epoch) for epoch in range(epochs)])
    assert read_published(out) == expected.published
    for epoch in range(epochs):
        files = [pq.read_table(file) for file in out.glob(f"part-epoch{epoch:010d}-*.parquet")]
        counts = collections.Counter((row["auction"], row["n"]) for file in files for row in file.to_pylist())
        assert counts == {(key, epoch + 1): 1 for key in range(one_bid_per_key(0).num_rows)}, f"epoch {epoch}"


# --- all of them -------------------------------------------------------------------------------------------------


def kill_lanes(bench: Bench, kills: Sequence[Kill], tell: Tell = lambda _line: None) -> None:
    """Disturb one query, all of one kind; tell how long each took."""
    (kind,) = {kill.kind for kill in kills}
    life = Disturbed(bench, kind)
    for kill in kills:
        began = time.monotonic()
        life.disturb(kill)
        tell(f"{time.monotonic() - began:5.1f} s  {kill}")
    life.check(kills)
    life.query.stop()


def kill_drivers(place: Path, kills: Sequence[Kill]) -> None:
    """Kill one driver after the other, each started on the checkpoint of the last; then all is as it should be."""
    place.mkdir(parents=True, exist_ok=True)
    epochs = kill_chain(place, [kill.mark for kill in kills])
    check_published(place / "out", epochs)
    expected = Expected([one_bid_per_key(epoch) for epoch in range(epochs)])
    assert rows_of(pq.read_table(place / "state.parquet")) == collections.Counter(expected.state.values())


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 in every phase of every kind of move")
    parser.add_argument("--seed", type=int, help="only what the tests choose with this seed")
    parser.add_argument("--only", default="", help="only those whose name holds this text")
    options = parser.parse_args()
    chosen_from = all_kills() if options.seed is None else selection(options.seed)
    kills = [kill for kill in chosen_from if options.only in str(kill)]
    os.environ["PYSPARK_PYTHON"] = sys.executable

    def tell(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        _kill_all_lanes(Path(root), of_lanes(kills), tell)
        _kill_all_drivers(Path(root), of_drivers(kills), tell)
    tell(f"{len(kills)} kills, all as if nobody had died")


def _kill_all_lanes(root: Path, kills: Sequence[Kill], tell: Tell) -> None:
    if not kills:
        return
    spark = session(root, "local[4]")
    for kind, chosen in _by_kind(kills).items():
        place = root / f"lanes {_folder(kind)}"
        place.mkdir()
        kill_lanes(Bench(spark, place), chosen, tell)
    spark.stop()


def _kill_all_drivers(root: Path, kills: Sequence[Kill], tell: Tell) -> None:
    def run(kind: Kind, chosen: Sequence[Kill]) -> None:
        began = time.monotonic()
        kill_drivers(root / f"drivers {_folder(kind)}", chosen)
        each = (time.monotonic() - began) / (len(chosen) + 1)
        tell("\n".join(f"{each:5.1f} s  {kill}" for kill in chosen))

    with ThreadPoolExecutor(2) as pool:  # two drivers at a time
        runs = [pool.submit(run, kind, chosen) for kind, chosen in _by_kind(kills).items()]
    for each in runs:
        each.result()


def _folder(kind: Kind) -> str:
    """Return a name for a folder: what has a comma is two folders to `spark.local.dir`."""
    return str(kind).replace(",", "")


def _by_kind(kills: Sequence[Kill]) -> dict[Kind, list[Kill]]:
    return {kind: chosen for kind in KINDS if (chosen := [kill for kill in kills if kill.kind == kind])}


if __name__ == "__main__":
    main()
