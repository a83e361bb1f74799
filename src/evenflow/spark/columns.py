"""The columns of a stream, found and named as Spark's `groupBy` finds and names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
from pyspark.sql.types import NumericType, StructType

from evenflow.errors import InputError
from evenflow.operators import Aggregate, Dedup, Operator, Top
from evenflow.spark.internals import Expression, column_text, expressions_of, output_of
from evenflow.spark.watermarks import has_mark


@dataclass(frozen=True)
class Chosen:
    """A column of the stream, or an expression over its columns, and the name under which lanes know it.

    `identity` is the same for what is the same to Spark, however it was written.
    """

    name: str
    column: Column
    identity: str

    @property
    def named(self) -> Column:
        """The column under its name, to be selected."""
        return self.column.alias(self.name)


def quoted(name: str) -> str:
    """Return a column's name so that Spark takes it as it stands, dots and all."""
    return "`" + name.replace("`", "``") + "`"


class StreamColumns:
    """The columns of one stream."""

    def __init__(self, stream: DataFrame) -> None:
        """Look at a stream."""
        self.stream = stream
        self.names = list(stream.columns)
        self._exact = stream.sparkSession.conf.get("spark.sql.caseSensitive") == "true"

    def folded(self, name: str) -> str:
        """Return a name in the form in which Spark compares it, by `spark.sql.caseSensitive`."""
        return name if self._exact else name.lower()

    def column(self, who: str, given: Any) -> Column:
        """Return what a user names or gives, as a Column; `who` stands in messages."""
        if isinstance(given, Column):
            return given
        if not isinstance(given, str):
            raise InputError(f"{who}: expected the name of a column or a Column such as F.col('x'), got {given!r}")
        alike = [name for name in self.names if self.folded(name) == self.folded(given)]
        head = given.partition(".")[0]
        nested = "." in given and any(self.folded(name) == self.folded(head) for name in self.names)
        if alike and not nested:  # as it stands, dots and all
            self._refuse_twins(who, given, alike)
            return F.col(quoted(given))
        if "." in given or "`" in given:  # a field of a struct, or a name in Spark's quotes
            return F.col(given)
        raise InputError(f"{who}: there is no column {given!r}; {self.there_are(given)}")

    def there_are(self, missing: str) -> str:
        """Return what to say when a column is missing."""
        close = get_close_matches(missing, self.names, n=1)
        hint = f". Did you mean {close[0]!r}?" if close else ""
        return f"the stream has {', '.join(self.names)}{hint}"

    def keys(self, given: Sequence[Any]) -> tuple[Chosen, ...]:
        """Return the key columns, under the names that Spark's `groupBy` gives them."""
        columns = [self.column("keyed", key) for key in given]
        with told_by_spark("keyed", columns):
            names = self.stream.groupBy(*columns).agg(F.count(F.lit(1))).schema.names[: len(columns)]
            expressions = expressions_of(self.stream.select(*columns))
        keys = []
        for name, column, expression in zip(names, columns, expressions, strict=True):
            self._refuse_sessions("keyed", column, expression)
            if not expression.deterministic:
                raise InputError(
                    f"keyed: {column_text(column)} gives another value each time it is computed; a key must not: make "
                    "it a column of the source, or leave it out"
                )
            keys.append(Chosen(name, column, expression.identity))
        self._refuse_clashes("keyed", keys, "give one of the keys another name with .alias('...')")
        if len({key.identity for key in keys}) < len(keys):
            raise InputError(f"keyed: each key once, got {', '.join(names)}")
        return tuple(keys)

    def values(self, who: str, given: Iterable[Any], keys: Sequence[Chosen]) -> list[Chosen]:
        """Return the columns that aggregates take, in the order given.

        A column that is a key goes by the key's name, one of the stream by its own, anything else by how it is written.
        """
        columns = [(one, self.column(who, one)) for one in given]
        if not columns:
            return []
        plain = [column for _, column in columns]
        with told_by_spark(who, plain):
            self.stream.groupBy().agg(*(F.count(column) for column in plain))  # refuses what makes or needs other rows
            expressions = expressions_of(self.stream.select(*plain))
        for column, expression in zip(plain, expressions, strict=True):
            self._refuse_sessions(who, column, expression)
        own = dict(zip(self._identities, self.names, strict=True)) | {key.identity: key.name for key in keys}
        taken = {self.folded(key.name): key.identity for key in keys}
        chosen = []
        for (one, column), expression in zip(columns, expressions, strict=True):
            name = own.get(expression.identity) or (one if isinstance(one, str) else column_text(column))
            while taken.setdefault(self.folded(name), expression.identity) != expression.identity:
                name = quoted(name)  # lanes know columns by name, and nobody else sees this one
            chosen.append(Chosen(name, column, expression.identity))
        return chosen

    def wanted(self, who: str, names: Sequence[str] | None, keys: Sequence[Chosen]) -> list[Chosen]:
        """Return the columns that an operator of the user's own sees besides the keys: these, or all there are."""
        at = {self.folded(name): place for place, name in enumerate(self.names)}
        of_key = {self.folded(key.name): key for key in keys}
        chosen = []
        for name in self.names if names is None else dict.fromkeys(names):
            place = at.get(self.folded(name))
            key = of_key.get(self.folded(name))
            if key is not None and (place is None or key.identity == self._identities[place]):
                continue  # it comes as a key
            if place is None:
                raise InputError(f"{who}: there is no column {name!r}; {self.there_are(name)}")
            alike = [other for other in self.names if self.folded(other) == self.folded(name)]
            self._refuse_twins(who, name, alike)
            chosen.append(Chosen(name, F.col(quoted(name)), self._identities[place]))
        advice = "give the key another name with .alias('...'), or leave the column out by columns_needed"
        self._refuse_clashes(who, [*keys, *chosen], advice)
        return chosen

    def numeric(self) -> list[str]:
        """Return the names of all columns of numbers, as `groupBy(...).sum()` takes them."""
        return [quoted(field.name) for field in self.stream.schema if isinstance(field.dataType, NumericType)]

    @cached_property
    def _identities(self) -> list[str]:
        return output_of(self.stream)

    def _refuse_sessions(self, who: str, column: Column, expression: Expression) -> None:
        """Refuse sessions made on the way: Spark joins them when it groups, and a selected one is its row's alone."""
        if not expression.sessions <= set(self._identities):
            raise InputError(f"{who}: {column_text(column)} is of a session, and sessions are not there yet")

    def _refuse_twins(self, who: str, name: str, alike: Sequence[str]) -> None:
        if len(alike) > 1:
            raise InputError(
                f"{who}: {name!r} is ambiguous, the stream has {len(alike)} columns of this name: "
                "rename or drop all but one before keyed()"
            )

    def _refuse_clashes(self, who: str, chosen: Sequence[Chosen], advice: str) -> None:
        """Refuse two different columns of one name: lanes know columns by name."""
        seen: dict[str, Chosen] = {}
        for one in chosen:
            other = seen.setdefault(self.folded(one.name), one)
            if other.identity != one.identity:
                both = f"{column_text(other.column)} and {column_text(one.column)}"
                raise InputError(f"{who}: two different columns, {both}, are named {one.name!r}: {advice}")


_WINDOW = "spark.timeWindow"  # in the metadata of a window
_BYTE_BY_BYTE = "UTF8_BINARY"
_COMPARING = ("min", "max", "min_by", "max_by", "collect_set", "count_distinct", "approx_count_distinct")


def refuse_types(schema: StructType, keys: Sequence[str], operator: Operator) -> None:
    """Refuse windows and event times as keys, and text that is compared by other rules than byte by byte."""
    for key in keys:
        forgets = isinstance(operator, Dedup)
        if has_mark(schema[key]) and not forgets and _WINDOW not in (schema[key].metadata or {}):
            raise InputError(
                f"keyed: {key!r} has a watermark (withWatermark), and the state of times that are over would never be "
                f"dropped: if it is to stay, take the mark off, df.withMetadata({key!r}, {{}})"
            )
        if _WINDOW in (schema[key].metadata or {}):
            raise InputError(
                f"keyed: {key!r} is a window, a struct of start and end, which cannot be a key yet: take its start: "
                "F.window('at', '1 minute').start"
            )
    compared = set(keys)
    if isinstance(operator, Aggregate):
        compared |= {
            column for agg in operator.aggregates.values() if agg.function in _COMPARING for column in agg.columns
        }
    if isinstance(operator, Top):
        compared |= set(operator.passes)
    for field in schema.fields:
        collation = getattr(field.dataType, "collation", _BYTE_BY_BYTE)
        if field.name in compared and collation != _BYTE_BY_BYTE:
            raise InputError(
                f"keyed: {field.name!r} has the collation {collation}, and lanes compare text byte by byte only: take "
                f"F.collate(F.col({field.name!r}), {_BYTE_BY_BYTE!r}), or F.lower(...) of it"
            )


@contextmanager
def told_by_spark(who: str, columns: Sequence[Column]) -> Iterator[None]:
    """Turn what Spark has to say against columns into one sentence."""
    try:
        yield
    except AnalysisException as error:
        first = str(error).splitlines()[0].partition("] ")[2].partition(" SQLSTATE:")[0]
        texts = ", ".join(column_text(column) for column in columns)
        raise InputError(f"{who}: Spark cannot use {texts} here: {first or error}") from error
