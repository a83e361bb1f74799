"""Every order of events in a small world, up to a bound; `python -m tests.engine.small_world` goes further."""

from __future__ import annotations

import pytest

from tests.engine.small_world import WORLDS, Bounds, explore


@pytest.mark.parametrize("bounds", WORLDS, ids=range(len(WORLDS)))
def test_every_order_of_events(bounds: Bounds) -> None:
    count = explore(bounds)
    print(f"{bounds}: {count}")  # noqa: T201 - for whoever runs it with -s
    assert count.states > 50
    assert count.finished > 0
