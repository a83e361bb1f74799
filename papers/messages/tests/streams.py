"""Streams and schedules for the tests of the message level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from evenflow.model import Move, RoutingTable
from papers.messages.plant import Plant, Timing
from papers.messages.stream import RecordStream

LANES = 3
SLOTS = 6


def table(slots: int = SLOTS, lanes: int = LANES) -> RoutingTable:
    return RoutingTable(np.arange(slots) % lanes, tuple(range(lanes)))


def stream_of(  # noqa: PLR0913 - one per column
    due: Sequence[int],
    key: npt.ArrayLike,
    *,
    source: npt.ArrayLike | int = 0,
    mapper: npt.ArrayLike | int = 0,
    slot_of_key: npt.ArrayLike | None = None,
    slots: int = SLOTS,
) -> RecordStream:
    keys = np.asarray(key)
    slot_of = np.arange(int(keys.max()) + 1) % slots if slot_of_key is None else np.asarray(slot_of_key)
    sources, mappers = (np.broadcast_to(column, keys.shape) for column in (source, mapper))
    return RecordStream(np.asarray(due), sources, mappers, keys, np.arange(keys.size) + 1, slot_of, slots)


def random_stream(seed: int, records: int = 400, keys: int = 24, paths: int = 3, span: int = 400_000) -> RecordStream:
    """Records of all keys over all paths, more than the lanes can serve at once."""
    rng = np.random.default_rng(seed)
    due = np.sort(rng.integers(0, span, records))
    key, source, mapper = rng.integers(0, [[keys], [paths], [paths]], (3, records))
    return stream_of(due.tolist(), key, source=source, mapper=mapper)


def one_path_per_key(seed: int, records: int = 400, keys: int = 24, span: int = 400_000) -> RecordStream:
    """As `random_stream`, but all records of a key take one path: the order of a key is defined."""
    rng = np.random.default_rng(seed)
    due = np.sort(rng.integers(0, span, records))
    key = rng.integers(0, keys, records)
    return stream_of(due.tolist(), key, source=key % 3, mapper=key // 3 % 3)


def jittery(seed: int, service: int = 2_000, **options: object) -> Plant:
    """Channels whose delays differ widely, control messages every 40 ms."""
    timing = Timing(data=(0, 30_000), control=(0, 30_000), metric=(0, 30_000), transfer=15_000)
    return Plant(table(), service, 40_000, timing, seed=seed, **options)  # type: ignore[arg-type]


@st.composite
def schedules(draw: st.DrawFn, epochs: int = 8) -> dict[int, list[Move]]:
    """Moves at some epochs, each from where the ones before it leave the slot: overlaps, chains and ways back."""
    owners = table().owners.tolist()
    plan: dict[int, list[Move]] = {}
    for epoch in sorted(draw(st.sets(st.integers(1, epochs), min_size=1))):
        moved = draw(st.sets(st.integers(0, SLOTS - 1), max_size=3))
        for slot in sorted(moved):
            target = draw(st.sampled_from([lane for lane in range(LANES) if lane != owners[slot]]))
            plan.setdefault(epoch, []).append(Move(slot, owners[slot], target))
            owners[slot] = target
    return plan
