"""The state of a user's own operator as people can read it: a key and a value, as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import FunctionType
from typing import Any

import msgspec
import pyarrow as pa

VIEW_SCHEMA = pa.schema([("slot", pa.int32()), ("key", pa.string()), ("value", pa.string())])


def entries_of(state: Any, keys: tuple[str, ...]) -> Iterator[tuple[str | None, str]]:
    """Yield (key, value) for each entry of a dict or Series and for each row of a table; else one entry without key.

    A row's key is what it has in the stream's key columns, if it has them.
    """
    pandas = sys.modules.get("pandas")  # who has such a state has imported it
    if isinstance(state, pa.Table | pa.RecordBatch):
        yield from _rows(state.to_pylist(), keys)
    elif pandas is not None and isinstance(state, pandas.DataFrame):
        yield from _rows(state.to_dict("records"), keys)
    elif isinstance(state, Mapping) or (pandas is not None and isinstance(state, pandas.Series)):
        yield from ((_text(key), _json(value)) for key, value in state.items())
    else:
        yield None, _json(state)


def _rows(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> Iterator[tuple[str | None, str]]:
    for row in rows:
        key = [row[name] for name in keys] if all(name in row for name in keys) else [None]
        yield _text(key[0] if len(key) == 1 else key), _json(row)


def _text(key: Any) -> str | None:
    """Return a key as text: strings as they are, JSON for the rest, None where that is null."""
    text = key if isinstance(key, str) else _json(key)
    return None if text == "null" and not isinstance(key, str) else text


def _json(value: Any) -> str:
    """Return a value as JSON; what JSON does not know, as Python shows it."""
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError, RecursionError):  # such as dicts with keys that are no text
        return json.dumps(repr(value))


def _plain(thing: Any) -> Any:
    """Return what JSON knows in the place of something it does not know."""
    if hasattr(thing, "tolist"):  # numpy's scalars and arrays, Arrow's arrays, pandas' columns
        return thing.tolist()
    if isinstance(thing, pa.Table | pa.RecordBatch):
        return thing.to_pylist()
    pandas = sys.modules.get("pandas")
    if pandas is not None and (thing is pandas.NA or thing is pandas.NaT):
        return None
    if isinstance(thing, datetime):  # pandas' own
        return thing.isoformat()
    attributes = getattr(thing, "__dict__", None)
    if attributes and not isinstance(thing, type | FunctionType):
        return dict(attributes)
    return repr(thing)


_encoder = msgspec.json.Encoder(enc_hook=_plain, order="deterministic")
