"""Runs the demo: one query on a quiet local Spark, static for two fifths of the time, then with the chosen policy."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.live import Live

from evenflow.demo.lanes import Backlog, Work
from evenflow.demo.options import LANE_ROWS_PER_SECOND, DemoOptions
from evenflow.demo.plot import draw
from evenflow.demo.record import Arrivals, EpochFigures, Moved, Piece, Record, Taken
from evenflow.demo.summary import Course, Summary, summarise
from evenflow.demo.view import Snapshot, explained, line, picture, show_summary
from evenflow.errors import EvenflowError, InputError
from evenflow.model.slots import IntArray
from evenflow.operators import functions as aggregates
from evenflow.spark import Query, keyed
from evenflow.spark.session import quiet_session
from evenflow.workloads.bids import BidFeed, auction_slots, auctions_of

_FILES_PER_EPOCH = 8  # at most; so bids that wait are taken in portions, and lanes are seen often
_WORTH = 8.0  # seconds of bids in the longest epoch, per second that an epoch takes beside the lanes' work
_SHORTEST_S, _LONGEST_S = 1.5, 4.0  # bounds on them
_LONGEST_SHARE = 0.12  # bound on them, of the whole run
_WARM_UPS = 3
_TICK_S = 0.25
_SPAN_S = 3.0  # over which the live view shows what lanes did
_RECENT = 100  # commits of each lane that are enough for that
_PATIENCE_S = 90.0  # with the first epochs
_GRACE_S = 30.0  # patience with a slow machine at the end, until the balanced query can be measured
_EPOCHS_AFTER = 4  # one to decide on, one in which slots move, and some to measure


def run_demo(options: DemoOptions) -> Summary:
    """Run the demo, show it, write its files."""
    console = Console(highlight=False)
    for option, file in options.files:
        _try_to_write(option, file)
    console.print(explained(options))
    began_s = time.monotonic()
    with _started(options, console) as (query, feed, slots):
        took_s = time.monotonic() - began_s
        run = _Run(options.after_start(took_s), query, feed, slots)
        if run.options.seconds < options.seconds:
            console.print(
                f"Starting took {took_s:.0f} s on this busy machine: {run.options.seconds:g} s are left to see."
            )
        feed.start()
        _show(run, console)
        run.feed.stop()
        summary = run.summary()
    console.print()
    show_summary(console, run.options, summary)
    draw(run.record, run.options, run.switched_s, options.png)
    console.print(f"Picture: {options.png}", soft_wrap=True)
    if options.json is not None:
        options.json.write_text(json.dumps(summary.as_dict(), indent=2) + "\n")
        console.print(f"Figures: {options.json}", soft_wrap=True)
    return summary


def _try_to_write(option: str, file: Path) -> None:
    """Refuse a file that could not be written in the end."""
    new = not file.exists()
    try:
        with file.open("ab"):
            pass
        if new:
            file.unlink()
    except OSError as error:
        raise InputError(f"demo: cannot write {option} {file}: {error.strerror}; give another file") from error


@contextlib.contextmanager
def _started(options: DemoOptions, console: Console) -> Iterator[tuple[Query, BidFeed, IntArray]]:
    """Start Spark, the query and its first epochs; leave nothing behind, whatever happens. The array: slots of keys."""
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="evenflow-demo-", ignore_cleanup_errors=True))
        )
        (folder / "bids").mkdir()
        with console.status("starting Spark") if options.live else contextlib.nullcontext():
            spark = quiet_session(options.lanes + 2, folder / "spark.log")
            stack.callback(spark.stop)
            auctions = auctions_of(spark, options.table)
            slots = auction_slots(spark, options.slots)
            feed = BidFeed(folder / "bids", auctions, options.skew, options.rows_per_second, options.seed)
            query = (
                keyed(feed.stream(spark, _FILES_PER_EPOCH), "auction")
                .agg(total=aggregates.sum("price"), bids=aggregates.count())
                .balance(lanes=options.lanes, slots=options.slots, policy="static")
                .writeStream.format("noop")
                .option("checkpointLocation", str(folder / "checkpoint"))
                .option("evenflow.rowsPerSecond", LANE_ROWS_PER_SECOND)
                .option("evenflow.arrivalColumn", "timestamp")
                .start()
            )
            stack.callback(query.stop)
            stack.callback(feed.stop)
            beside_s = _warm_up(query, feed, _WARM_UPS)
        longest_s = min(_LONGEST_S, _LONGEST_SHARE * options.seconds, max(_SHORTEST_S, _WORTH * beside_s))
        feed.file_s = longest_s / _FILES_PER_EPOCH
        yield query, feed, slots


def _warm_up(query: Query, feed: BidFeed, times: int) -> float:
    """Have one bid per key carried out, some times; return the seconds that took beside the lanes' work, the last time.

    The first time gives every key its state; all load code that later epochs find loaded.
    """
    beside_s, rows = 0.0, 0
    for number in range(times):
        rows += feed.write_one_each(number)
        began_s = time.monotonic()
        while sum(one["numInputRows"] for one in query.recentProgress) < rows:
            if query.awaitTermination(_TICK_S / 5) or time.monotonic() - began_s > _PATIENCE_S:
                raise EvenflowError(f"no epoch finished within {_PATIENCE_S:g} s: is the machine that busy?")
        working_s = max(float(lane["busy_s"]) for lane in query.lanes())
        beside_s = max(0.0, time.monotonic() - began_s - working_s)
    return beside_s


@dataclass
class _Run:
    """The run so far."""

    options: DemoOptions
    query: Query
    feed: BidFeed
    slots: IntArray  # of each auction
    switched_s: float = 0.0
    record: Record = field(init=False)
    _backlog: Backlog = field(init=False)
    _stepped_s: dict[int, float] = field(default_factory=dict)  # the newest step of each lane that was noted
    _switch: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.record = Record(self.options.table, Arrivals(self.options.slots, self.feed.file_s))
        self._backlog = Backlog(self.record)

    @property
    def elapsed_s(self) -> float:
        return time.time() - self.feed.began_s

    @property
    def ended(self) -> bool:
        """Whether time is up; a slow machine gets some grace to finish epochs under the new policy."""
        after = len([one for one in self.record.epochs if self.switched_s and one.began_s > self.switched_s])
        patience = 0.0 if after >= _EPOCHS_AFTER else _GRACE_S
        return self.elapsed_s >= self.options.seconds + patience

    def look(self) -> Snapshot:
        """Collect what has happened since the last look; switch the policy when its time has come."""
        if self.query.awaitTermination(0):
            raise EvenflowError("the query ended before its time")
        self._take_note()
        if self._switch is None and self.elapsed_s >= self.options.switch_s:
            # The policy changes between two epochs: a thread waits for that, the picture goes on.
            self._switch = threading.Thread(target=self._balance, name="evenflow-switch", daemon=True)
            self._switch.start()
        record = self.record
        newest = record.epochs[-1] if record.epochs else None
        return Snapshot(
            self.elapsed_s,
            f"balanced ({self.options.policy})" if self.switched_s else "static",
            newest.epoch if newest else 0,
            self._recent_rates(),
            self._backlog.at(self.elapsed_s).round().astype(int).tolist(),
            newest.latency_p50_s if newest else 0.0,
            newest.latency_p99_s if newest else 0.0,
            [str(move) for move in record.moves],
        )

    def _recent_rates(self) -> list[float]:
        """Return what lanes did per second in the span before the newest commit: later work is not known yet."""
        pieces = self.record.pieces[-_RECENT * self.record.lanes :]
        until_s = pieces[-1].committed_s if pieces else _SPAN_S
        span_s = np.array([max(0.0, until_s - _SPAN_S), until_s])
        rates: list[float] = Work.of(pieces, self.record.lanes).rates(span_s)[0].tolist()
        return rates

    def _take_note(self) -> None:
        record, zero_s = self.record, self.feed.began_s
        while record.arrivals.rows < self.feed.rows_written:
            auctions = self.feed.bids(len(record.arrivals.files))
            record.arrivals.add(np.bincount(self.slots[auctions], minlength=self.options.slots))
        under_way = self.query.under_way()  # asked for first: an epoch that ends meanwhile is seen twice, not missed
        known = record.epochs[-1].epoch if record.epochs else -1
        fresh = [one for one in self.query.recentProgress if one["epoch"] > known and one["numInputRows"]]
        for told in sorted([*fresh, *under_way], key=lambda told: told["epoch"]):
            if (taken := Taken.of(told, zero_s)).began_s > 0:
                record.taken[told["epoch"]] = taken
        record.epochs += [one for one in (EpochFigures.of(told, zero_s) for told in fresh) if one.began_s > 0]
        for step in self.query.steps():
            if step.at_s > self._stepped_s.get(step.lane, zero_s):
                self._stepped_s[step.lane] = step.at_s
                reached = tuple((advance.version, advance.slots) for advance in step.advances)
                record.pieces.append(Piece(step.lane, step.at_s - zero_s, step.rows, step.busy_s, reached))
        record.moves[:] = [
            Moved(move["epoch"], move["slot"], move["source"], move["target"]) for move in self.query.moves()
        ]

    def summary(self) -> Summary:
        """Sum up."""
        options = self.options
        late_s = max(0.0, self.switched_s - options.switch_s)
        course = Course(self.switched_s or options.switch_s, options.after_s + late_s, options.rows_per_second)
        return summarise(self.record, self.query.latency, course)

    def _balance(self) -> None:
        self.query.set_policy(self.options.policy)
        self.switched_s = self.elapsed_s


def _show(run: _Run, console: Console) -> None:
    """Look at the run until its end, live or line by line."""
    if not run.options.live:
        shown_s = 0.0
        while not run.ended:
            now = run.look()
            if now.elapsed_s >= shown_s + 1:
                console.print(line(now), soft_wrap=True)
                shown_s = now.elapsed_s
            time.sleep(_TICK_S)
        return
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while not run.ended:
            live.update(picture(run.options, run.look()))
            time.sleep(_TICK_S)
