"""Epochs of our own: a tick carries only the time, when something is due, and Spark's batches keep their numbers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest

from evenflow.model import Heard
from evenflow.operators import Operator
from tests.engine.calculations import SCHEMA, SLOTS, Answer, Calculation, by_key
from tests.engine.one_process import Killed, World
from tests.operators.timers import timers
from tests.seeds import seed_of_run

SECOND = 1_000_000  # microseconds


class Alarms(Calculation):
    """Keys that go off some time after their epoch."""

    operator: ClassVar[Operator] = timers("processing")

    def add(self, before: Answer | None, key: int | None, value: int) -> Answer:
        raise NotImplementedError  # what goes off when depends on the time of each epoch


@dataclass
class Query:
    """A query of alarms, its clock, and what each of its epochs must have put out."""

    place: Path
    how: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    now_s: float = 100.0
    rows: dict[int, pa.Table] = field(default_factory=dict)  # by batch
    world: World = field(init=False)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.world = World(self.place, rng, calculation=Alarms(), clock=lambda: self.now_s, **self.how)

    def batch(self, *waits: tuple[int, float]) -> None:
        """Have a batch accepted: keys, and after how many seconds each is to go off."""
        columns = [[key for key, _ in waits], [round(SECOND * wait_s) for _, wait_s in waits]]
        self.rows[self.world.epoch] = pa.table([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)
        while True:
            try:
                self.world.shell.on_batch(cast("Any", self.rows[self.world.epoch]), self.world.epoch)
            except Killed:
                self.world.restart()
                continue
            break
        self.world.epoch += 1

    def later(self, seconds: float) -> None:
        """Let time pass, and all that is due then happen."""
        self.now_s += seconds
        self.world.finish()

    def moves(self) -> None:
        """Ask for some moves by hand."""
        try:
            self.world.ask_for_moves()
        except Killed:
            self.world.restart()

    @property
    def ticks(self) -> list[int]:
        return [epoch for epoch, record in self.world.ownership.records.items() if record.tick]

    def expected(self) -> dict[int, list[Answer]]:
        """Return what each epoch puts out, by the times in the records."""
        state: dict[int, tuple[int, int]] = {}
        out = {}
        for epoch, record in sorted(self.world.ownership.records.items()):
            now_us = record.time.processing_us
            rows = [] if record.tick else self.rows[record.batch].to_pylist()
            for row in rows:
                at, n = state.get(row["key"], (0, 0))
                state[row["key"]] = (max(at, row["value"] + now_us), n + 1)
            over = {key: kept for key, kept in state.items() if kept[0] <= now_us}
            out[epoch] = by_key((key, *kept) for key, kept in over.items())
            state = {key: kept for key, kept in state.items() if key not in over}
        return out


def test_a_tick_comes_when_something_is_due_and_not_before(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch((1, 0.0), (2, 3.0), (3, 3.5), (4, 20.0))
    query.later(0.0)
    assert query.ticks == []
    assert query.world.shop.epochs == {0: [(1, 100 * SECOND, 1)]}
    query.later(2.0)
    assert query.ticks == []
    query.later(2.0)
    assert query.world.shop.epochs[1] == [(2, 103 * SECOND, 1), (3, 103 * SECOND + SECOND // 2, 1)]
    query.later(100.0)
    query.later(100.0)
    assert query.ticks == [1, 2], "once each"
    assert query.world.shop.epochs == query.expected()


def test_an_epoch_with_rows_brings_the_time_as_well(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch((1, 3.0))
    query.world.finish()
    query.now_s += 5.0
    query.batch((2, 3.0))
    query.world.finish()
    assert query.ticks == []
    assert query.world.shop.epochs[1] == [(1, 103 * SECOND, 1)]


def test_batches_keep_their_numbers_beside_ticks_and_a_replay_is_known(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch((1, 1.0))
    query.world.finish()
    query.later(5.0)
    query.batch((1, 1.0))
    query.world.finish()
    records = query.world.ownership.records
    assert [(record.epoch, record.batch, record.tick) for record in records.values()] == [
        (0, 0, False),
        (1, 0, True),
        (2, 1, False),
    ]
    query.world.restart()
    query.world.shell.on_batch(cast("Any", None), 1)  # it is there: nobody looks at its rows
    assert len(records) == 3
    query.later(5.0)
    assert query.world.shop.epochs == query.expected()


def test_what_was_due_while_no_driver_ran_is_done_after_the_restart(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch((1, 1.0), (2, 50.0))
    query.world.finish()
    query.now_s += 10.0
    query.world.restart()
    query.world.finish()
    assert query.ticks == [1]
    assert query.world.shop.epochs == query.expected()


def test_time_does_not_go_back_with_the_clock(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch((1, 5.0))
    query.now_s -= 50.0
    query.batch((2, 5.0))
    query.world.finish()
    times = [record.time.processing_us for record in query.world.ownership.records.values()]
    assert times == [100 * SECOND, 100 * SECOND]
    query.later(60.0)
    assert query.world.shop.epochs == query.expected()


def test_a_tick_follows_once_the_watermark_has_moved_and_the_source_rests(tmp_path: Path) -> None:
    """As Spark's batch without rows does: what comes after it is late by the watermark that it has closed things by."""
    query = Query(tmp_path)
    shell, rests, marks = query.world.shell, False, iter((10, 20, 15, 30))
    shell.intake.event_time, shell.intake.source_rests = True, lambda: rests
    route = shell.router.route
    setattr(shell.router, "route", lambda *args: replace(route(*args), heard=Heard((next(marks),))))  # noqa: B010 - it is played
    for _ in range(2):
        query.batch((1, 9.0))
        query.world.go_on(1)
        assert not shell.intake.tick_if_due(), "more rows may come"
    rests = True
    query.world.finish()
    query.world.finish()
    for _ in range(2):
        query.batch((1, 9.0))
    query.world.finish()
    times = [(record.tick, record.marks[1:]) for record in query.world.ownership.records.values()]
    assert times == [
        (False, (10, 0, 0)),
        (False, (20, 10, 0)),
        (True, (20, 20, 10)),
        (False, (20, 20, 20)),
        (False, (30, 20, 20)),
        (True, (30, 30, 20)),
    ]


@pytest.mark.parametrize("seed", [*range(6), seed_of_run("EVENFLOW_TICKS")])
def test_alarms_go_off_once_whatever_moves_and_dies(tmp_path: Path, seed: int) -> None:
    """A move between setting and going off; a death between going off and the commit."""
    rng = random.Random(seed)
    how = {"mischief": 0.02, "lane_deaths": 0.02, "driver_deaths": 0.02, "elastic": 0.3}
    query = Query(tmp_path, how | {"max_lag": rng.choice([0, 2, 4])}, seed)
    for _ in range(25):
        query.batch(*((rng.randrange(3 * SLOTS), rng.choice([0.0, 0.5, 2.0, 9.0])) for _ in range(rng.randrange(12))))
        if rng.random() < 0.5:
            query.moves()
        if rng.random() < 0.5:
            query.later(rng.choice([0.0, 1.0, 5.0]))
        query.now_s += rng.choice([0.0, 0.3])
    query.later(20.0)
    assert query.world.shop.epochs == query.expected()
    assert query.ticks, "nothing was due without rows: nothing was shown"
    assert sum(len(rows) for rows in query.expected().values()) > 0
