"""evenflow keeps a keyed, stateful stream on Spark evenly loaded.

::

    rows ─key─▶ slot ─▶ routing table ─▶ block log ─▶ lane ─▶ operator + slot state ─▶ output
                             ▲                          │ records, busy time, pending, state bytes
                             │ control message          ▼
                      strategy ◀─ balancer ◀─ policy ◀─ load window ◀─ load report
                                     └─▶ journal ─▶ progress, dashboard, plots, tests
"""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from evenflow.control import Balancer, BalancerOptions, Plan, plan_moves
from evenflow.errors import EvenflowError, InputError, MissingNameError, PolicyError
from evenflow.migration import strategy_named
from evenflow.model import LaneLoad, LoadView, LoadWindow, Move, RoutingTable, SlotLoads
from evenflow.policies import Policy, Proposal, policy_named

if TYPE_CHECKING:
    from evenflow.operators import KeyBatch, KeyChanges, KeyOperator, SlotOperator
    from evenflow.operators.functions import (
        approx_count_distinct,
        avg,
        collect_list,
        collect_set,
        count,
        count_distinct,
        count_if,
        first,
        last,
        max,  # noqa: A004
        max_by,
        mean,
        min,  # noqa: A004
        min_by,
        percentile_approx,
        stddev,
        stddev_pop,
        stddev_samp,
        sum,  # noqa: A004
        var_pop,
        var_samp,
        variance,
    )
    from evenflow.spark import Query, keyed

__version__ = "0.1.0"

_AGGREGATES = (
    "approx_count_distinct",
    "avg",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "count_if",
    "first",
    "last",
    "max",
    "max_by",
    "mean",
    "min",
    "min_by",
    "percentile_approx",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
)
# Loaded at first use: neither the command line nor a policy needs Spark or Arrow.
_LATER = {
    "Query": "evenflow.spark",
    **dict.fromkeys(("KeyBatch", "KeyChanges", "KeyOperator", "SlotOperator"), "evenflow.operators"),
    "keyed": "evenflow.spark",
    **dict.fromkeys(_AGGREGATES, "evenflow.operators.functions"),
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    if name.startswith("_"):
        raise AttributeError(f"module 'evenflow' has no attribute {name!r}")
    close = get_close_matches(name, __all__, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise MissingNameError(
        f"evenflow has no {name!r}: its aggregates are {', '.join(_AGGREGATES)}; what they cannot do is an operator of "
        f"your own, keyed(...).apply(operator).{hint}"
    )


__all__ = [
    "Balancer",
    "BalancerOptions",
    "EvenflowError",
    "InputError",
    "KeyBatch",
    "KeyChanges",
    "KeyOperator",
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
    "approx_count_distinct",
    "avg",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "count_if",
    "first",
    "keyed",
    "last",
    "max",
    "max_by",
    "mean",
    "min",
    "min_by",
    "percentile_approx",
    "plan_moves",
    "policy_named",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "strategy_named",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
]
