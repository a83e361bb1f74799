"""Some rows of each key, in columns: what operators keep that look at rows again, such as the best or the last ones."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model.slots import IntArray
from evenflow.operators.arrays import fixed_dtype, is_variable
from evenflow.operators.column import StateColumn
from evenflow.operators.lists import Lists, as_lists, list_of, sizes_of


def check_kept(who: str, schema: pa.Schema, names: Sequence[str]) -> None:
    """Refuse columns of a type that cannot be kept."""
    for name in names:
        kind = schema.field(name).type
        if fixed_dtype(kind) is None and not is_variable(kind):
            raise InputError(
                f"{who}: column {name!r} has type {kind}, which lanes cannot keep; expected numbers, booleans, "
                "strings, binary, decimals, dates or timestamps: select the fields that you need before keyed()"
            )


class KeptRows(StateColumn):
    """The rows that each key keeps; in state tables a list per column."""

    def __init__(self, columns: Sequence[pa.Field]) -> None:
        """Start empty."""
        self.fields = tuple(pa.field(each.name, list_of(each.type, nullable=True)) for each in columns)
        self.lists = Lists([each.type for each in columns])

    def reserve(self, capacity: int, used: int) -> None:
        self.lists.reserve(capacity, used)

    def start(self, low: int, high: int) -> None:
        self.lists.clear(low, high)

    def read(self, rows: IntArray) -> list[pa.Array]:
        sizes, values = self.lists.sizes(rows), self.lists.take(rows)
        return [as_lists(each.type, sizes, array) for each, array in zip(self.fields, values, strict=True)]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        self.lists.put(rows, sizes_of(state[0]), [array.flatten() for array in state])

    def keep(self, rows: IntArray) -> None:
        self.lists.keep(rows)

    def nbytes(self, used: int) -> int:
        return self.lists.nbytes(used)
