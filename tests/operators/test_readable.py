"""What people see of the state of a user's own operator."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from evenflow.operators.readable import entries_of


class Mood(enum.Enum):
    FAIR = "fair"


@dataclass
class Session:
    n: int = 2
    seen: set[str] = field(default_factory=lambda: {"b", "a"})


class Plain:
    def __init__(self) -> None:
        self.n, self.mood = np.int64(3), Mood.FAIR


class Opaque:
    __slots__ = ()

    def __repr__(self) -> str:
        return 'Opaque("x")'


ROWS = {"user": ["ann", None], "shop": [1, 2], "n": [1.5, None]}
KEYED = '{"n":1.5,"shop":1,"user":"ann"}', '{"n":null,"shop":2,"user":null}'


@pytest.mark.parametrize(
    ("state", "keys", "entries"),
    [
        ({"ann": 1, "bob": [1, None]}, ("user",), [("ann", "1"), ("bob", "[1,null]")]),
        ({1: {"b": 1, "a": 2}}, ("user",), [("1", '{"a":2,"b":1}')]),
        ({(1, "x"): True, None: 0}, ("user",), [('[1,"x"]', "true"), (None, "0")]),
        (Counter(a=2), ("user",), [("a", "2")]),
        (defaultdict(lambda: 0, a=1), ("user",), [("a", "1")]),
        ({"s": Session()}, ("user",), [("s", '{"n":2,"seen":["a","b"]}')]),
        ({"p": Plain()}, ("user",), [("p", '{"mood":"fair","n":3}')]),
        ({"at": datetime(2024, 1, 2, tzinfo=UTC)}, ("user",), [("at", '"2024-01-02T00:00:00Z"')]),
        ({"o": Opaque(), "f": len}, ("user",), [("o", '"Opaque(\\"x\\")"'), ("f", '"<built-in function len>"')]),
        ({"n": 1 << 80}, ("user",), [("n", f"{1 << 80}")]),
        ({"deep": {(1, 2): 3}}, ("user",), [("deep", '"{(1, 2): 3}"')]),
        (np.array([1, 2]), ("user",), [(None, "[1,2]")]),
        ([1, 2], ("user",), [(None, "[1,2]")]),
        (None, ("user",), [(None, "null")]),
        (pa.table(ROWS), ("user",), [("ann", KEYED[0]), (None, KEYED[1])]),
        (pa.table(ROWS).to_batches()[0], ("user", "shop"), [('["ann",1]', KEYED[0]), ("[null,2]", KEYED[1])]),
        (pa.table(ROWS), ("town",), [(None, KEYED[0]), (None, KEYED[1])]),
        (pd.DataFrame({"user": ["ann"], "n": [1]}), ("user",), [("ann", '{"n":1,"user":"ann"}')]),
        (pd.DataFrame({"user": pd.array([None], "Int64")}), ("user",), [(None, '{"user":null}')]),
        ({"at": pd.NaT, "null": pd.Timestamp(0)}, ("user",), [("at", "null"), ("null", '"1970-01-01T00:00:00"')]),
        (pd.Series({"ann": 1.5}), ("user",), [("ann", "1.5")]),
        ({}, ("user",), []),
    ],
)
def test_entries(state: Any, keys: tuple[str, ...], entries: list[tuple[str | None, str]]) -> None:
    assert list(entries_of(state, keys)) == entries
