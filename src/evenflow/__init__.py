"""evenflow keeps a keyed, stateful stream on Spark evenly loaded.

::

    rows ─key─▶ slot ─▶ routing table ─▶ block log ─▶ lane ─▶ operator + slot state ─▶ output
                             ▲                          │ records, busy time, pending, state bytes
                             │ control message          ▼
                      strategy ◀─ controller ◀─ policy ◀─ load window ◀─ load report
                                     └─▶ journal ─▶ progress, dashboard, plots, tests
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evenflow.control import Controller, ControllerOptions, Plan, plan_moves
from evenflow.errors import EvenflowError, InputError, PolicyError
from evenflow.migration import strategy_named
from evenflow.model import LaneLoad, LoadView, LoadWindow, Move, RoutingTable, SlotLoads
from evenflow.policies import Policy, Proposal, policy_named

if TYPE_CHECKING:
    from evenflow.operators import SlotOperator
    from evenflow.operators.functions import count, first, last, max, mean, min, sum  # noqa: A004 - Spark's names
    from evenflow.spark import Query, keyed

__version__ = "0.1.0"

# Loaded at first use: neither the command line nor a policy needs Spark or Arrow.
_LATER = {
    "Query": "evenflow.spark",
    "SlotOperator": "evenflow.operators",
    "keyed": "evenflow.spark",
    **dict.fromkeys(("count", "first", "last", "max", "mean", "min", "sum"), "evenflow.operators.functions"),
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'evenflow' has no attribute {name!r}")


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
    "Query",
    "RoutingTable",
    "SlotLoads",
    "SlotOperator",
    "__version__",
    "count",
    "first",
    "keyed",
    "last",
    "max",
    "mean",
    "min",
    "plan_moves",
    "policy_named",
    "strategy_named",
    "sum",
]
