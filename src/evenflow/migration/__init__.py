"""How a decision is carried out, step by step: strategies and the life of a move. No I/O."""

from evenflow.migration.protocol import Event, MoveLife, Phase
from evenflow.migration.strategies import (
    DEFAULT_STRATEGY,
    STRATEGIES,
    QueuedStep,
    Step,
    Strategy,
    Weights,
    scheduled,
    steps_between,
    strategy_named,
    strategy_of,
)

__all__ = [
    "DEFAULT_STRATEGY",
    "STRATEGIES",
    "Event",
    "MoveLife",
    "Phase",
    "QueuedStep",
    "Step",
    "Strategy",
    "Weights",
    "scheduled",
    "steps_between",
    "strategy_named",
    "strategy_of",
]
