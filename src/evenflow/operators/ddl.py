"""Spark's text for columns, such as ``"user string, total long"``, read without Spark.

So an operator that declares its rows this way can be tried where no session runs. On Spark, Spark reads the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from evenflow.errors import InputError

_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("byte", "tinyint"), pa.int8()),
    **dict.fromkeys(("short", "smallint"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("long", "bigint"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS = ("decimal", "dec", "numeric")
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*')|(\w+)|(.))", re.DOTALL)


def schema_of_text(text: str) -> pa.Schema:
    """Return the columns that a text describes, with the Arrow types in which Spark hands them over."""
    try:
        return pa.schema(_Reader(text).columns())
    except (StopIteration, _UnreadableError) as error:
        said = f" ({error})" if str(error) else ""
        raise InputError(
            f"expected columns with types, such as 'user string, total long', got {text!r}{said}"
        ) from error


class _UnreadableError(Exception):
    """A text that describes no columns."""


class _Reader:
    """Goes through the text from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: Iterator[str] = (next(filter(None, match.groups())) for match in _TOKEN.finditer(text.strip()))
        self._next = next(self._tokens, "")

    def columns(self) -> list[pa.Field]:
        fields = self._fields("")
        if self._next:
            raise _UnreadableError(f"what is {self._next!r}?")
        return fields

    def _take(self) -> str:
        taken, self._next = self._next, next(self._tokens, "")
        return taken

    def _expect(self, wanted: str) -> None:
        if self._take() != wanted:
            raise _UnreadableError(f"a {wanted!r} is missing")

    def _fields(self, end: str) -> list[pa.Field]:
        """Read `name type` or `name: type`, separated by commas."""
        fields: list[pa.Field] = []
        while self._next != end or not fields:
            if fields:
                self._expect(",")
            fields.append(self._field())
        return fields

    def _field(self) -> pa.Field:
        name = self._take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.fullmatch(r"\w+", name):
            raise _UnreadableError(f"{name!r} is no name" if name else "a name is missing")
        if self._next == ":":
            self._take()
        kind, nullable = self._type(), True
        if self._next.lower() == "not":
            self._take()
            if self._take().lower() != "null":
                raise _UnreadableError("a 'null' is missing after 'not'")
            nullable = False
        if self._next.lower() == "comment":
            self._take()
            self._take()
        return pa.field(name, kind, nullable)

    def _type(self) -> pa.DataType:
        name = self._take().lower()
        if name in _TYPES:
            return _TYPES[name]
        if name in _DECIMALS:
            return pa.decimal128(*self._precision())
        if name not in ("array", "map", "struct"):
            raise _UnreadableError(f"{name!r} is no type known here" if name else "a type is missing")
        self._expect("<")
        if name == "array":
            kind = pa.list_(pa.field("element", self._type()))
        elif name == "map":
            key = self._type()
            self._expect(",")
            kind = pa.map_(key, pa.field("value", self._type()))
        else:
            kind = pa.struct(self._fields(">"))
        self._expect(">")
        return kind

    def _precision(self) -> tuple[int, int]:
        if self._next != "(":
            return 10, 0
        self._take()
        digits = [self._take()]
        while self._next == ",":
            self._take()
            digits.append(self._take())
        self._expect(")")
        try:
            precision, scale = int(digits[0]), int(digits[1]) if len(digits) > 1 else 0
        except ValueError:
            raise _UnreadableError(f"a decimal of {', '.join(digits)} digits") from None
        return precision, scale
