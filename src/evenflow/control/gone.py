"""Lanes that do not come back, and those that do after all: which slots go where. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy.typing as npt

from evenflow.control.fitting import fitted
from evenflow.migration import Step
from evenflow.model import LaneId, RoutingTable


def adoptions(
    table: RoutingTable, gone: Collection[LaneId], takers: Collection[LaneId], weights: npt.ArrayLike
) -> Step:
    """Return the moves that give the slots of lanes that are gone to the least loaded of `takers`."""
    moves = table.difference(fitted(table, sorted(takers), weights))
    return tuple(replace(move, reason=f"lane {move.source} is gone") for move in moves if move.source in gone)


def share_of(lane: LaneId, table: RoutingTable, givers: Collection[LaneId], weights: npt.ArrayLike) -> Step:
    """Return the moves that give a lane which is back its share of what `givers` have."""
    moves = table.difference(fitted(table, sorted({*givers, lane}), weights))
    why = f"lane {lane} is back and takes its share"
    return tuple(replace(move, reason=why) for move in moves if move.target == lane and move.source in givers)
