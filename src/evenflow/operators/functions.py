"""The aggregates a user may ask for, under the names Spark gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

from evenflow.errors import InputError, UnknownNameError

SPREADS = ("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop")
FUNCTIONS = (
    *("sum", "count", "count_if", "min", "max", "mean", "first", "last", "min_by", "max_by"),
    *("count_distinct", "approx_count_distinct", *SPREADS, "collect_list", "collect_set", "percentile_approx"),
)
Option: TypeAlias = float | int | tuple[float, ...]

_TWO = ("min_by", "max_by")  # they take a column and the one that it goes by
_RSD, _LARGEST_RSD = 0.05, 0.39  # Spark's default, and the most that it takes
_ACCURACY = 10_000  # Spark's default


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

    `name` is what `alias` says; `more` are further columns, for functions of several; `options` what else the function
    is told; `condition` says which rows count. `given` is what the user gave for `inputs`, names, SQL or Columns, until
    `agg(...)` has made columns of it.
    """

    function: str
    column: str | None = None
    name: str | None = None
    more: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    condition: str | None = None
    given: tuple[str | SparkColumn, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be computed whatever the data."""
        if self.function not in FUNCTIONS:
            raise UnknownNameError("aggregate", self.function, FUNCTIONS)
        if self.column in (None, "*") and self.function != "count":
            raise InputError(f"{self.function}() needs the name of a column; only count() goes without")
        for column in self.columns:
            if not isinstance(column, str):
                raise InputError(f"{self.function}() takes the name of a column or a Column, got {column!r}")
        if self.function in _TWO and len(self.columns) != len(_TWO):
            raise InputError(f"{self.function}() takes two columns, the one to keep and the one it goes by, got {self}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is computed from."""
        return () if self.column is None else (self.column, *self.more)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns it needs to be there: also the condition's."""
        return self.columns if self.condition is None else (*self.columns, self.condition)

    def __str__(self) -> str:
        """Look as the user wrote it."""
        call = f"{self.function}({', '.join([*self.columns, *map(str, self.options)])})"
        return call if self.condition is None else f"{call} where {self.condition}"

    def alias(self, name: str) -> Agg:
        """Name the result: `agg(ef.sum("price").alias("total"))` is `agg(total=ef.sum("price"))`."""
        if not isinstance(name, str):
            raise InputError(f"alias() takes a name, got {name!r}")
        return replace(self, name=name)

    def where(self, condition: str | SparkColumn) -> Agg:
        """Let only some rows count: `ef.sum("price").where("kind = 'a'")`, or a Column; SQL's `FILTER (WHERE ...)`."""
        if self.condition is not None:
            raise InputError(f"{self}: where() comes once; join conditions with AND")
        if not isinstance(condition, str | SparkColumn):
            raise InputError(f"where() takes a condition in SQL such as \"kind = 'a'\", or a Column, got {condition!r}")
        return replace(self, condition=str(condition), given=(*self.given, condition))


def _over(function: str, *columns: Any, options: tuple[Option, ...] = ()) -> Agg:
    """Return an aggregate over what the user gave: names, or Columns."""
    first, *more = [str(one) if isinstance(one, SparkColumn) else one for one in columns]
    return Agg(function, first, more=tuple(more), options=options, given=columns)


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


def count_if(condition: str | SparkColumn) -> Agg:
    """Count the rows in which a column of truth values, or a condition as a Column, is true."""
    return _over("count_if", condition)


def count_distinct(column: str | SparkColumn, *columns: str | SparkColumn) -> Agg:
    """Count the different values of a column, or combinations of several, exactly; those with a null do not count."""
    return _over("count_distinct", column, *columns)


def approx_count_distinct(column: str | SparkColumn, rsd: float = _RSD) -> Agg:
    """Count the different values that are not null, about; `rsd` is the relative standard deviation allowed.

    It takes some hundred bytes per key, however many values there are, and the package `datasketches`.
    """
    if not 0 < rsd <= _LARGEST_RSD:
        raise InputError(f"approx_count_distinct: rsd must be above 0 and at most {_LARGEST_RSD}, got {rsd!r}")
    return _over("approx_count_distinct", column, options=(float(rsd),))


def stddev(column: str | SparkColumn) -> Agg:
    """Return the sample standard deviation of a column's numbers; null below two of them."""
    return _over("stddev", column)


def stddev_samp(column: str | SparkColumn) -> Agg:
    """Return the sample standard deviation: another name for `stddev`, as in Spark."""
    return _over("stddev_samp", column)


def stddev_pop(column: str | SparkColumn) -> Agg:
    """Return the standard deviation of a column's numbers, taken as all there are."""
    return _over("stddev_pop", column)


def variance(column: str | SparkColumn) -> Agg:
    """Return the sample variance of a column's numbers; null below two of them."""
    return _over("variance", column)


def var_samp(column: str | SparkColumn) -> Agg:
    """Return the sample variance: another name for `variance`, as in Spark."""
    return _over("var_samp", column)


def var_pop(column: str | SparkColumn) -> Agg:
    """Return the variance of a column's numbers, taken as all there are."""
    return _over("var_pop", column)


def collect_list(column: str | SparkColumn) -> Agg:
    """Keep all values that are not null, in the order in which they came."""
    return _over("collect_list", column)


def collect_set(column: str | SparkColumn) -> Agg:
    """Keep the different values that are not null, in the order in which they came first."""
    return _over("collect_set", column)


def percentile_approx(column: str | SparkColumn, percentage: float | Sequence[float], accuracy: int = _ACCURACY) -> Agg:
    """Return the value below which about a share of the values are, or an array of them for several shares.

    Its rank is wrong by about 1 / accuracy at most. It takes the package `datasketches`.
    """
    several = isinstance(percentage, list | tuple)
    shares = tuple(percentage) if isinstance(percentage, list | tuple) else (percentage,)
    if not shares or any(isinstance(one, bool) or not isinstance(one, float | int) for one in shares):
        raise InputError(f"percentile_approx: percentage is a number or a list of numbers, got {percentage!r}")
    if any(not 0 <= one <= 1 for one in shares):
        raise InputError(f"percentile_approx: percentage must be from 0 to 1, got {percentage!r}")
    if type(accuracy) is not int or accuracy < 1:
        raise InputError(f"percentile_approx: accuracy must be a whole number above 0, got {accuracy!r}")
    wanted = tuple(map(float, shares)) if several else float(shares[0])
    return _over("percentile_approx", column, options=(wanted, accuracy))


def min_by(column: str | SparkColumn, by: str | SparkColumn) -> Agg:
    """Keep the value of the row in which another column is smallest; of several such rows, the last."""
    return _over("min_by", column, by)


def max_by(column: str | SparkColumn, by: str | SparkColumn) -> Agg:
    """Keep the value of the row in which another column is largest; of several such rows, the last."""
    return _over("max_by", column, by)
