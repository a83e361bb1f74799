"""The aggregates a user may ask for, under the names Spark gives them."""

from __future__ import annotations

from dataclasses import dataclass

from evenflow.errors import InputError, UnknownNameError

FUNCTIONS = ("sum", "count", "min", "max", "mean", "first", "last")


@dataclass(frozen=True, slots=True)
class Agg:
    """One aggregate over a column; `count` without a column counts rows."""

    function: str
    column: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be computed whatever the data."""
        if self.function not in FUNCTIONS:
            raise UnknownNameError("aggregate", self.function, FUNCTIONS)
        if self.column is None and self.function != "count":
            raise InputError(f"{self.function}() needs the name of a column; only count() goes without")
        if self.column is not None and not isinstance(self.column, str):
            raise InputError(f"{self.function}() takes the name of a column, got {self.column!r}")

    def __str__(self) -> str:
        """Look as the user wrote it."""
        return f"{self.function}({self.column or ''})"


def sum(column: str) -> Agg:  # noqa: A001 - Spark's name
    """Add up a numeric column; nulls are ignored, the sum of only nulls is null."""
    return Agg("sum", column)


def count(column: str | None = None) -> Agg:
    """Count rows, or those in which a column is not null."""
    return Agg("count", column)


def min(column: str) -> Agg:  # noqa: A001 - Spark's name
    """Keep the smallest value that is not null; NaN is larger than any number."""
    return Agg("min", column)


def max(column: str) -> Agg:  # noqa: A001 - Spark's name
    """Keep the largest value that is not null; NaN is larger than any number."""
    return Agg("max", column)


def mean(column: str) -> Agg:
    """Average the values that are not null."""
    return Agg("mean", column)


def first(column: str) -> Agg:
    """Keep the value of the key's first row, be it null."""
    return Agg("first", column)


def last(column: str) -> Agg:
    """Keep the value of the key's last row, be it null."""
    return Agg("last", column)
