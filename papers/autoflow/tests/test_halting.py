from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.control import Balancer
from evenflow.migration.strategies import Sudden, scheduled
from evenflow.model import Move
from evenflow.policies.static import Static
from papers.autoflow.protocol.halting import block_channels_run, halt_all_run
from papers.autoflow.protocol.run import autoflow_run
from papers.messages.decider import Script
from papers.messages.folds import HISTORY
from papers.messages.plant import Timing
from papers.messages.tests.streams import jittery, one_path_per_key, random_stream, table

PLAN = {3: [Move(0, 0, 1)], 8: [Move(4, 1, 2), Move(1, 1, 0)], 14: [Move(0, 1, 2)]}


@pytest.mark.parametrize("wire", [halt_all_run, block_channels_run], ids=lambda wire: wire.__name__)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=25)
def test_they_keep_every_promise_too(wire: Callable[..., Any], seed: int) -> None:
    wire(one_path_per_key(seed), replace(jittery(seed), fold=HISTORY), Script(PLAN)).run()


@pytest.mark.parametrize("wire", [halt_all_run, block_channels_run], ids=lambda wire: wire.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_a_state_may_come_long_before_its_marker(wire: Callable[..., Any], seed: int) -> None:
    """A receiver that is far behind gets the states of several migrations before it comes to the first."""
    moves = [Move(4, 1, 2), Move(0, 0, 2), Move(1, 1, 2), Move(3, 0, 2)]
    balancer = Balancer(table(), Static(), Sudden())
    balancer.queue(scheduled([(move,) for move in moves], 1, every=0))
    plant = replace(jittery(seed, service=4_000), timing=Timing(data=(0, 30_000), transfer=200_000))
    assert wire(one_path_per_key(seed), plant, balancer).run().trace.settled


def test_e15_more_waits_the_more_is_stopped() -> None:
    stream, plant = random_stream(1, records=2_000), jittery(1, service=500)
    held = [
        wire(stream, plant, Script(PLAN)).run().trace.held for wire in (autoflow_run, block_channels_run, halt_all_run)
    ]
    assert set(held[0]) <= {0, 1, 4}
    assert set(held[1]) > {0, 1, 4}
    assert held[0].total() < held[1].total() < held[2].total()
