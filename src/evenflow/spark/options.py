"""How a query is spread over lanes and kept even: the values behind `balance(...)`, and the defaults on Spark."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import get_args

from evenflow.control import BalancerOptions
from evenflow.engine import Handover
from evenflow.engine.away import LANE_GRACE_S
from evenflow.errors import InputError
from evenflow.migration import DEFAULT_STRATEGY, Strategy, strategy_named
from evenflow.model import DEFAULT_SLOTS
from evenflow.policies import DEFAULT_POLICY, Policy, policy_named
from evenflow.spark.lane_links import LANE_TIMEOUT_S
from evenflow.spark.route import Exchange

MAX_LAG = 4
PATIENCE = 8  # epochs that a report may lag behind, over and above what lanes may
# A cold first epoch is no measure, and one window shows no noise.
BRAKES = BalancerOptions(settle_windows=1, warm_up_windows=2, patience=MAX_LAG + PATIENCE)
_SHORTEST_TIMEOUT_S = 1.0  # a busy machine makes a lane wait that long for a core
_MOST_SLOTS = 1 << 15  # a slot travels as 16 bits


@dataclass(frozen=True)
class BalanceOptions:
    """What `balance(...)` comes to; every field has a default."""

    lanes: int | None = None
    slots: int = DEFAULT_SLOTS
    policy: Policy = field(default_factory=lambda: policy_named(DEFAULT_POLICY))
    strategy: Strategy = field(default_factory=lambda: strategy_named(DEFAULT_STRATEGY))
    exchange: Exchange | None = None
    max_lag: int = MAX_LAG
    handover: Handover = "at once"
    lane_timeout_s: float = LANE_TIMEOUT_S
    lane_grace_s: float = LANE_GRACE_S
    operator_timeout_s: float | None = None
    balancer: BalancerOptions = BRAKES

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        if self.lanes is not None and self.lanes < 1:
            raise InputError(f"balance: lanes must be at least 1, got {self.lanes}")
        if not 1 <= self.slots <= _MOST_SLOTS:
            raise InputError(f"balance: slots must be from 1 to {_MOST_SLOTS}, got {self.slots}")
        if self.lanes is not None and self.lanes > self.slots:
            raise InputError(
                f"balance: {self.lanes} lanes cannot share {self.slots} slots; give more slots or fewer lanes"
            )
        if self.max_lag < 0:
            raise InputError(f"balance: max_lag is a number of epochs, 0 or more, got {self.max_lag}")
        if not _SHORTEST_TIMEOUT_S <= self.lane_timeout_s < math.inf:
            raise InputError(
                f"balance: lane_timeout_s is a number of seconds, {_SHORTEST_TIMEOUT_S:g} or more, got "
                f"{self.lane_timeout_s:g}"
            )
        if not self.lane_grace_s >= 0:
            raise InputError(
                f"balance: lane_grace_s is a number of seconds, 0 or more, or math.inf to wait for ever, got "
                f"{self.lane_grace_s:g}"
            )
        if self.operator_timeout_s is not None and not 0 < self.operator_timeout_s < math.inf:
            raise InputError(
                f"balance: operator_timeout_s is a number of seconds above 0, or None for no limit, got "
                f"{self.operator_timeout_s:g}"
            )
        if self.handover not in get_args(Handover):
            raise InputError(
                f"balance: handover is {' or '.join(map(repr, get_args(Handover)))}, got {self.handover!r}"
            )
        if self.exchange not in (None, *get_args(Exchange)):
            raise InputError(
                f"balance: exchange is {' or '.join(map(repr, get_args(Exchange)))}, or None for whichever fits the "
                f"session, got {self.exchange!r}"
            )
