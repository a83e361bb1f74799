"""Aggregates that let keys go: what windows and lifetimes do to a state, without time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from evenflow.model import EpochTime
from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators import LATEST, SLOT, Aggregate, Folded, by_slot
from evenflow.operators.aggregate import AggregateState

Over = Callable[[pa.Table], BoolArray]  # of output rows: whose key is to go


def nobody(output: pa.Table) -> BoolArray:
    none: BoolArray = pa.repeat(pa.scalar(value=False), output.num_rows).to_numpy(zero_copy_only=False)
    return none


@dataclass(frozen=True)
class Removing(Aggregate):
    """Removes the keys of which `over` says so, after each fold that has touched them; puts out the others."""

    over: Over = nobody

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> RemovingState:
        return RemovingState(self, schema, keys, slots)


class RemovingState(AggregateState):
    """The state of `Removing`."""

    def __init__(self, operator: Removing, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        super().__init__(operator, schema, keys, slots)
        self._over = operator.over

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:
        touched = self.absorb(rows, slots, time)
        over = self._over(self.read(touched)[1])
        changes, output = self.read(touched[~over])
        both = (changes, self.remove(touched[over]))
        return Folded(by_slot([(table, table[SLOT].to_numpy()) for table in both])[0], output, changes[SLOT].to_numpy())
