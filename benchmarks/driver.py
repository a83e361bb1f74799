"""What the driver costs per epoch: `python -m benchmarks.driver [--lanes 100 --slots 10000] [--json FILE]`.

The engine, the balancer and the checkpoint are the real ones; lanes, source, sink and store are played in the same
process (`benchmarks.played`) and their own time is taken off. CPU seconds, so other load on the machine hardly counts.
`--memory` tells what the driver keeps after 2,000 epochs and after 20,000; `--profile` what takes its time.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import resource
import time
import tracemalloc
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.played import CountedStorage, PlayedLanes, PlayedSource, PlayedTime
from evenflow import operators
from evenflow.control import Balancer, BalancerOptions
from evenflow.control.journal import Journal
from evenflow.engine import Engine
from evenflow.lane import LaneConfig, chained
from evenflow.migration import strategy_named
from evenflow.model import Contents, Move
from evenflow.policies import policy_named, starting_table
from evenflow.spark.progress import Progress
from evenflow.spark.shell import Shell
from evenflow.state import Checkpoint, Identity, StageIdentity, files

SIZES = ((16, 256, 2000), (100, 10_000, 2000))
POINTS = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
WINDOW = 50  # epochs over which a figure is taken
MOVE_EVERY = 20  # epochs; then one slot in a hundred moves


@dataclass(frozen=True)
class Figure:
    """What an epoch cost, on the average of the epochs before it."""

    lanes: int
    slots: int
    epoch: int
    driver_cpu_ms: float
    requests: dict[str, float]
    written_kb: float
    files: int
    memory_mb: float


@dataclass
class NoSink:
    """Takes nothing."""

    def publish(self, epoch: int, outputs: object) -> None:
        """Leave them where they are."""


@dataclass
class Stage:
    """A query on played lanes."""

    lanes: int
    slots: int
    policy: str = "static"
    active: float = 1.0
    played: PlayedTime = field(default_factory=PlayedTime)
    storage: CountedStorage = field(default_factory=CountedStorage)
    shell: Shell = field(init=False)
    epoch: int = 0

    def __post_init__(self) -> None:
        """Build the query and start its lanes."""
        identity = Identity("id", (StageIdentity(("key",), ("int64",), self.slots, Contents("played")),), "update", 0.0)
        with mock.patch.object(files, "storage_at", return_value=self.storage):
            checkpoint = Checkpoint.open("memory", identity)
        checkpoint.take_over()
        policy = policy_named(self.policy)
        table = starting_table(policy, self.slots, range(self.lanes))
        balancer = Balancer(table, policy, strategy_named("sudden"), BalancerOptions(), Journal.of_query())
        links = cast("Any", PlayedLanes(self.played))
        operator = cast("Any", None)
        self.shell = Shell(
            spark=cast("Any", None),
            checkpoint=checkpoint,
            balancer=balancer,
            links=links,
            engine=Engine(checkpoint, balancer),
            router=cast("Any", PlayedSource(self.played, np.random.default_rng(1), self.active)),
            sink=cast("Any", NoSink()),
            progress=Progress("id", None),
            config=LaneConfig(0, "memory", chained([operators.Stage(operator, pa.schema([]), ("key",))], self.slots)),
        )
        self.shell.start()
        self.shell.start_publishing()

    def run(self, epochs: int) -> None:
        """Have so many epochs accepted and published."""
        for _ in range(epochs):
            if self.epoch % MOVE_EVERY == MOVE_EVERY - 1 and self.lanes > 1:
                self._move()
            self.shell.on_batch(cast("Any", None), self.epoch)
            self.epoch += 1
        self.shell.drain()

    def _move(self) -> None:
        table, rng = self.shell.balancer.table, np.random.default_rng(self.epoch)
        chosen = rng.choice(self.slots, max(1, self.slots // 100), replace=False).tolist()
        self.shell.request(
            [Move(slot, int(table.owners[slot]), (int(table.owners[slot]) + 1) % self.lanes) for slot in chosen]
        )

    def cpu_s(self) -> float:
        """Return the CPU time of the driver's part so far."""
        return time.process_time() - self.played.own_s


def measured(stage: Stage, points: list[int]) -> list[Figure]:
    """Run up to each point and return what the epochs just before it cost."""
    figures = []
    for point in points:
        window = min(WINDOW, point - stage.epoch)
        stage.run(point - stage.epoch - window)
        before, began, written = Counter(stage.storage.requests), stage.cpu_s(), stage.storage.written_bytes
        stage.run(window)
        spent_s = stage.cpu_s() - began
        asked = {name: count / window for name, count in (stage.storage.requests - before).items()}
        figure = Figure(
            stage.lanes,
            stage.slots,
            point,
            1e3 * spent_s / window,
            asked,
            (stage.storage.written_bytes - written) / window / 1e3,
            len(stage.storage.files),
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        )
        figures.append(figure)
        print(_line(figure), flush=True)
    return figures


def _line(figure: Figure) -> str:
    asked = " ".join(f"{name} {count:.1f}" for name, count in sorted(figure.requests.items()))
    return (
        f"{figure.lanes:>6} {figure.slots:>8} {figure.epoch:>7} {figure.driver_cpu_ms:>10.2f} "
        f"{figure.written_kb:>11.1f} {figure.files:>7} {figure.memory_mb:>8.0f}   {asked}"
    )


def kept_memory(stage: Stage, points: list[int]) -> dict[int, int]:
    """Return the bytes that the driver's objects take at each point."""
    tracemalloc.start()
    kept = {}
    for point in points:
        stage.run(point - stage.epoch)
        gc.collect()
        # What the played store keeps would lie on a disk.
        kept[point] = tracemalloc.get_traced_memory()[0] - sum(map(len, stage.storage.files.values()))
        print(f"after {point:>6} epochs: {kept[point] / 1e6:8.2f} MB", flush=True)
    tracemalloc.stop()
    return kept


def main() -> None:
    """Measure, print, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lanes", type=int)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--active", type=float, default=1.0, help="share of slots with rows in an epoch")
    parser.add_argument(
        "--policy", default="static", help="what a policy takes to decide is its own; see benchmarks.policies"
    )
    parser.add_argument("--memory", action="store_true", help="what is kept after so many epochs, and ten times that")
    parser.add_argument("--profile", action="store_true", help="print what takes the time, by function")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    sizes = [(options.lanes or 16, options.slots or 256, options.epochs)]
    if options.lanes is None and not options.memory:
        sizes = list(SIZES)
    profile = cProfile.Profile() if options.profile else None
    found: list[dict[str, Any]] = []
    if not options.memory:
        print("lanes    slots    epoch  driver ms  written KB   files  peak MB   requests per epoch")
    for lanes, slots, epochs in sizes:
        stage = Stage(lanes, slots, options.policy, options.active)
        if profile is not None:
            _profile(stage, profile)
        if options.memory:
            kept = kept_memory(stage, [options.epochs, 10 * options.epochs])
            found.append({"lanes": lanes, "slots": slots, "kept_bytes": kept})
        else:
            points = sorted({*(point for point in POINTS if point < epochs), epochs})
            found += [asdict(figure) for figure in measured(stage, points)]
        stage.shell.stop()
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def _profile(stage: Stage, profile: cProfile.Profile) -> None:
    """Watch what the loop does: most of the driver's work is there."""
    handle = stage.shell._handle  # noqa: SLF001 - to see what takes the time
    stage.shell._handle = lambda events: profile.runcall(handle, events)  # type: ignore[method-assign]  # noqa: SLF001


if __name__ == "__main__":
    main()
