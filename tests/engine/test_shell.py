"""When the engine takes which step: what is decided goes out with the next epoch that is accepted."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from evenflow.control.journal import PhaseChanged
from evenflow.errors import EvenflowError, InputError, StoppedError, TakenOverError
from evenflow.migration import Event
from evenflow.spark import shell
from evenflow.spark.lane_start import LaneStart
from evenflow.spark.shell import Shell
from evenflow.state import FileRef
from tests.engine.one_process import Shop, World

SLOT = 0


@dataclass
class AsksForAMove(Shop):
    """A sink that asks for a move while an epoch is published."""

    engine: Shell | None = None
    at: int = 0

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        super().publish(epoch, files)
        if epoch == self.at and self.engine is not None:
            owner = int(self.engine.balancer.table.owners[SLOT])
            self.engine.request([(SLOT, 1 - owner)])


def test_what_is_decided_while_an_epoch_waits_for_lanes_goes_with_that_epoch(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1), lanes=2, max_lag=1, copy_ahead=(None,))
    sink = AsksForAMove(world.shop.location, engine=world.shell)
    world.shell.publisher.sink = world.shop = sink
    for _ in range(3):  # nothing is heard of lanes before the third has to wait for the first
        world.run(world.rows())
    announced = [entry for entry in world.shell.journal.of(PhaseChanged) if entry.event is Event.ANNOUNCE]
    assert [(entry.epoch, entry.move.slot) for entry in announced] == [(2, SLOT)]
    world.finish()
    world.check()


def test_every_world_sees_to_it_that_nothing_slow_is_called_under_the_lock(tmp_path: Path) -> None:
    shell = World(tmp_path, random.Random(1), lanes=2).shell
    slow: list[Callable[[], object]] = [
        lambda: shell.checkpoint.folder.names("epochs"),
        lambda: shell.links.send(0, "0", Mock()),
        lambda: shell.publisher.sink.publish(0, ()),
        lambda: shell.router.route(Mock(), 0, shell.balancer.table),
        shell.spare_slots,
    ]
    for call in slow:
        with shell._lock, pytest.raises(AssertionError, match="under the lock"):
            call()


def test_lanes_have_an_epoch_to_do_while_the_next_is_routed(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(2), lanes=2, max_lag=0)
    lags = []
    route = world.shell.router.route
    world.shell.router.route = lambda *args: (lags.append(world.shell.intake.lag), route(*args))[1]  # type: ignore[method-assign,func-returns-value]
    for _ in range(3):
        world.run(world.rows())
    assert lags == [0, 1, 1], "lock-step is between epochs, not between routing and lanes"


def test_what_breaks_off_when_the_query_is_stopped_is_no_failure(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(3), lanes=2)

    def cancelled(*_: Any) -> Any:
        world.shell.interrupt()
        raise RuntimeError("the job was cancelled")

    world.shell.router.route = cancelled  # type: ignore[method-assign,assignment]
    with pytest.raises(RuntimeError):
        world.run(world.rows())
    assert world.shell.failure is None
    assert isinstance(world.shell.error, StoppedError)


@dataclass
class Hangs(Shop):
    """A sink that does not return before it is let go."""

    entered: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        self.entered.set()
        assert self.let_go.wait(60)
        super().publish(epoch, files)


def test_a_sink_that_hangs_does_not_hold_up_a_stop_and_does_not_count_when_it_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, random.Random(9), lanes=2, max_lag=1)
    sink = Hangs(world.shop.location)
    stuck = world.shell
    stuck.publisher.sink = sink
    world.run(world.rows())
    while not stuck.checkpoint.recover().unpublished:
        stuck._listen()
    stuck.threaded = True
    stuck.start_publishing()
    assert sink.entered.wait(60)
    stuck.stop(patience_s=0.1)
    assert "has not returned within 0.1 s" in caplog.text
    sink.let_go.set()
    for thread in stuck._threads:
        thread.join(60)
    assert stuck.checkpoint.recover().last_published == -1, "it was given up: nothing of it counts"
    assert stuck.failure is None
    world.restart()
    world.finish()
    world.check()


def test_a_driver_that_was_taken_over_ends_and_the_other_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(4), lanes=2, max_lag=1)
    world.run(world.rows())
    old = world.shell
    while not old.checkpoint.recover().unpublished:
        old._listen()
    world.restart()
    with pytest.raises(TakenOverError, match="was taken over by another run of its query"):
        old.on_batch(cast("Any", world.rows()), 1)
    with pytest.raises(TakenOverError):  # what it had committed is published by the other
        old.publisher.publish_ready()
    assert isinstance(old.error, TakenOverError)
    for _ in range(3):
        world.run(world.rows())
    world.finish()
    world.check()


def test_a_driver_without_anything_to_do_notices_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, random.Random(5), lanes=2)
    old = world.shell
    world.links.may_rest = True
    monkeypatch.setattr(shell, "_LOOK_S", -1.0)
    world.restart()
    with pytest.raises(TakenOverError):
        old._loop()


def test_whatever_fails_after_a_takeover_failed_of_it(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(6), lanes=2)
    old = world.shell
    world.restart()
    for each in (old, world.shell):
        each.fail(RuntimeError("a file is missing"))
    assert isinstance(old.error, TakenOverError)
    assert isinstance(world.shell.error, RuntimeError)


def test_a_lane_that_loads_may_take_long_and_one_that_never_comes_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = World(tmp_path, random.Random(6), lanes=2).shell
    monkeypatch.setattr(running.engine, "missing", lambda: [1])
    start = LaneStart(running.engine, running.links, running.lane_start_s)
    start.refuse_to_wait(deadline=0.0)
    monkeypatch.setattr(running.links, "has_come", lambda lane: lane != 1)
    with pytest.raises(EvenflowError, match=r"lanes \[1\] do not start"):
        start.refuse_to_wait(deadline=0.0)


def test_state_can_be_read_after_a_sweep_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, random.Random(7), lanes=2)
    world.run(world.rows())
    with monkeypatch.context() as broken:
        broken.setattr(world.shell.checkpoint, "sweep", Mock(side_effect=OSError("the disk is gone")))
        with pytest.raises(OSError, match="the disk is gone"):
            world.finish()
    assert not world.shell._reading.locked()


def test_a_query_that_has_ended_starts_no_lanes_and_plans_no_moves(tmp_path: Path) -> None:
    ended = World(tmp_path, random.Random(8), lanes=2).shell
    ended.stop()
    with pytest.raises(InputError, match="resize: the query has ended"):
        ended.resize(3)
    with pytest.raises(InputError, match="rebalance: the query has ended"):
        ended.request([(SLOT, 0)])
