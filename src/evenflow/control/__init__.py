"""Observe, decide, dispose: the balancer, its journal, and single plans. No I/O, no clock."""

from evenflow.control.balancer import Balancer
from evenflow.control.journal import Journal
from evenflow.control.measure import balance_of
from evenflow.control.messages import Ack, BalancerState, LaneWish
from evenflow.control.options import BalancerOptions
from evenflow.control.plan import Plan, plan_moves

__all__ = [
    "Ack",
    "Balancer",
    "BalancerOptions",
    "BalancerState",
    "Journal",
    "LaneWish",
    "Plan",
    "balance_of",
    "plan_moves",
]
