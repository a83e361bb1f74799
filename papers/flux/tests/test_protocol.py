from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.control import Balancer
from evenflow.control.journal import Decided
from evenflow.errors import ProtocolError
from evenflow.migration.strategies import Sudden
from evenflow.model import Move
from evenflow.policies.flux import FluxLoad
from papers.flux.protocol import flux_run
from papers.messages.decider import Script
from papers.messages.folds import HISTORY
from papers.messages.plant import Timing
from papers.messages.tests.streams import LANES, jittery, one_path_per_key, random_stream, table

PLAN = {3: [Move(0, 0, 1), Move(4, 1, 2)], 6: [Move(3, 0, 2)]}


@given(st.integers(0, 10_000))
@settings(max_examples=40)
def test_m7_no_loss_no_duplicate_and_order_whatever_the_delays(seed: int) -> None:
    flux_run(one_path_per_key(seed), replace(jittery(seed), fold=HISTORY), Script(PLAN)).run()


def test_m6_m7_producers_have_one_map_after_the_restart() -> None:
    run = flux_run(random_stream(1), jittery(1), Script(PLAN))
    run.run()
    assert len({tuple(producer.owners) for producer in run.producers}) == 1
    assert run.producers[0].owners[:5] == [1, 1, 2, 2, 2]


def test_m7_partitions_that_do_not_move_never_wait() -> None:
    held = flux_run(random_stream(2, records=1_000), jittery(2), Script(PLAN)).run().trace.held
    assert set(held) <= {0, 3, 4}
    assert sum(held.values()) > 0


def test_m8_others_are_served_during_a_long_transfer() -> None:
    stream = random_stream(3, span=1_000_000)
    plant = replace(jittery(3, service=500), timing=Timing(transfer=300_000))
    result = flux_run(stream, plant, Script({3: [Move(0, 0, 1)]})).run()
    move = result.trace.moves[0, 3]
    during = (result.served_at > move.handed_off) & (result.served_at < move.installed)
    assert set(result.served_by[during]) == set(range(LANES))
    assert 0 not in set(stream.slot[during])


@pytest.mark.parametrize("seed", range(3))
def test_a14_acknowledgements_that_overtake_the_data_prove_nothing(seed: int) -> None:
    """In-flight records reach the old consumer after it has given the partition away: the checker must see it."""
    plant = jittery(seed, service=200)
    plant = replace(plant, timing=replace(plant.timing, data=(20_000, 40_000), control=(0, 1_000)))
    stream = random_stream(seed, records=1_000)
    flux_run(stream, plant, Script(PLAN)).run()
    with pytest.raises(ProtocolError, match="does not hold it"):
        flux_run(stream, plant, Script(PLAN), acks_in_order=False).run()


def test_the_load_policy_decides_through_the_balancer() -> None:
    stream = random_stream(4, records=3_000, keys=240, span=2_000_000)
    hot = replace(stream, slot_of_key=np.resize([0, 3, 0, 3, 1, 2], 240))
    plant = jittery(4, service=1_300)
    balancer = Balancer(table(), FluxLoad(), Sudden())
    result = flux_run(hot, plant, balancer).run()
    assert any(entry.moves for entry in balancer.journal.of(Decided))
    assert result.trace.settled
