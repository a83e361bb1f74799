"""What lanes that advance on their own win: lag, the closed loop, lanes that come and go, a lane that turns slow."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

import evenflow as ef
from benchmarks.burning import Burning, turns_for
from benchmarks.figures import Curve, Figure, Part
from benchmarks.stage import Course, Ints, Setting, counts, reached, slots_of, wait_for
from evenflow.control.journal import Decided
from evenflow.model import LoadView, Move
from evenflow.policies import Policy, Proposal, policy_named
from evenflow.spark import Query

LANES, SLOTS, KEYS, ROWS, SEED = 4, 64, 20_000, 8_000, 1


@dataclass
class Load:
    """Epochs of rows whose keys lie in the slots of chosen lanes."""

    slot_of_key: Ints
    lanes: int = LANES
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))

    def epoch(self, hot: int | None, share: float, rows: int = ROWS) -> Ints:
        """Return the keys of one epoch, of which `share` fall into the slots of lane `hot`; None for uniform ones."""
        weights = np.ones(self.slot_of_key.size)
        if hot is not None:
            inside = ef.RoutingTable.even(SLOTS, self.lanes).owners[self.slot_of_key] == hot
            weights = np.where(inside, share / inside.sum(), (1 - share) / (~inside).sum())
        return self.rng.choice(weights.size, rows, p=weights / weights.sum())

    def rows(self, epochs: list[Ints]) -> Ints:
        """Return the rows by epoch and slot."""
        return counts(SLOTS, epochs, lambda keys: self.slot_of_key[keys])


def _load(setting: Setting, lanes: int = LANES) -> Load:
    return Load(slots_of(setting.spark, np.arange(KEYS), SLOTS), lanes)


def _run(setting: Setting, name: str, epochs: list[Ints], **options: Any) -> tuple[Query, Course]:
    """Carry out all epochs; they are there from the start, so lanes or the driver set the pace."""
    feed = setting.feed(name)
    for keys in epochs:
        feed.give(keys)
    query = setting.start(feed, slots=SLOTS, **options)
    query.awaitTermination()
    return query, Course.of(query, len(epochs), SLOTS)


def lag(setting: Setting) -> Part:
    """Skew that rotates over the lanes: throughput against `max_lag`, relative to a uniform load (FX Fig. 3)."""
    load, number, warm_up = _load(setting), 16 if setting.quick else 32, LANES
    rate = ROWS / LANES / setting.work_s()
    uniform = [load.epoch(None, 0) for _ in range(number)]
    rotating = [load.epoch(epoch % LANES, 0.7) for epoch in range(number)]
    fixed: dict[str, Any] = {"lanes": LANES, "policy": "static", "rows_per_s": rate}
    _, course = _run(setting, "lag-uniform", uniform, max_lag=8, **fixed)
    unloaded = course.steady_rate(load.rows(uniform), warm_up)
    figures = [Figure("uniform rate, of what the lanes could do", unloaded / (rate * LANES))]
    lags = (0, 4, 8) if setting.quick else (0, 1, 2, 4, 8)
    ratios = []
    for max_lag in lags:
        _, course = _run(setting, f"lag-{max_lag}", rotating, max_lag=max_lag, **fixed)
        ratios.append(course.steady_rate(load.rows(rotating), warm_up) / unloaded)
        figures.append(Figure(f"rotating skew, max_lag {max_lag}: rate / uniform rate", ratios[-1]))
    figures.append(Figure("rotating skew with enough lag: rate / uniform rate", max(ratios), least=0.9))
    curve = Curve("max_lag", "rate / uniform rate", {"rotating skew": (list(map(float, lags)), ratios)})
    return Part("lag", figures, [curve])


@dataclass
class Timed:
    """A policy that counts what asking it costs."""

    policy: Policy
    name: ClassVar[str] = "timed"
    paper: ClassVar[str] = "evenflow"
    summary: ClassVar[str] = "counts the time of another policy"
    spent_s: float = 0.0
    asked: int = 0

    def propose(self, view: LoadView) -> Proposal | Iterable[Move]:
        """Ask the other one."""
        began = time.perf_counter()
        answer = self.policy.propose(view)
        self.spent_s += time.perf_counter() - began
        self.asked += 1
        return answer


def loop(setting: Setting) -> Part:
    """80 % of the rows in the slots of one of 4 lanes: what `even` makes of it, and what it costs when all is even."""
    load, number, warm_up = _load(setting), 20 if setting.quick else 40, 4
    rate = ROWS / LANES / setting.work_s()
    uniform = [load.epoch(None, 0) for _ in range(number)]
    skewed = [load.epoch(0, 0.8) for _ in range(number)]
    fixed: dict[str, Any] = {"lanes": LANES, "rows_per_s": rate, "max_lag": 4}
    rows = load.rows(uniform)
    _, course = _run(setting, "loop-static", uniform, policy="static", **fixed)
    static = course.steady_rate(rows, warm_up)
    timed = Timed(policy_named("even"))
    _, course = _run(setting, "loop-even", uniform, policy=timed, **fixed)
    even, took_s = course.steady_rate(rows, warm_up), course.frontier_s(number - 1) - course.frontier_s(0)
    query, course = _run(setting, "loop-skewed", skewed, policy="even", **fixed)
    decided = next((entry.epoch for entry in query.journal().of(Decided) if entry.moves), None)
    figures = [
        Figure("uniform: rate of even / rate of static", even / static, least=0.99),
        Figure("uniform: share of the time spent on asking the policy", timed.spent_s / took_s, most=0.01),
        Figure("skewed: moves made", len(query.moves())),
    ]
    if decided is None:
        figures.append(Figure("skewed: rate / uniform rate from the 3rd window after the decision on", 0.0, least=0.95))
    else:
        rows = load.rows(skewed)
        before = course.rate(rows, course.frontier_s(0), course.frontier_s(max(1, decided)))
        after = course.steady_rate(rows, min(decided + 3, number - 2))
        figures += [
            Figure("skewed: epoch of the first decision", decided),
            Figure("skewed: rate before it / uniform rate", before / static),
            Figure("skewed: rate / uniform rate from the 3rd window after the decision on", after / static, least=0.95),
        ]
    return Part("loop", [*figures, *_steady(setting, load)])


def _steady(setting: Setting, load: Load) -> list[Figure]:
    """Small epochs of a balanced load, many of them: nothing may move."""
    number, rows = (60 if setting.quick else 500), 400
    epochs = [load.epoch(None, 0, rows) for _ in range(number)]
    query, _ = _run(setting, "loop-steady", epochs, lanes=LANES, rows_per_s=rows / LANES / 0.1, policy="even")
    return [Figure(f"steady balanced load, {number} epochs: moves made", len(query.moves()), most=0)]


def elastic(setting: Setting) -> Part:
    """From 2 to 6 to 3 lanes under load: how soon new lanes serve, what it brings, and that nothing is lost."""
    load, few, many, last = _load(setting, 2), 2, 6, 3
    rate = ROWS / many / setting.work_s(1.5)
    phases = (6, 16, 10) if setting.quick else (10, 40, 24)
    epochs = [load.epoch(None, 0) for _ in range(sum(phases))]
    feed = setting.feed("elastic")
    for keys in epochs:
        feed.give(keys)
    query = setting.start(feed, slots=SLOTS, lanes=few, rows_per_s=rate, policy="static", max_lag=4)
    asked = []
    for at, lanes in ((phases[0], many), (phases[0] + phases[1], last)):
        wait_for(query, lambda at=at: reached(query, at))  # type: ignore[misc]
        asked.append(time.time())
        query.resize(lanes)
    query.awaitTermination()
    course, rows = Course.of(query, len(epochs), SLOTS), load.rows(epochs)
    first = {lane: float(np.min(course.committed_s[course.lane == lane])) for lane in np.unique(course.lane).tolist()}
    gone = [float(np.max(course.committed_s[course.lane == lane])) for lane in range(last, many)]
    serving = max(first[lane] for lane in range(few, many))
    rates = [
        course.rate(rows, course.frontier_s(1), asked[0]),
        course.rate(rows, serving, asked[1]),
        course.steady_rate(rows, int(np.searchsorted(np.nanmax(course.committed_s, axis=1), max(gone)))),
    ]
    return Part(
        "elastic",
        [
            Figure("2 to 6 lanes: seconds until all new lanes serve", serving - asked[0]),
            Figure("2 to 6 lanes: rate after / rate before (3 at best)", rates[1] / rates[0]),
            Figure("6 to 3 lanes: seconds until the lanes to go have served last", max(gone) - asked[1]),
            Figure("6 to 3 lanes: rate after / rate before (0.5 at best)", rates[2] / rates[1]),
            Figure("keys whose state differs from what numpy finds", _differing(query, epochs), most=0),
        ],
    )


def _differing(query: Query, epochs: list[Ints]) -> int:
    """Return how many keys have another state than numpy finds in the epochs."""
    keys = np.concatenate(epochs)
    values = np.concatenate([np.arange(each.size) % 1000 for each in epochs])
    total, number = np.bincount(keys, values, KEYS).astype(np.int64), np.bincount(keys, minlength=KEYS)
    found = query.state().toArrow().to_pydict()
    state = {key: (total, n) for key, total, n in zip(found["key"], found["total"], found["n"], strict=True)}
    wanted = {key: (int(total[key]), int(number[key])) for key in np.flatnonzero(number).tolist()}
    return sum(state.get(key) != wanted.get(key) for key in state.keys() | wanted.keys())


class Napping(ef.SlotOperator):
    """Costs a fixed time per row; more on processes that a file names as slow."""

    output = pa.schema([("n", pa.int64())])
    columns_needed = ("value",)

    def __init__(self, seconds_per_row: float, slow_pids: Path, factor: float) -> None:
        """Take `factor` times as long where the process's id stands in `slow_pids`."""
        self.seconds_per_row, self.slow_pids, self.factor = seconds_per_row, str(slow_pids), factor

    def process(self, state: Any, rows: pa.Table) -> tuple[Any, None]:
        """Count the rows, slowly."""
        listed = Path(self.slow_pids).read_text().split() if Path(self.slow_pids).exists() else []
        slow = self.factor if str(os.getpid()) in listed else 1.0
        time.sleep(rows.num_rows * self.seconds_per_row * slow)
        return (state or 0) + rows.num_rows, None


def slow_lane(setting: Setting) -> Part:
    """One of 4 lanes turns 3 times slower: seen through busy time and relieved."""
    load, number, factor = _load(setting), 24 if setting.quick else 48, 3.0
    pids = setting.folder / "slow-pids"

    @contextlib.contextmanager
    def turn(query: Query) -> Iterator[None]:
        pids.write_text(str(query.lanes()[1]["pid"]))
        yield
        pids.unlink()

    disturbed = _Disturbed(
        "slow",
        load,
        [load.epoch(None, 0) for _ in range(number)],
        Napping(setting.work_s() / (ROWS / LANES), pids, factor),
        turn,
        possible=(LANES - 1 + 1 / factor) / LANES,
    )
    return disturbed.measured(setting)


def crowded_lane(setting: Setting) -> Part:
    """One of 2 lanes gets two rivals on its core: it says so itself, and is relieved. No sleep, no rate limit."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:  # noqa: PLR2004
        raise SystemExit("crowded: two cores are needed, one for each lane")
    load, number, rivals, rows = _load(setting, lanes=2), 24 if setting.quick else 40, 2, 4_000

    @contextlib.contextmanager
    def turn(query: Query) -> Iterator[None]:
        for lane, core in enumerate(cores):
            os.sched_setaffinity(query.lanes()[lane]["pid"], {core})
        command = [sys.executable, "-c", _RIVAL, str(cores[1])]
        crowd = [subprocess.Popen(command) for _ in range(rivals)]  # noqa: S603 - our own few words of Python
        try:
            yield
        finally:
            for rival in crowd:
                rival.kill()
                rival.wait()

    disturbed = _Disturbed(
        "crowded",
        load,
        [load.epoch(None, 0, rows) for _ in range(number)],
        Burning(turns_for(0.3 / (rows / 2))),
        turn,
        possible=(1 + 1 / (1 + rivals)) / 2,
    )
    return disturbed.measured(setting)


_RIVAL = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@dataclass
class _Disturbed:
    """A uniform load on equal lanes, of which lane 1 turns slow after a quarter of the epochs."""

    name: str
    load: Load
    epochs: list[Ints]
    operator: ef.SlotOperator
    turn: Callable[[Query], AbstractContextManager[None]]
    possible: float  # share of the rate that is left when the lane has turned

    def measured(self, setting: Setting) -> Part:
        """Return what is left of the rate, with and without balancing."""
        figures, rates = [], {}
        for policy in ("static", "even"):
            query, rates[policy] = self._run(setting, policy)
            figures.append(Figure(f"{policy}: rate with the {self.name} lane / rate before", rates[policy]))
        left = {move["slot"] for move in query.moves() if move["source"] == 1}
        share = rates["even"] / self.possible
        return Part(
            self.name,
            [
                *figures,
                Figure(f"even: slots taken off the {self.name} lane, of {SLOTS // self.load.lanes}", len(left)),
                Figure("even: of what the lanes could still do", share),
            ],
        )

    def _run(self, setting: Setting, policy: str) -> tuple[Query, float]:
        turning = len(self.epochs) // 4
        # Without balancing the rest would only take long.
        epochs = self.epochs if policy == "even" else self.epochs[: turning + 6]
        feed = setting.feed(f"{self.name}-{policy}")
        for keys in epochs:
            feed.give(keys)
        lanes = self.load.lanes
        query = setting.start(feed, slots=SLOTS, lanes=lanes, operator=self.operator, policy=policy, max_lag=4)
        wait_for(query, lambda: reached(query, turning))
        with self.turn(query):
            turned = time.time()
            query.awaitTermination()
        course, rows = Course.of(query, len(epochs), SLOTS), self.load.rows(epochs)
        before = course.rate(rows, course.frontier_s(1), turned)
        if policy == "static":
            return query, course.rate(rows, turned, course.frontier_s(len(epochs) - 1)) / before
        at = int(np.searchsorted(np.nanmax(course.committed_s, axis=1), turned))
        return query, course.steady_rate(rows, min(at + 6, len(epochs) - 3)) / before
