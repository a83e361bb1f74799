"""One query on a local Spark with rate-limited lanes, and what each lane did when."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from evenflow.control.window_json import write_journal_json
from evenflow.errors import EvenflowError
from evenflow.migration import Strategy, Weights, strategy_named
from evenflow.model import Move, RoutingTable
from evenflow.model.balance import max_over_mean
from evenflow.model.slots import FloatArray, IntArray
from evenflow.operators import functions as aggregates
from evenflow.policies import Policy
from evenflow.spark import Query, keyed
from evenflow.spark.session import quiet_session
from evenflow.workloads.bids import auctions_of
from papers.spark_runs.slow import SlowLanes, SlowSpan, tell
from papers.spark_runs.transfer import SlowToArrive, SlowToMove
from papers.spark_runs.workload import HotPhase, PhasedFeed, SharedFeed, SlotShares

if TYPE_CHECKING:
    from evenflow.spark.progress import Step

SparkSession: TypeAlias = Any  # pyspark is not imported here: it is handed from one part of evenflow to another

_TICK_S = 0.05
_PATIENCE_S = 180.0  # with the warm-up: other work may share the machine
_FILE_S = 0.25
_WARM_UPS = 3
_COLD_S = 6.0
WARM_UP_FILES = 2 * _WARM_UPS  # before the stream; as many epochs, where an epoch is a file
_EPOCH = "500 milliseconds"
_FILES_PER_EPOCH = 4
_SLOW_FILE = "slow-lanes.json"


@dataclass(frozen=True)
class SparkScenario:
    """What is run. `capacity` is rows per second of a lane, `rate` of the stream; `seconds` count from the first row.

    `first_table` is where slots are before the stream begins, `first_lanes` how many of the lanes there are then;
    `actions` are done by hand at given moments. With `keys_per_second` state is slow to move; with `arrival_s` a slot
    takes so long to come to its new lane, and leaves the old one at once. With `drain` the run goes on until all that
    came is finished, and the rows in the state are counted. `shares` says how much of the stream each slot gets, by the
    file; without it, that is said by the phases' hot lanes. A lane serves at `slow_speed` times its capacity in its
    spans of `slow`.
    """

    lanes: int
    slots: int
    capacity: float
    rate: float
    seconds: float
    phases: Sequence[HotPhase] = (HotPhase(),)
    policy: str | Policy = "static"
    strategy: str = "paced"
    handover: str = "at once"
    max_lag: int = 4
    keys: int = 1_000
    seed: int = 1
    balancer: Mapping[str, Any] = field(default_factory=dict)
    first_table: RoutingTable | None = None
    actions: Sequence[tuple[float, Callable[[Query], None]]] = ()
    keys_per_second: float | None = None
    arrival_s: float | None = None
    drain: bool = False
    first_lanes: int | None = None
    shares: SlotShares | None = None
    slow: Sequence[SlowSpan] = ()
    slow_speed: float = 1.0
    file_s: float = _FILE_S
    files_per_epoch: int = _FILES_PER_EPOCH

    @property
    def even_table(self) -> RoutingTable:
        """Where the query itself puts slots when it starts."""
        return RoutingTable.even(self.slots, self.first_lanes or self.lanes)

    @property
    def table(self) -> RoutingTable:
        """The table that hot lanes are told apart by."""
        return self.first_table or self.even_table


@dataclass(frozen=True)
class SparkRun:
    """What came out, epoch by epoch; times in seconds from the first row. Only epochs that all lanes have finished.

    `done_s[e, l]` is when lane l had finished epoch e; `arrived_s[e]` when the middle row of the epoch had come.
    `lane_counts[e]` is how many lanes there were. `histograms[f]` are the rows of each slot in file f, and `slot_keys`
    the keys of each slot, where the scenario has `shares`. `rows_lost` is what the state lacks of all that came, after
    a drain.
    """

    scenario: SparkScenario
    epochs: tuple[int, ...]
    began_s: FloatArray
    rows: FloatArray
    busy_s: FloatArray
    done_s: FloatArray
    arrived_s: FloatArray
    latency_p50_s: FloatArray
    latency_p99_s: FloatArray
    latency_max_s: FloatArray
    moves: tuple[dict[str, Any], ...]
    rows_written: int
    journal: bytes = field(repr=False, default=b"")
    lane_counts: tuple[int, ...] = ()
    histograms: IntArray = field(repr=False, default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    slot_keys: IntArray = field(repr=False, default_factory=lambda: np.zeros(0, dtype=np.int64))
    rows_lost: int | None = None

    @property
    def finished_s(self) -> FloatArray:
        """When all lanes had finished each epoch."""
        found: FloatArray = self.done_s.max(axis=1)
        return found

    @property
    def lane_latency_s(self) -> FloatArray:
        """The latency of the middle row of each epoch and lane."""
        return self.done_s - self.arrived_s[:, None]

    @property
    def imbalance(self) -> FloatArray:
        """Max / mean of the lanes' busy time, epoch by epoch."""
        return np.array([max_over_mean(row) for row in self.busy_s])

    @property
    def backlog_rows(self) -> int:
        """Rows that had come by the end and that not all lanes had finished."""
        return max(0, self.rows_written - int(self.rows.sum()))

    @property
    def move_times_s(self) -> list[float]:
        """When the epochs began that slots moved with."""
        at = dict(zip(self.epochs, self.began_s.tolist(), strict=True))
        return sorted({at[move["epoch"]] for move in self.moves if move["epoch"] in at})

    def throughput(self, since_s: float = 0.0, until_s: float = float("inf")) -> FloatArray:
        """Return the rows per second that each lane served between two moments."""
        until_s = min(until_s, float(self.finished_s.max()))
        inside = (self.done_s > since_s) & (self.done_s <= until_s)
        served: FloatArray = (self.rows * inside).sum(axis=0) / max(1e-9, until_s - since_s)
        return served

    def rate(self, since_s: float = 0.0) -> float:
        """Return the rows per second with which epochs were finished by all lanes, after the first since a moment."""
        first = min(int(np.searchsorted(self.finished_s, since_s)), len(self.epochs) - 2)
        took_s = float(self.finished_s[-1] - self.finished_s[first])
        return float(self.rows[first + 1 :].sum()) / max(1e-9, took_s)

    def pace(self, since_s: float = 0.0) -> float:
        """Return the usual rows per second, the median over epochs since a moment: of a steady load, spikes aside."""
        first = min(int(np.searchsorted(self.finished_s, since_s)), len(self.epochs) - 2)
        took_s = np.diff(self.finished_s[first:])
        return float(np.median(self.rows[first + 1 :].sum(axis=1) / np.maximum(1e-9, took_s)))

    def served(self, edges_s: FloatArray) -> FloatArray:
        """Return the rows per second of all lanes between moments; a lane is taken to serve an epoch evenly."""
        total = np.zeros(edges_s.size)
        for lane in range(self.rows.shape[1]):
            done, rows = self.done_s[:, lane], np.cumsum(self.rows[:, lane])
            total += np.interp(edges_s, np.concatenate([[0.0], done]), np.concatenate([[0.0], rows]))
        per_second: FloatArray = np.diff(total) / np.diff(edges_s)
        return per_second

    def mean_latency_s(self, since_s: float = 0.0, until_s: float = float("inf")) -> float:
        """Return the mean latency of the rows that came between two moments; NaN if none did."""
        inside = (self.arrived_s >= since_s) & (self.arrived_s < until_s)
        weights = self.rows[inside]
        return float(np.average(self.lane_latency_s[inside], weights=weights)) if weights.sum() else float("nan")

    def after(self, since_s: float) -> Any:
        """Return the index of the epochs whose rows came after a moment."""
        return np.flatnonzero(self.arrived_s > since_s)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "rows_per_s_per_lane": self.scenario.capacity,
            "input_rows_per_s": self.scenario.rate,
            "epochs": len(self.epochs),
            "arrived_s": self.arrived_s,
            "done_s": self.done_s,
            "rows": self.rows,
            "latency_p50_s": self.latency_p50_s,
            "latency_p99_s": self.latency_p99_s,
            "imbalance": self.imbalance,
            "moves": len(self.moves),
            "move_times_s": self.move_times_s,
            "rows_written": self.rows_written,
            "lane_counts": list(self.lane_counts),
            "rows_lost": self.rows_lost,
        }


def limited(scenario: SparkScenario) -> str:
    """Return what every result on Spark has to say about itself."""
    slow = f", state moves at {scenario.keys_per_second:,.0f} keys/s" if scenario.keys_per_second else ""
    slow += f", a slot takes {scenario.arrival_s:g} s to come" if scenario.arrival_s else ""
    loaded = f" ({scenario.slow_speed:.0%} of that where it is slow)" if scenario.slow else ""
    rates = sorted({phase.rate * scenario.rate for phase in scenario.phases})
    coming = f"{rates[0]:,.0f}" if len(rates) == 1 else f"{rates[0]:,.0f} to {rates[-1]:,.0f}"
    return (
        f"Spark on this machine, {scenario.lanes} lanes, each RATE LIMITED to {scenario.capacity:,.0f} "
        f"rows/s{loaded}{slow}; {coming} rows/s come in for {scenario.seconds:g} s; latencies are no finer "
        f"than an epoch (0.5 s or what the machine needs)."
    )


@contextlib.contextmanager
def local_spark(lanes: int) -> Iterator[SparkSession]:
    """Start a quiet session with room for so many lanes; stop it in the end."""
    with tempfile.TemporaryDirectory(prefix="evenflow-spark-", ignore_cleanup_errors=True) as folder:
        session = quiet_session(lanes + 2, Path(folder) / "spark.log")
        try:
            yield session
        finally:
            session.stop()


@contextlib.contextmanager
def warm_spark(lanes: int, scenario: SparkScenario) -> Iterator[SparkSession]:
    """Start a session and run a scenario in it for a moment: a session's first run is held up by its start."""
    with local_spark(lanes) as spark:
        run_on_spark(spark, replace(scenario, seconds=_COLD_S, actions=(), slow=(), drain=False))
        yield spark


def run_on_spark(spark: SparkSession, scenario: SparkScenario) -> SparkRun:
    """Run the scenario and stop its query."""
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="evenflow-run-", ignore_cleanup_errors=True))
        )
        (folder / "bids").mkdir()
        feed = _feed(spark, scenario, folder / "bids")
        query = _started(spark, scenario, feed, folder)
        stack.callback(query.stop)
        stack.callback(feed.stop)
        early = _warm_up(query, feed, scenario)
        known = {one["epoch"] for one in query.recentProgress}
        feed.start()
        if scenario.slow:
            tell(
                folder / _SLOW_FILE, {lane["lane"]: lane["pid"] for lane in query.lanes()}, scenario.slow, feed.began_s
            )
        progress = _watch(query, feed, scenario)
        feed.stop()
        lost = None
        if scenario.drain:
            query.processAllAvailable()
            lost = early + feed.rows_written - sum(query.state().toArrow()["bids"].to_pylist())
        progress.update({one["epoch"]: one for one in query.recentProgress})
        fresh = [one for epoch, one in sorted(progress.items()) if epoch not in known and one["numInputRows"]]
        return replace(_read(query, feed, scenario, known, fresh), rows_lost=lost)


def _feed(spark: SparkSession, scenario: SparkScenario, folder: Path) -> PhasedFeed:
    table = scenario.table
    by_lane = [auctions_of(spark, table, lane, scenario.keys) for lane in range(scenario.lanes)]
    feed = PhasedFeed(
        folder,
        by_lane[0],
        0.0,
        scenario.rate,
        scenario.seed,
        scenario.file_s,
        by_lane=[one.hot for one in by_lane if one.hot.size],
        phases=scenario.phases,
    )
    if scenario.shares is None:
        return feed
    slot = f"cast(pmod(xxhash64(id), {scenario.slots}) as int) as slot"
    slots = spark.range(0, scenario.keys, 1, 1).selectExpr(slot).toArrow()["slot"].to_numpy().astype(np.int64)
    return SharedFeed.of(feed, slots, scenario.shares)


def _started(spark: SparkSession, scenario: SparkScenario, feed: PhasedFeed, folder: Path) -> Query:
    totals = keyed(feed.stream(spark, scenario.files_per_epoch), "auction").agg(
        total=aggregates.sum("price"), bids=aggregates.count()
    )
    operator: Any = totals.operator
    if scenario.keys_per_second is not None:
        operator = SlowToMove(operator, scenario.keys_per_second)
    if scenario.arrival_s is not None:
        operator = SlowToArrive(operator, scenario.arrival_s)
    if scenario.slow:
        operator = SlowLanes(operator, scenario.capacity, scenario.slow_speed, str(folder / _SLOW_FILE))
    totals = replace(totals, operator=operator)
    handover: Any = scenario.handover
    return (
        totals.balance(
            lanes=scenario.first_lanes or scenario.lanes,
            slots=scenario.slots,
            policy=scenario.policy,
            strategy=_FirstAtOnce(strategy_named(scenario.strategy)) if scenario.first_table else scenario.strategy,
            handover=handover,
            max_lag=scenario.max_lag,
            **scenario.balancer,
        )
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("evenflow.rowsPerSecond", scenario.capacity)
        .option("evenflow.arrivalColumn", "timestamp")
        .trigger(processingTime=_EPOCH)
        .start()
    )


def decide_by(policy: str | Policy, at_s: float = 0.0) -> tuple[float, Callable[[Query], None]]:
    """Return an action that puts a policy in force: what it is asked before, the warm-up, is no part of the stream."""
    return at_s, lambda query: query.set_policy(policy)


class _FirstAtOnce:
    """A strategy whose first plan, which brings slots to where they are at first, is carried out at once."""

    name: ClassVar[str] = "first at once"
    paper: ClassVar[str] = "evenflow"
    summary: ClassVar[str] = "for runs that begin with another table"

    def __init__(self, strategy: Strategy) -> None:
        """Cut all later plans by `strategy`."""
        self._strategy: Strategy = strategy
        self._next: Strategy = strategy_named("sudden")

    def steps(self, moves: Sequence[Move], weights: Weights) -> tuple[tuple[Move, ...], ...]:
        """Return one step the first time."""
        chosen, self._next = self._next, self._strategy
        return chosen.steps(moves, weights)


def _warm_up(query: Query, feed: PhasedFeed, scenario: SparkScenario) -> int:
    """Bring slots to where they are at first, and give every key its state; return the rows that took."""
    moves = scenario.even_table.difference(scenario.table)
    wanted = 0
    if moves:
        query.rebalance(moves)
    for number in range(_WARM_UPS):
        wanted += feed.write_one_each(number)
        _until(query, partial(_has_done, query, wanted))
    if moves:
        _until(query, lambda: len(query.moves()) >= len(moves))
    return wanted


def _has_done(query: Query, rows: int) -> bool:
    return sum(int(one["numInputRows"]) for one in query.recentProgress) >= rows


def _until(query: Query, condition: Callable[[], bool]) -> None:
    began_s = time.monotonic()
    while not condition():
        if query.awaitTermination(_TICK_S) or time.monotonic() - began_s > _PATIENCE_S:
            raise EvenflowError(f"the query did not warm up within {_PATIENCE_S:g} s: is the machine that busy?")


def _watch(query: Query, feed: PhasedFeed, scenario: SparkScenario) -> dict[int, dict[str, Any]]:
    """Let time pass, and do by hand what is to be done; return the figures of all epochs, as a query keeps few."""
    progress: dict[int, dict[str, Any]] = {}
    waiting = sorted(scenario.actions, key=lambda action: action[0])
    while (now_s := time.time() - feed.began_s) < scenario.seconds:
        while waiting and waiting[0][0] <= now_s:
            waiting.pop(0)[1](query)
        progress.update({one["epoch"]: one for one in query.recentProgress})
        if query.awaitTermination(_TICK_S):
            raise EvenflowError("the query ended before its time")
    return progress


def _read(
    query: Query, feed: PhasedFeed, scenario: SparkScenario, known: set[int], fresh: list[dict[str, Any]]
) -> SparkRun:
    if len(fresh) < 2:  # noqa: PLR2004 - there is nothing to compare
        raise EvenflowError(
            f"only {len(fresh)} epochs were finished in {scenario.seconds:g} s: is the machine that busy?"
        )
    epochs = tuple(int(one["epoch"]) for one in fresh)
    lanes = max(scenario.lanes, 1 + max(lane["lane"] for one in fresh for lane in one["lanes"]))
    rows_in = np.array([one["numInputRows"] for one in fresh])
    first = {one["epoch"]: one for one in fresh}
    began = np.array([datetime.fromisoformat(one["timestamp"]).timestamp() - feed.began_s for one in fresh])
    latency = {
        name: np.array([one["latency"].get(name, np.nan) for one in fresh]) for name in ("p50_s", "p99_s", "max_s")
    }
    return SparkRun(
        scenario,
        epochs,
        began,
        _by_lane(fresh, "rows", lanes),
        _by_lane(fresh, "busy_s", lanes),
        _done(query.steps(), fresh, lanes, feed.began_s),
        feed.came_at_s(np.cumsum(rows_in) - rows_in / 2),
        latency["p50_s"],
        latency["p99_s"],
        latency["max_s"],
        tuple(move for move in query.moves() if move["epoch"] > max(known, default=-1) or move["epoch"] in first),
        feed.rows_written,
        write_journal_json(query.journal()),
        tuple(len(one["lanes"]) for one in fresh),
        feed.histograms(),
        feed.slot_keys(),
    )


def _by_lane(progress: Sequence[Mapping[str, Any]], name: str, lanes: int) -> FloatArray:
    found = np.zeros((len(progress), lanes))
    for at, one in enumerate(progress):
        for lane in one["lanes"]:
            found[at, lane["lane"]] = lane[name]
    return found


def _done(steps: Sequence[Step], progress: Sequence[Mapping[str, Any]], lanes: int, zero_s: float) -> FloatArray:
    """Return when each lane had brought its slots to each epoch, by its commits."""
    found = np.full((len(progress), lanes), np.nan)
    epochs = np.array([one["epoch"] for one in progress])
    for step in sorted(steps, key=lambda step: step.at_s):
        if step.advances and step.lane < lanes:
            reached = epochs <= max(advance.version for advance in step.advances)
            column = found[:, step.lane]
            column[reached & np.isnan(column)] = step.at_s - zero_s
    for at, one in enumerate(progress):  # a lane without slots is done with an epoch when it begins
        began = datetime.fromisoformat(one["timestamp"]).timestamp() - zero_s
        found[at, np.isnan(found[at])] = began
    return found
