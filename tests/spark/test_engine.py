"""When the engine takes which step: what is decided goes out with the next epoch that is accepted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evenflow.control.journal import PhaseChanged
from evenflow.errors import StoppedError
from evenflow.migration import Event
from evenflow.spark.engine import Engine
from evenflow.state import FileRef
from tests.spark.one_process import Shop, World

SLOT = 0


@dataclass
class AsksForAMove(Shop):
    """A sink that asks for a move while an epoch is published."""

    engine: Engine | None = None
    at: int = 0

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        super().publish(epoch, files)
        if epoch == self.at and self.engine is not None:
            owner = int(self.engine.controller.table.owners[SLOT])
            self.engine.request([(SLOT, 1 - owner)])


def test_what_is_decided_while_an_epoch_waits_for_lanes_goes_with_that_epoch(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1), lanes=2, max_lag=1, copy_ahead=(None,))
    sink = AsksForAMove(world.shop.location, engine=world.engine)
    world.engine.sink = world.shop = sink
    for _ in range(3):  # nothing is heard of lanes before the third has to wait for the first
        world.run(world.rows())
    announced = [entry for entry in world.engine.journal.of(PhaseChanged) if entry.event is Event.ANNOUNCE]
    assert [(entry.epoch, entry.move.slot) for entry in announced] == [(2, SLOT)]
    world.finish()
    world.check()


def test_lanes_have_an_epoch_to_do_while_the_next_is_routed(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(2), lanes=2, max_lag=0)
    lags = []
    route = world.engine.router.route
    world.engine.router.route = lambda *args: (lags.append(world.engine.lag), route(*args))[1]  # type: ignore[method-assign,func-returns-value]
    for _ in range(3):
        world.run(world.rows())
    assert lags == [0, 1, 1], "lock-step is between epochs, not between routing and lanes"


def test_what_breaks_off_when_the_query_is_stopped_is_not_told_to_spark(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(3), lanes=2)

    def cancelled(*_: Any) -> Any:
        world.engine.interrupt()
        raise RuntimeError("Py4JJavaError: " + "at some.java.Class\n" * 1000)

    world.engine.router.route = cancelled  # type: ignore[method-assign,assignment]
    with pytest.raises(StoppedError) as stopped:
        world.run(world.rows())
    assert stopped.value.__suppress_context__, "Spark's search in such a text overflows its stack"
