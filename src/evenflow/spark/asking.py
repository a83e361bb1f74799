"""What is asked of a running query, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evenflow.errors import InputError
from evenflow.model import Epoch, LaneId, Move, SlotId
from evenflow.model.registry import fitted


def lane_count(lanes: int) -> int:
    """Return how many lanes `resize` is asked for."""
    count: int = fitted("resize", "lanes", lanes, int)
    return count


def stage_number(stage: int, stages: int) -> int:
    """Return the stage whose state is asked for."""
    number: int = fitted("state", "stage", stage, int)
    if not 0 <= number < stages:
        raise InputError(f"state: stage is a number from 0 to {stages - 1}, in the order of the query's, got {number}")
    return number


def first_epoch(not_before: Epoch) -> Epoch:
    """Return the epoch at which `rebalance` may begin."""
    epoch: Epoch = fitted("rebalance", "not_before", not_before, int)
    if epoch < 0:
        raise InputError(f"rebalance: not_before is an epoch, 0 or later, got {epoch}")
    return epoch


def wanted_moves(moves: Iterable[Move | tuple[SlotId, LaneId]]) -> list[Move | tuple[SlotId, LaneId]]:
    """Return the moves that `rebalance` is asked for."""
    expected = "rebalance: expected a list of pairs (slot, lane to go to), such as [(3, 1)], or of Moves"
    if isinstance(moves, str | bytes | dict | Move) or not isinstance(moves, Iterable):
        raise InputError(f"{expected}, got {moves!r}")
    return [move if isinstance(move, Move) else _pair(expected, move) for move in moves]


def _pair(expected: str, given: Any) -> tuple[SlotId, LaneId]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InputError(f"{expected}; one of them is {given!r}")
    numbers = tuple(given)
    try:
        slot, lane = (fitted("rebalance", "a move", number, int) for number in numbers)
    except (InputError, ValueError):
        raise InputError(f"{expected}; one of them is {given!r}") from None
    return slot, lane
