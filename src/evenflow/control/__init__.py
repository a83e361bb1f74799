"""Observe, decide, dispose: the controller, its journal, and single plans. No I/O, no clock."""

from evenflow.control.controller import Controller
from evenflow.control.journal import Journal
from evenflow.control.measure import balance_of
from evenflow.control.messages import Ack, ControllerState, LaneWish
from evenflow.control.options import ControllerOptions
from evenflow.control.plan import Plan, plan_moves

__all__ = [
    "Ack",
    "Controller",
    "ControllerOptions",
    "ControllerState",
    "Journal",
    "LaneWish",
    "Plan",
    "balance_of",
    "plan_moves",
]
