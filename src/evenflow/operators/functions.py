"""The aggregates a user may ask for, under the names Spark gives them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from evenflow.errors import InputError, UnknownNameError

FUNCTIONS = ("sum", "count", "min", "max", "mean", "first", "last")


@runtime_checkable
class SparkColumn(Protocol):
    """A column of Spark's, or an expression over some; known by two of its methods, since lanes know no Spark."""

    def alias(self, *alias: str) -> Any:
        """Name it."""

    def cast(self, dataType: Any) -> Any:
        """Convert it."""


@dataclass(frozen=True, slots=True)
class Agg:
    """One aggregate over a column; `count` without a column counts rows.

    `name` is what `alias` says. `expression` is what the column is computed from, until `agg(...)` has given it a name.
    """

    function: str
    column: str | None = None
    name: str | None = None
    expression: SparkColumn | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be computed whatever the data."""
        if self.function not in FUNCTIONS:
            raise UnknownNameError("aggregate", self.function, FUNCTIONS)
        if self.column in (None, "*") and self.function != "count":
            raise InputError(f"{self.function}() needs the name of a column; only count() goes without")
        if self.column is not None and not isinstance(self.column, str):
            raise InputError(f"{self.function}() takes the name of a column or a Column, got {self.column!r}")

    def __str__(self) -> str:
        """Look as the user wrote it."""
        return f"{self.function}({self.column or ''})"

    def alias(self, name: str) -> Agg:
        """Name the result: `agg(ef.sum("price").alias("total"))` is `agg(total=ef.sum("price"))`."""
        if not isinstance(name, str):
            raise InputError(f"alias() takes a name, got {name!r}")
        return replace(self, name=name)


def _over(function: str, column: Any) -> Agg:
    """Return an aggregate over what the user gave: a name, or a Column."""
    return Agg(function, str(column), expression=column) if isinstance(column, SparkColumn) else Agg(function, column)


def sum(column: str | SparkColumn) -> Agg:  # noqa: A001 - Spark's name
    """Add up a numeric column; nulls are ignored, the sum of only nulls is null."""
    return _over("sum", column)


def count(column: str | SparkColumn | int | None = None) -> Agg:
    """Count rows (also as `count("*")` or `count(1)`), or those in which a column is not null."""
    rows = column is None or (isinstance(column, str) and column == "*") or (type(column) is int and column == 1)
    return Agg("count") if rows else _over("count", column)


def min(column: str | SparkColumn) -> Agg:  # noqa: A001 - Spark's name
    """Keep the smallest value that is not null; NaN is larger than any number."""
    return _over("min", column)


def max(column: str | SparkColumn) -> Agg:  # noqa: A001 - Spark's name
    """Keep the largest value that is not null; NaN is larger than any number."""
    return _over("max", column)


def mean(column: str | SparkColumn) -> Agg:
    """Average the values that are not null."""
    return _over("mean", column)


def avg(column: str | SparkColumn) -> Agg:
    """Average the values that are not null: another name for `mean`, as in Spark."""
    return mean(column)


def first(column: str | SparkColumn) -> Agg:
    """Keep the value of the key's first row, be it null."""
    return _over("first", column)


def last(column: str | SparkColumn) -> Agg:
    """Keep the value of the key's last row, be it null."""
    return _over("last", column)
