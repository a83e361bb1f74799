"""What a what-if changes when another policy is asked, and what it leaves as it is."""

from __future__ import annotations

import pytest

from evenflow.model import RoutingTable
from evenflow.policies import policy_named, starting_table
from evenflow.sim.scenario_file import read_scenario
from evenflow.sim.what_if import with_choice

SCENARIO = b"""
lanes = 4
slots = 64
duration_s = 10.0

[lane]
records_per_s = 400.0

[load]
records_per_s = 1000.0
skew = "hotspot"
lanes = [0]
share = 0.5
"""


@pytest.mark.parametrize("policy", ["dpa-halving", "dpa-doubling", "even"])
def test_another_policy_starts_with_its_own_table_and_meets_the_same_load(policy: str) -> None:
    given = read_scenario(SCENARIO, "scenario")
    changed = with_choice(given, policy, None)
    own = starting_table(policy_named(policy), 64, range(4))
    assert changed.scenario.first_table.owners.tolist() == own.owners.tolist()
    assert (own.owners == RoutingTable.even(64, 4).owners).all() == (policy == "even")
    assert changed.scenario.arrivals is given.scenario.arrivals
    assert changed.names["policy"] == policy


def test_another_strategy_starts_as_the_file_says() -> None:
    given = read_scenario(SCENARIO, "scenario")
    assert with_choice(given, None, "sudden").scenario is given.scenario
