"""Aggregates the slow and obvious way: all rows of a key in a list, and Spark's rules in plain Python."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.model.slots import IntArray, slots_of_hashes
from evenflow.operators import HASH, SLOT, Agg, Aggregate, functions
from evenflow.operators.functions import SPREADS

SLOTS = 5
NAN, INFINITY = math.nan, math.inf

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [None, 0, 1, -7, 10**12]),
    "short": (pa.int16(), [None, 3, -32768, 32767]),
    "real": (pa.float64(), [None, 0.5, -2.25, NAN, INFINITY]),
    "single": (pa.float32(), [None, 1.5, -0.0, NAN]),
    "text": (pa.string(), [None, "", "a", "ab", "ß", "日本"]),
    "raw": (pa.binary(), [None, b"", b"\x00", b"\xff\x00"]),
    "price": (pa.decimal128(9, 2), [None, Decimal("0.01"), Decimal("-1.25"), Decimal("9999999.99")]),
    "flag": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, date(1969, 12, 31), date(2024, 2, 29)]),
    "at": (pa.timestamp("us", "UTC"), [None, datetime(1960, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 12, tzinfo=UTC)]),
}
NUMBERS = ("whole", "short", "real", "single", "price")
KEEPING = ("collect_list", "collect_set", "count_distinct")
AGGREGATE = Aggregate(
    {"rows": Agg("count")}
    | {f"{name}_{column}": Agg(name, column) for column in VALUES for name in ("min", "max", "first", "last")}
    | {f"{name}_{column}": Agg(name, column) for column in NUMBERS for name in ("count", "sum", "mean")}
    | {f"{name}_{column}": Agg(name, column) for column in ("real", "text", "price") for name in KEEPING}
    | {f"{name}_{column}": Agg(name, column) for column, name in zip(("whole", "short") * 3, SPREADS, strict=True)}
    | {
        f"{name}_{column}": Agg(name, column, more=("single",))
        for column in ("text", "day")
        for name in ("min_by", "max_by")
    }
    | {f"max_by_{column}_of_text": Agg("max_by", "text", more=(column,)) for column in ("real", "raw", "price")}
    | {f"approx_{column}": functions.approx_count_distinct(column) for column in ("single", "text", "price")}
    | {f"half_{column}": functions.percentile_approx(column, 0.5) for column in ("short", "real", "price", "at")}
    | {
        "true": functions.count_if("flag"),
        "pairs": functions.count_distinct("text", "real"),
        "thirds": functions.percentile_approx("real", [0.3, 0.6]),
        "some": functions.count().where("flag"),
        "some_texts": functions.collect_list("text").where("flag"),
        "some_sum": functions.sum("price").where("flag"),
        "some_first": functions.first("day").where("flag"),
    }
)

KEY_KINDS: dict[str, tuple[dict[str, pa.DataType], list[tuple[Any, ...]]]] = {
    "int64": ({"k": pa.int64()}, [(k,) for k in (None, 0, -1, -2, 1, 2**63 - 1, -(2**63), 12345)]),
    "int32": ({"k": pa.int32()}, [(k,) for k in (None, 0, -1, 7, 2**31 - 1, -(2**31))]),
    "string": ({"k": pa.string()}, [(k,) for k in (None, "", "a", "b", "ab", "ä", "a\x00", "long " * 9)]),
    "binary": ({"k": pa.binary()}, [(k,) for k in (None, b"", b"\x00", b"\x00\x00", b"ab")]),
    "float": ({"k": pa.float64()}, [(k,) for k in (None, 0.0, -0.0, NAN, -NAN, 1.5, INFINITY)]),
    "boolean": ({"k": pa.bool_()}, [(None,), (True,), (False,)]),
    "date": ({"k": pa.date32()}, [(None,), (date(1970, 1, 1),), (date(1969, 1, 1),), (date(2024, 2, 29),)]),
    "decimal": ({"k": pa.decimal128(20, 2)}, [(None,), (Decimal("0.00"),), (Decimal("1.50"),), (Decimal(-(10**17)),)]),
    "composite": (
        {"a": pa.string(), "b": pa.int64(), "c": pa.float64()},
        [(a, b, c) for a in (None, "", "x") for b in (None, 0, 1) for c in (None, -0.0, NAN, 0.0)],
    ),
    "composite, no nulls": (
        {"a": pa.int32(), "b": pa.bool_()},
        [(a, b) for a in (0, 1, 2) for b in (True, False)],
    ),
}


class Near(float):
    """A number that equals others up to the last digits: spreads are computed in another order than here."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isclose(self, other, rel_tol=1e-9)

    __hash__ = float.__hash__  # keys are exact


def comparable(value: Any) -> Any:
    """Make NaN equal to NaN and -0.0 equal to 0.0, whatever holds them."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else Near(value + 0.0)
    if isinstance(value, tuple | list):
        return tuple(comparable(item) for item in value)
    return {name: comparable(item) for name, item in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True)
class KeyKind:
    """A kind of key, with a hash that has only `hashes` different values, to force collisions."""

    name: str
    hashes: int = 2**61

    @property
    def types(self) -> dict[str, pa.DataType]:
        return KEY_KINDS[self.name][0]

    @property
    def pool(self) -> list[tuple[Any, ...]]:
        return KEY_KINDS[self.name][1]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.types)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.types.items(), *((name, kind) for name, (kind, _) in VALUES.items())])

    def hash(self, key: tuple[Any, ...]) -> int:
        """Hash as Spark does: null leaves the hash as it is, so (x, null) and (null, x) collide."""
        parts = [repr(item) for item in comparable(key) if item is not None]
        return zlib.crc32("".join(parts).encode()) * 2654435761 % self.hashes - self.hashes // 2

    def slot(self, key: tuple[Any, ...]) -> int:
        return int(slots_of_hashes(np.array([self.hash(key)]), SLOTS)[0])

    def table(self, rows: Sequence[tuple[Any, ...]]) -> tuple[pa.Table, IntArray]:
        """Return rows, each a key and its values, as a lane gets them: sorted by slot, with the hash if needed."""
        rows = sorted(rows, key=lambda row: self.slot(row[0]))
        columns = {
            name: pa.array([row[0][at] for row in rows], kind) for at, (name, kind) in enumerate(self.types.items())
        } | {name: pa.array([row[1][at] for row in rows], kind) for at, (name, (kind, _)) in enumerate(VALUES.items())}
        if AGGREGATE.needs_hash(self.schema, self.names):
            columns[HASH] = pa.array([self.hash(row[0]) for row in rows], pa.int64())
        return pa.table(columns), np.array([self.slot(row[0]) for row in rows], np.int64)


@dataclass
class Model:
    """All rows of every key."""

    kind: KeyKind
    rows: dict[Hashable, list[tuple[Any, ...]]] = field(default_factory=dict)
    slots: dict[Hashable, int] = field(default_factory=dict)

    def add(self, rows: Sequence[tuple[Any, ...]]) -> list[Hashable]:
        """Take in rows; return the keys they touch, in the order in which a lane names them."""
        ordered = sorted(rows, key=lambda row: self.kind.slot(row[0]))
        for key, values in ordered:
            self.rows.setdefault(comparable(key), []).append(values)
            self.slots[comparable(key)] = self.kind.slot(key)
        return list(dict.fromkeys(comparable(key) for key, _ in ordered))

    def remove(self, keys: Sequence[Hashable]) -> None:
        """Forget that these keys ever came."""
        for key in keys:
            del self.rows[key], self.slots[key]

    def output(self, key: Hashable) -> dict[str, Any]:
        columns = dict(zip(VALUES, zip(*self.rows[key], strict=True), strict=True))
        row: dict[str, Any] = dict(zip(self.kind.names, key, strict=True))  # type: ignore[call-overload]
        for name, agg in AGGREGATE.aggregates.items():
            row[name] = comparable(aggregate(agg, columns, len(self.rows[key])))
        return row


def aggregate(agg: Agg, columns: dict[str, tuple[Any, ...]], rows: int) -> Any:  # noqa: PLR0911 - a rule per sort
    """Return what Spark would."""
    if agg.condition is not None:
        counting = [at for at, true in enumerate(columns[agg.condition]) if true]
        columns = {name: tuple(values[at] for at in counting) for name, values in columns.items()}
        return aggregate(replace(agg, condition=None), columns, len(counting))
    if agg.column is None:
        return rows
    values = columns[agg.column]
    if agg.more:
        return _of_two(agg, values, columns[agg.more[0]])
    present = [value for value in values if value is not None]
    if agg.function in ("first", "last"):
        return (values[0 if agg.function == "first" else -1]) if values else None
    counted: dict[str, Callable[[list[Any]], Any]] = {
        "count": len,
        "count_if": sum,
        "collect_list": list,
        "collect_set": _different,
        "count_distinct": lambda some: len(_different(some)),
        "approx_count_distinct": lambda some: len(_different(some)),  # exact while there are few
    }
    if agg.function in counted:
        return counted[agg.function](present)
    if not present:
        return None
    if agg.function in SPREADS:
        return _spread(agg.function, [float(value) for value in present])
    if agg.function == "percentile_approx":
        return _percentiles(agg.options[0], sorted(present, key=_spark_order))
    reduce: dict[str, Callable[[list[Any]], Any]] = {"min": _least, "max": _greatest, "sum": sum, "mean": _mean}
    return reduce[agg.function](present)


def _of_two(agg: Agg, values: tuple[Any, ...], others: tuple[Any, ...]) -> Any:
    pairs = [(a, b) for a, b in zip(values, others, strict=True) if b is not None]
    if agg.function == "count_distinct":
        return len(_different([pair for pair in pairs if pair[0] is not None]))
    if not pairs:
        return None
    best = (min if agg.function == "min_by" else max)((b for _, b in pairs), key=_spark_order)
    return [a for a, b in pairs if comparable(b) == comparable(best)][-1]


def _different(values: list[Any]) -> list[Any]:
    first: dict[Any, Any] = {}
    for value in values:
        first.setdefault(comparable(value), value)
    return list(first.values())


def _spread(function: str, values: list[float]) -> float | None:
    fewer = 0 if function.endswith("_pop") else 1
    if len(values) <= fewer:
        return None
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - fewer)
    return math.sqrt(variance) if function.startswith("stddev") else variance


def _percentiles(shares: Any, values: list[Any]) -> Any:
    at = [
        values[max(1, math.ceil(share * len(values))) - 1]
        for share in (shares if isinstance(shares, tuple) else [shares])
    ]
    return at if isinstance(shares, tuple) else at[0]


def _least(values: list[Any]) -> Any:
    return min(values, key=_spark_order)


def _greatest(values: list[Any]) -> Any:
    return max(values, key=_spark_order)


def _spark_order(value: Any) -> Any:
    if isinstance(value, float):
        return math.isnan(value), value
    return value.encode() if isinstance(value, str) else value


def _mean(values: list[Any]) -> Any:
    if not isinstance(values[0], Decimal):
        return sum(map(float, values)) / len(values)
    with localcontext(prec=60):
        return (sum(values) / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return a table's rows, comparable."""
    return [comparable(row) for row in table.to_pylist()]


def slots_of(table: pa.Table) -> list[int]:
    slots: list[int] = table[SLOT].to_pylist()
    return slots
