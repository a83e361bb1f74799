"""evenflow keeps a keyed, stateful stream on Spark evenly loaded.

::

    rows ─key─▶ slot ─▶ routing table ─▶ block log ─▶ lane ─▶ operator + slot state ─▶ output
                             ▲                          │ records, busy time, pending, state bytes
                             │ control message          ▼
                      strategy ◀─ controller ◀─ policy ◀─ load window ◀─ load report
                                     └─▶ journal ─▶ progress, dashboard, plots, tests
"""

from importlib.metadata import version

from evenflow.control import Controller, ControllerOptions, Plan, plan_moves
from evenflow.errors import EvenflowError, InputError, PolicyError
from evenflow.migration import strategy_named
from evenflow.model import LaneLoad, LoadView, LoadWindow, Move, RoutingTable, SlotLoads
from evenflow.policies import Policy, Proposal, policy_named

__version__ = version("evenflow")

__all__ = [
    "Controller",
    "ControllerOptions",
    "EvenflowError",
    "InputError",
    "LaneLoad",
    "LoadView",
    "LoadWindow",
    "Move",
    "Plan",
    "Policy",
    "PolicyError",
    "Proposal",
    "RoutingTable",
    "SlotLoads",
    "__version__",
    "plan_moves",
    "policy_named",
    "strategy_named",
]
