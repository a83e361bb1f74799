"""A second disturbance while the first is under way: move again, crash, restart, resize, in every phase, every kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from evenflow.engine import Handover
from evenflow.errors import InputError
from evenflow.migration import Phase
from evenflow.model import Move
from tests.engine.calculations import Diary
from tests.engine.one_process import World

LANES = 3
MOVED = (0, 3, 6)  # slots of lane 0 that go to lane 1


def planned(world: World) -> bool:
    return bool(world.shell.balancer.planned)


def in_phase(phase: Phase) -> Callable[[World], bool]:
    return lambda world: any(life.phase is phase for life in world.shell.balancer.in_flight)


PHASES: dict[str, Callable[[World], bool]] = {
    "planned": planned,
    "announced": in_phase(Phase.ANNOUNCED),
    "in transit": in_phase(Phase.IN_TRANSIT),
}


def go(world: World, slots: tuple[int, ...], target: int) -> None:
    """Ask for moves; those that cannot be are refused, and nothing changes."""
    owners = world.shell.balancer.table.owners
    world.shell.request([Move(slot, int(owners[slot]), target) for slot in slots if owners[slot] != target])


def die(world: World, *lanes: int) -> None:
    for lane in lanes:
        world.links.kill(lane)


SECOND: dict[str, Callable[[World], None]] = {
    "back": lambda world: go(world, MOVED, 0),
    "on": lambda world: go(world, MOVED, 2),
    "others too": lambda world: go(world, (1, 2, 5), 0),
    "source dies": lambda world: die(world, 0),
    "target dies": lambda world: die(world, 1),
    "both die": lambda world: die(world, 0, 1),
    "restart": lambda world: world.restart(),
    "more lanes": lambda world: world.shell.resize(4),
    "fewer lanes": lambda world: world.shell.resize(1),
}


def world_of(place: Path, seed: int, handover: Handover, copy_ahead: int | None, strategy: str = "sudden") -> World:
    """Return a query with some state, and a backlog of three epochs."""
    world = World(
        place,
        random.Random(seed),
        lanes=LANES,
        max_lag=8,
        calculation=Diary(),
        strategies=(strategy,),
        handovers=(handover,),
        copy_ahead=(copy_ahead,),
    )
    world.run(world.rows(60))
    world.finish()
    return world


def backlog(world: World, epochs: int = 3) -> None:
    for _ in range(epochs):
        world.run(world.rows(40))


def reach(world: World, phase: Callable[[World], bool]) -> None:
    """Let things happen until the first disturbance stands there; new epochs begin now and then."""
    for step in range(400):
        if phase(world):
            return
        if step % 5 == 4 and world.shell.intake.lag <= world.max_lag:
            world.run(world.rows(10))
        else:
            world.go_on(1)
    pytest.fail("the phase was never reached")


def end(world: World, lanes: int | None = None) -> None:
    """Let everything come to its end; all that was asked for is carried out and nothing was lost."""
    for _ in range(40):
        world.run(world.rows(10))
        world.finish()
        balancer = world.shell.balancer
        there = lanes is None or len(balancer.table.lanes) == lanes
        if not balancer.planned and not balancer.in_flight and there:
            break
    world.check()
    assert not balancer.planned
    assert not balancer.in_flight
    if lanes is not None:
        assert len(balancer.table.lanes) == lanes


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("handover", ["at once", "at the timestamp"])
@pytest.mark.parametrize("copy_ahead", [None, 0], ids=["handoff", "copied ahead"])
def test_while_slots_move(tmp_path: Path, second: str, handover: Handover, copy_ahead: int | None) -> None:
    for number, phase in enumerate(PHASES):
        world = world_of(tmp_path / phase, number, handover, copy_ahead)
        backlog(world)
        go(world, MOVED, 1)
        reach(world, PHASES[phase])
        SECOND[second](world)
        end(world, {"more lanes": 4, "fewer lanes": 1}.get(second))


@pytest.mark.parametrize("first", [1, 4])
@pytest.mark.parametrize("second", [name for name in SECOND if not name.endswith("lanes")])
def test_while_lanes_come_or_go(tmp_path: Path, first: int, second: str) -> None:
    """What is asked for goes through, whoever dies meanwhile; after a restart there are as many lanes as it says."""
    for number, phase in enumerate(PHASES):
        world = world_of(tmp_path / phase, number, "at once", None, "fluid")
        backlog(world)
        world.shell.resize(first)
        reach(world, PHASES[phase])
        try:
            SECOND[second](world)
        except InputError as refused:
            assert "is being stopped" in str(refused)  # noqa: PT017 - others may pass
        end(world, LANES if second == "restart" else first)


@pytest.mark.parametrize("first", [1, 4])
def test_a_resize_while_lanes_come_or_go_is_refused(tmp_path: Path, first: int) -> None:
    world = world_of(tmp_path, 1, "at once", None, "fluid")
    world.shell.resize(first)
    with pytest.raises(InputError, match=r"resize: lanes \[.*\] are .*; wait until they are"):
        world.shell.resize(2)
    end(world, first)
    world.shell.resize(2)
    end(world, 2)
