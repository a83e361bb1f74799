"""Every order of events in a small world, up to a bound; `python -m tests.engine.small_world` goes further."""

from __future__ import annotations

import pytest

from evenflow.engine import Handover
from tests.engine.small_world import MOVING, WORLDS, Bounds, Choice, explore


@pytest.mark.parametrize(("begin", "handover", "copy_ahead"), WORLDS)
def test_every_order_of_events(begin: tuple[Choice, ...], handover: Handover, copy_ahead: bool) -> None:
    depth = 4 if begin is MOVING else 3  # a move of its own is asked for in the first few events of the others
    bounds = Bounds(depth, 1, 1, handover, copy_ahead, begin)
    count = explore(bounds)
    print(f"{bounds}: {count}")  # noqa: T201 - for whoever runs it with -s
    assert count.states > 100
    assert count.finished > 0
