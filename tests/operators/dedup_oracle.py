"""Random streams of events, and which of them pass: Spark's rules in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pyarrow as pa

SECOND = 1_000_000
UTC_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("key", pa.int64()), ("at", UTC_TIME), ("value", pa.int64())])
Event = tuple[int | None, int | None, int]  # key, microseconds, value
Times = tuple[int, int, int]  # the watermark with an epoch's rows, before it, and the epoch before


def random_epochs(rng: random.Random, epochs: int = 12) -> list[list[Event]]:
    """Return events out of order, some late, some without key or time; some epochs have none."""
    found: list[list[Event]] = []
    for epoch in range(epochs):
        now = epoch * 10
        size = 0 if rng.random() < 0.15 else rng.randrange(1, 25)
        found.append([_event(rng, now) for _ in range(size)])
    return found


def _event(rng: random.Random, now: int) -> Event:
    key = rng.choice([None, *range(8)])
    at = rng.choice([None, *(now + shift for shift in (-90, -30, -12, -5, 0, 3, 5, 9))])
    return key, None if at is None else at * SECOND, rng.randrange(1000)


def table_of(rows: Iterable[Event]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table([pa.array(column, each.type) for column, each in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def events_of(rows: pa.Table) -> list[Event]:
    return list(zip(*(rows[name].cast(pa.int64()).to_pylist() for name in SCHEMA.names), strict=True))


def passing(
    epochs: list[list[Event]], delay: int, within: int | None, keys: tuple[str, ...]
) -> list[tuple[list[Event], Times, int]]:
    """Return of each epoch the events that pass, its watermarks, and how many keys are kept after it."""
    seen: dict[tuple[int | None, ...], int | None] = {}
    now = before = late = 0
    found = []
    for rows in epochs:
        late, before = before, now
        passed = []
        for key, at, value in rows:
            if at is not None and at <= late:
                continue
            identity = (key, at) if "at" in keys else (key,)
            if identity not in seen:
                forgotten = at if "at" in keys else None
                seen[identity] = forgotten if within is None else (at or 0) + within
                passed.append((key, at, value))
        seen = {key: until for key, until in seen.items() if until is None or until > before}
        now = max([now, *(at - delay for _, at, _ in rows if at is not None)])
        found.append((passed, (now, before, late), len(seen)))
    return found
