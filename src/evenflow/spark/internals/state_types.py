"""Values of state variables between user code and what is kept: as Spark's state server reads and returns them.

What is kept never changes: tuples in the place of lists and dictionaries, so that user code cannot change it unseen.
A value of another type than the declared one becomes null where Spark makes it null.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import numpy as np
from pyspark.sql import types as T  # noqa: N812 - the name everyone knows it by
from pyspark.sql.types import DataType, Row, StructType

from evenflow.errors import InputError

Convert = Callable[[Any], Any]
_LONG = 1 << 63
_BITS: dict[type[DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32}
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType)


class Codec:
    """Values of one schema."""

    def __init__(self, schema: StructType) -> None:
        """Look at a schema; refuse types that state cannot have."""
        self.schema = schema
        self._write = [_writer(field.dataType) for field in schema.fields]
        readers = [_reader(field.dataType) for field in schema.fields]
        self._read = [reader or _same for reader in readers] if any(readers) else None

    def write(self, value: Any) -> tuple[Any, ...]:
        """Return what to keep of a value that user code gave."""
        values = tuple(value)
        if len(values) != len(self._write):
            raise ValueError(
                f"expected {len(self._write)} values, {self.schema.simpleString()}; got {len(values)}: {value!r}"
            )
        # Of a list: a tuple made of a generator is made twice.
        return tuple([None if each is None else write(each) for write, each in zip(self._write, values, strict=True)])

    def read(self, kept: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a value for user code."""
        if self._read is None:
            return kept
        return tuple(None if each is None else read(each) for read, each in zip(self._read, kept, strict=True))


def _same(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    """Return numpy's and pandas' values as Python's own."""
    if isinstance(value, np.generic):
        return value.tolist()
    for name in ("to_pytimedelta", "to_pydatetime"):
        if hasattr(value, name):
            return getattr(value, name)()
    return value


def _long(value: Any) -> int | None:
    value = value if type(value) is int else _plain(value)
    return value if type(value) is int and -_LONG <= value < _LONG else None


def _double(value: Any) -> float | None:
    value = value if type(value) is float else _plain(value)
    if type(value) is not float:
        return None
    return math.nan if math.isnan(value) else value  # of NaN there is one only, so that maps find it


def _float(value: Any) -> float | None:
    double = _double(value)
    if double is None or math.isnan(double):
        return double
    return float(np.float32(double))


def _boolean(value: Any) -> bool | None:
    value = _plain(value)
    return value if type(value) is bool else None


def _string(value: Any) -> str:
    value = value if type(value) is str else _plain(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _binary(value: Any) -> bytes | None:
    value = _plain(value)
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _writer(kind: DataType) -> Convert:  # noqa: PLR0911 - one per type
    simple: dict[type[DataType], Convert] = {
        T.LongType: _long,
        T.DoubleType: _double,
        T.FloatType: _float,
        T.BooleanType: _boolean,
        T.BinaryType: _binary,
    }
    if type(kind) in simple:
        return simple[type(kind)]
    if type(kind) in _BITS:
        return _narrow(_BITS[type(kind)])
    if isinstance(kind, T.StringType):
        return _string
    if isinstance(kind, T.DecimalType):
        return _decimal(kind)
    if isinstance(kind, _TIMES):
        return lambda value: kind.toInternal(_plain(value))
    if isinstance(kind, T.ArrayType):
        element = _writer(kind.elementType)
        return lambda value: tuple(None if each is None else element(each) for each in value)
    if isinstance(kind, T.MapType):
        key, item = _writer(kind.keyType), _writer(kind.valueType)
        return lambda value: tuple(
            (key(each), None if found is None else item(found)) for each, found in dict(value).items()
        )
    if isinstance(kind, StructType):
        names, inner = kind.names, Codec(kind)
        return lambda value: inner.write([value.get(name) for name in names] if isinstance(value, dict) else value)
    raise InputError(f"state variables of type {kind.simpleString()} are not there: use another type")


def _narrow(bits: int) -> Convert:
    half = 1 << (bits - 1)

    def write(value: Any) -> int | None:
        found = _long(value)
        return None if found is None else (found + half) % (2 * half) - half

    return write


def _decimal(kind: T.DecimalType) -> Convert:
    step, most = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def write(value: Any) -> Decimal | None:
        if not isinstance(value, Decimal):
            return None
        try:
            found = value.quantize(step, ROUND_HALF_UP)
        except InvalidOperation:
            return None
        return found if abs(found) < most else None

    return write


def _reader(kind: DataType) -> Convert | None:
    """Return how user code gets a kept value; None: as it is."""
    if isinstance(kind, _TIMES):
        return kind.fromInternal
    if isinstance(kind, T.BinaryType):
        return bytearray
    if isinstance(kind, T.ArrayType):
        element = _reader(kind.elementType) or _same
        return lambda kept: [None if each is None else element(each) for each in kept]
    if isinstance(kind, T.MapType):
        key, item = _reader(kind.keyType) or _same, _reader(kind.valueType) or _same
        return lambda kept: {key(each): None if found is None else item(found) for each, found in kept}
    if isinstance(kind, StructType):
        names, inner = kind.names, Codec(kind)
        return lambda kept: Row(*names)(*inner.read(kept))
    return None
