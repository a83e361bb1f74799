"""What moves cost those who stay and those who go: latency around a move, relief under overload, copies made ahead."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import evenflow as ef
from benchmarks.figures import Curve, Figure, Part
from benchmarks.stage import Course, Feed, Floats, Ints, Setting, slots_of, wait_for
from evenflow.migration import Strategy, strategy_named
from evenflow.spark import Query

SLOTS, SEED = 64, 2
_FILE = 500_000  # keys per epoch while the state is built up
_ROWS = 5_000  # per epoch after that


@dataclass
class Live:
    """A query with its state built up, under a steady load that lanes can well carry."""

    setting: Setting
    feed: Feed
    query: Query
    slots: int
    first: int  # the first epoch of the steady load

    def wait(self, epochs: int) -> None:
        """Wait for as many more epochs."""
        last = len(self.feed.due_s) + epochs
        wait_for(self.query, lambda: self._published >= last)

    def move(self, moves: list[tuple[int, int]], slots_to_settle: Ints) -> tuple[float, float]:
        """Ask for moves, wait until they have settled; return when they began to matter and when the last was over."""
        known = len(self.query.absences())
        asked = time.time()
        self.query.rebalance(moves)
        wait_for(self.query, lambda: len(self.query.absences()) >= known + slots_to_settle.size)
        over = max(absence.until_s for absence in self.query.absences()[known:])
        return asked, over

    def course(self) -> tuple[Course, Floats]:
        """Return what was committed when, and the latencies by epoch and slot, of the steady load only."""
        course = Course.of(self.query, len(self.feed.due_s), self.slots)
        latency = course.latency_s(self.feed.due_s)
        latency[: self.first] = np.nan
        return course, latency

    def end(self) -> None:
        """Stop it all."""
        self.feed.stop()
        self.query.stop()

    @property
    def _published(self) -> int:
        last = self.query.lastProgress
        return int(last["epoch"]) if last else -1


def _live(setting: Setting, name: str, keys: Ints, *, slots: int = SLOTS, **options: Any) -> Live:
    """Build up the state of `keys`, then let a steady load arrive."""
    feed, rng = setting.feed(name), np.random.default_rng(SEED)
    for at in range(0, keys.size, _FILE):
        feed.give(keys[at : at + _FILE])
    built = len(feed.due_s)
    query = setting.start(feed, slots=slots, live=True, policy="static", **options)
    live = Live(setting, feed, query, slots, built + 2)
    wait_for(query, lambda: live._published >= built - 1)  # noqa: SLF001
    feed.start(setting.work_s(1.6), lambda _epoch: rng.choice(keys, _ROWS))
    live.wait(2)
    return live


def _every(owners: Ints, share: float, lanes: int) -> list[tuple[int, int]]:
    """Return moves of `share` of the slots, of each lane as many, to the next lane."""
    moves = []
    for lane in range(lanes):
        own = np.flatnonzero(owners == lane)
        moves += [(slot, (lane + 1) % lanes) for slot in own[: max(1, round(share * own.size))].tolist()]
    return moves


def _shuffled(number: int) -> Ints:
    return np.random.default_rng(SEED).permutation(number)


def others(setting: Setting) -> Part:
    """Moves at the timestamp: the latency of the slots that stay, while a tenth of the state moves and while none.

    The target is for the default strategy; all slots at once is what the others are there to avoid.
    """
    cases = [(2, 200_000)] if setting.quick else [(2, 1_000_000), (4, 4_000_000), (4, 10_000_000)]
    figures = []
    for (lanes, keys), strategy in product(cases, ("sudden", "paced")):
        live = _live(
            setting,
            f"others-{lanes}-{keys}-{strategy}",
            _shuffled(keys),
            lanes=lanes,
            handover="at the timestamp",
            strategy=strategy,
        )
        there = _every(ef.RoutingTable.even(SLOTS, lanes).owners, 0.1, lanes)
        back = [(slot, (target - 1) % lanes) for slot, target in there]
        moved = np.array([slot for slot, _ in there])
        spans = []
        for round_ in range(4 if setting.quick else 8):
            live.wait(3)
            spans.append(live.move(back if round_ % 2 else there, moved))
        live.wait(3)
        live.end()
        course, latency = live.course()
        stay = np.setdiff1d(np.arange(SLOTS), moved)
        began, ended = course.committed_s[:, stay] - latency[:, stay], course.committed_s[:, stay]
        during = np.any([(began < over) & (ended > asked) for asked, over in spans], axis=0)
        quiet, busy = latency[:, stay][~during], latency[:, stay][during]
        p99 = [float(np.nanquantile(values, 0.99)) for values in (quiet, busy)]
        p50 = [float(np.nanmedian(values)) for values in (quiet, busy)]
        name = f"{lanes} lanes, {keys:,} keys, {strategy}: latency of slots that stay,"
        figures += [
            Figure(f"{name} p99 in seconds, nothing moves", p99[0]),
            Figure(f"{name} p99 in seconds, a tenth moves", p99[1]),
            Figure(f"{name} p50 while moving / p50 otherwise", p50[1] / p50[0]),
            Figure(
                f"{name} p99 while moving / p99 otherwise", p99[1] / p99[0], most=1.25 if strategy == "paced" else None
            ),
        ]
    return Part("others", figures)


def relief(setting: Setting) -> Part:
    """One lane overloaded until `max_lag` epochs wait for it: from the decision to relief, at once or in order."""
    lanes, max_lag, rows = 4, 4 if setting.quick else 8, 8_000
    rate = rows / lanes / setting.work_s(1.5)
    slot_of = slots_of(setting.spark, np.arange(20_000), SLOTS)
    owners = ef.RoutingTable.even(SLOTS, lanes).owners
    hot = owners[slot_of] == 0
    weights = np.where(hot, 0.7 / hot.sum(), 0.3 / (~hot).sum())
    rng = np.random.default_rng(SEED)
    epochs = [rng.choice(slot_of.size, rows, p=weights / weights.sum()) for _ in range(6 * max_lag)]
    crowded = np.flatnonzero(owners == 0)
    moves = [(slot, 1 + at % (lanes - 1)) for at, slot in enumerate(crowded[: crowded.size * 3 // 4].tolist())]
    moved = np.array([slot for slot, _ in moves])
    figures, served, gone = [], {}, {}
    for handover in ("at the timestamp", "at once"):
        feed = setting.feed(f"relief-{handover.replace(' ', '-')}")
        for keys in epochs:
            feed.give(keys)
        query = setting.start(
            feed,
            slots=SLOTS,
            lanes=lanes,
            rows_per_s=rate,
            policy="static",
            strategy="sudden",
            max_lag=max_lag,
            handover=handover,
        )
        wait_for(query, lambda: _behind(query, len(epochs)) > max_lag)  # noqa: B023
        decided, known = time.time(), len(query.absences())
        query.rebalance(moves)
        wait_for(query, lambda: len(query.absences()) >= known + len(moves))  # noqa: B023
        reach = int((Course.of(query, len(epochs), SLOTS).committed_s <= decided).sum(axis=0).max()) - 1
        wait_for(query, lambda: _versions(query, len(epochs)).min() >= reach and _taken_over(query, len(epochs), moved))  # noqa: B023
        query.stop()
        course = Course.of(query, len(epochs), SLOTS)
        taken = np.where(course.lane[:, moved] > 0, course.committed_s[:, moved], np.inf)
        served[handover] = float(taken.min(axis=0).max()) - decided
        gone[handover] = course.frontier_s(reach) - decided
        figures += [
            Figure(f"{handover}: epochs that the slowest slot was behind", _behind_at(course, decided)),
            Figure(f"{handover}: seconds from decision until new lanes serve all that moved", served[handover]),
            Figure(f"{handover}: seconds from decision until the backlog is gone", gone[handover]),
        ]
    figures += [
        Figure("new lanes serve, at the timestamp / at once", served["at the timestamp"] / served["at once"]),
        Figure("backlog gone, at the timestamp / at once", gone["at the timestamp"] / gone["at once"]),
    ]
    return Part("relief", figures)


def _versions(query: Query, epochs: int) -> Ints:
    """Return how many epochs each slot has done, less one."""
    done: Ints = (~np.isnan(Course.of(query, epochs, SLOTS).committed_s)).sum(axis=0)
    return done - 1


def _taken_over(query: Query, epochs: int, slots: Ints) -> bool:
    """Tell whether lanes other than the first serve all of some slots."""
    return bool((Course.of(query, epochs, SLOTS).lane[:, slots] > 0).any(axis=0).all())


def _behind(query: Query, epochs: int) -> int:
    versions = _versions(query, epochs)
    return int(versions.max() - versions.min())


def _behind_at(course: Course, at_s: float) -> int:
    versions = (course.committed_s <= at_s).sum(axis=0)
    return int(versions.max() - versions.min())


def timeline(setting: Setting) -> Part:
    """A quarter of the state moves from every lane to the next: latency around it, by strategy."""
    lanes, keys = (2, 200_000) if setting.quick else (4, 2_000_000)
    share, bound, before = 0.25, 0.25, 10
    owners = ef.RoutingTable.even(SLOTS, lanes).owners
    moves = _every(owners, share, lanes)
    moved = np.array([slot for slot, _ in moves])
    contenders: dict[str, tuple[Strategy, str]] = {
        "sudden": (strategy_named("sudden"), "at the timestamp"),
        "fluid": (strategy_named("fluid"), "at the timestamp"),
        "batched": (strategy_named("batched"), "at the timestamp"),
        "paced": (strategy_named("paced", max_added_latency=bound), "at the timestamp"),
        "at once": (strategy_named("sudden"), "at once"),
    }
    figures, lines = [], {}
    for name, (strategy, handover) in contenders.items():
        live = _live(
            setting,
            f"timeline-{name.replace(' ', '-')}",
            _shuffled(keys),
            lanes=lanes,
            strategy=strategy,
            handover=handover,
        )
        live.wait(before)
        asked, over = live.move(moves, moved)
        live.wait(4)
        live.end()
        course, latency = live.course()
        began, ended = course.committed_s - latency, course.committed_s
        during = (began < over) & (ended > asked)
        quiet, busy = latency[(ended <= asked)], latency[during]
        usual = float(np.nanquantile(quiet, 0.5))
        worst = np.nanmax(np.where(np.isnan(latency).all(axis=1, keepdims=True), 0.0, latency), axis=1)
        shown = ~np.isnan(latency).any(axis=1)
        lines[name] = ((began[shown, 0] - asked).tolist(), worst[shown].tolist())
        figures += [
            Figure(f"{name}: seconds from asking to the end of the last move", over - asked),
            Figure(f"{name}: latency before, p50 in seconds", usual),
            Figure(f"{name}: latency before, peak in seconds", float(np.nanmax(quiet))),
            Figure(f"{name}: latency while moving, p99 in seconds", float(np.nanquantile(busy, 0.99))),
            Figure(f"{name}: latency while moving, peak in seconds", float(np.nanmax(busy))),
            Figure(f"{name}: peak while moving less peak before, seconds", float(np.nanmax(busy) - np.nanmax(quiet))),
        ]
        if name == "paced":
            waits = _longest_wait_of_a_step(live.query)
            figures.append(Figure(f"paced: longest wait of a slot in seconds, bound {bound:g}", waits, most=bound))
    curve = Curve("seconds since the moves were asked for", "worst latency of a slot, s", lines, "around a move")
    return Part("timeline", figures, [curve])


def _longest_wait_of_a_step(query: Query) -> float:
    return max(absence.until_s - absence.since_s for absence in query.absences())


def copy(setting: Setting) -> Part:
    """A slot of 100 MB and more: how long nobody serves it, handed off whole or copied ahead."""
    slots, wanted, slot = 8, 200_000 if setting.quick else 1_800_000, 3
    candidates = np.arange(wanted * (slots + 1))
    keys = candidates[slots_of(setting.spark, candidates, slots) == slot][:wanted]
    rounds, figures, waits, added = 4, [], {}, {}
    for name, least in (("plain", None), ("copied ahead", 1 << 20)):
        live = _live(
            setting,
            f"copy-{name.replace(' ', '-')}",
            keys,
            slots=slots,
            lanes=2,
            copy_ahead_bytes=least,
        )
        home = int(ef.RoutingTable.even(slots, 2).owners[slot])
        spans = []
        for round_ in range(rounds):
            live.wait(3)
            spans.append(live.move([(slot, home if round_ % 2 else 1 - home)], np.array([slot])))
        live.wait(2)
        last = live.query.lastProgress or {}
        live.end()
        course, latency = live.course()
        own = latency[:, slot]
        began, ended = course.committed_s[:, slot] - own, course.committed_s[:, slot]
        peaks = [np.nanmax(own[(began < over + 1) & (ended > asked)]) for asked, over in spans]
        added[name] = float(np.median(peaks) - np.nanmedian(own))
        waits[name] = float(np.median([absence.until_s - absence.since_s for absence in live.query.absences()]))
        figures += [
            Figure(f"{name}: MB of state in the slot", last["state"]["bytes"] / 1e6),
            Figure(f"{name}: seconds during which nobody serves the slot", waits[name]),
            Figure(f"{name}: seconds of latency added to the slot", added[name]),
        ]
    figures += [
        Figure("wait of the slot, plain / copied ahead", waits["plain"] / waits["copied ahead"], least=5),
        Figure("added latency, plain / copied ahead", added["plain"] / max(1e-3, added["copied ahead"])),
    ]
    return Part("copy", figures)
