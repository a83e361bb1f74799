"""One stage of a query: what it does with rows, the columns it is given, and those it is keyed by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from evenflow.model import Contents
from evenflow.operators.base import Operator, Resident


@dataclass(frozen=True)
class Stage:
    """A keyed operator and its input rows; the first stage's come from the source, another's from one before it."""

    operator: Operator
    schema: pa.Schema
    keys: tuple[str, ...]

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of what it puts out."""
        return self.operator.output_schema(self.schema, self.keys)

    @property
    def view_schema(self) -> pa.Schema:
        """The columns in which people read its state."""
        return self.operator.view_schema(self.schema, self.keys)

    @property
    def needs_hash(self) -> bool:
        """Whether its rows must carry the hash of their key."""
        return self.operator.needs_hash(self.schema, self.keys)

    @property
    def contents(self) -> Contents:
        """What its state is made of."""
        return self.operator.contents(self.schema, self.keys)

    @property
    def key_types(self) -> tuple[str, ...]:
        """The types of its key columns."""
        return tuple(str(self.schema.field(key).type) for key in self.keys)

    def resumed(self, contents: Contents) -> Self:
        """Return the stage as it goes on from a checkpoint that holds `contents`."""
        return replace(self, operator=self.operator.resumed(contents))

    def open(self, slots: int) -> Resident:
        """Return the empty state of a lane in a key space of `slots` slots."""
        return self.operator.open(self.schema, self.keys, slots)
