"""What users say to `keyed(...).top(...)`, and the operator that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenflow.errors import InputError
from evenflow.operators import Top
from evenflow.spark.columns import Chosen, StreamColumns

_WHO = "top"


def top_of(
    columns: StreamColumns, keys: Sequence[Chosen], most: Any, by: Any, ascending: Any
) -> tuple[Top, list[Chosen]]:
    """Return the operator, and the columns that it needs besides the keys: all there are."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(f"{_WHO}: say how many rows of each key, 1 or more, got {most!r}")
    names = [by] if isinstance(by, str) else list(by)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{_WHO}: by names a column, or several in a list, got {by!r}")
    if len({columns.folded(name) for name in names}) < len(names):
        raise InputError(f"{_WHO}: each column of by once, got {by!r}")
    ups = [ascending] * len(names) if isinstance(ascending, bool) else list(ascending)
    if len(ups) != len(names) or not all(isinstance(up, bool) for up in ups):
        raise InputError(f"{_WHO}: ascending is True or False, or a list of one for each of by, got {ascending!r}")
    of_key = {columns.folded(key.name): key.name for key in keys}
    known = {columns.folded(name): of_key.get(columns.folded(name), name) for name in columns.names}
    for name in names:
        if columns.folded(name) not in known:
            raise InputError(f"{_WHO}: there is no column {name!r}; {columns.there_are(name)}")
    order = tuple((known[columns.folded(name)], up) for name, up in zip(names, ups, strict=True))
    values = columns.wanted(_WHO, None, keys)
    return Top(tuple(known.values()), most, order), values
