"""What ships for users' tests: it passes good policies and tells what is wrong with bad ones."""

from __future__ import annotations

import random

import pytest

from evenflow.errors import PolicyError
from evenflow.model import LoadView, Move
from evenflow.policies import POLICIES, Proposal, policy_named
from evenflow.testing import check_policy


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_all_policies_of_ours_pass(name: str) -> None:
    check_policy(policy_named(name), must_rest=name != "uhlb-fresh")


class Restless:
    def propose(self, view: LoadView) -> list[Move]:
        owner, lanes = int(view.table.owners[0]), view.table.lanes
        others = [lane for lane in lanes if lane != owner]
        return [Move(0, owner, others[0])] if others else []


class Gambler:
    def propose(self, view: LoadView) -> list[Move]:
        source = int(view.table.owners[0])
        others = [lane for lane in view.table.lanes if lane != source]
        return [Move(0, source, others[0])] if others and random.random() < 0.5 else []


class Careless:
    def propose(self, view: LoadView) -> Proposal:
        busiest = view.lane_sums(view.last.slots.records) / view.last.slots.records.sum()
        return Proposal((Move(0, int(busiest.argmax()), 99),))


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (Restless(), "still moves slots after 100 rounds"),
        (Gambler(), "two different answers"),
        (Careless(), "no load at all: policy Careless failed: RuntimeWarning|lane 99, which does not exist"),
    ],
)
def test_bad_policies_are_told_what_is_wrong(policy: object, complaint: str) -> None:
    with pytest.raises(PolicyError, match=complaint):
        check_policy(policy)  # type: ignore[arg-type]
