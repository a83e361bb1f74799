"""The five workloads of 100 letters, and one run on them with the authors' parameters (DP-P1 to P13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from string import ascii_lowercase
from typing import Any

import numpy as np

from evenflow.model.balance import skew
from evenflow.model.slots import IntArray
from evenflow.policies.ring import DpaDoubling, DpaHalving
from papers.dpa.protocol.forwarding import MERGE, DpaOptions, Variant, dpa_run
from papers.messages.run import Result
from papers.messages.stream import RecordStream

REDUCERS = MAPPERS = 4
METHODS: dict[str, type[DpaHalving | DpaDoubling]] = {"halving": DpaHalving, "doubling": DpaDoubling}
ORDERS = tuple(permutations(range(REDUCERS)))
"""All orders in which reducers that are ready at the same instant may go."""

_FREQUENT = "oufhjw"
WORKLOADS: dict[str, str] = {
    "WL1": "abcf" * 25,
    "WL2": "agiq" * 25,
    "WL3": "a" * 100,
    "WL4": "ou" * 20 + "fhjw" * 10 + "".join(letter for letter in ascii_lowercase if letter not in _FREQUENT),
    "WL5": ascii_lowercase[:25] * 4,
}


@dataclass(frozen=True, eq=False, slots=True)
class Counted:
    """What one run gave: S, the items of each reducer, the wall time, and the run itself."""

    skew: float
    counts: IntArray
    wall_s: float
    rounds: int
    result: Result
    names: tuple[str, ...]


def stream_of(items: Sequence[str]) -> tuple[RecordStream, tuple[str, ...]]:
    """Return items as a stream that is there from the start, dealt out to the mappers, and the names of its keys."""
    names, key = np.unique(list(items), return_inverse=True)
    count = len(items)
    zeros = np.zeros(count, np.int64)
    mapper = np.arange(count) % MAPPERS
    stream = RecordStream(zeros, zeros, mapper, key, np.ones(count, np.int64), np.arange(names.size), names.size)
    return stream, tuple(str(name) for name in names)


def count_letters(
    items: Sequence[str],
    method: str,
    limit: dict[str, int],
    options: DpaOptions | None = None,
    variant: Variant = MERGE,
) -> Counted:
    """Count the items with one method; `limit` is `rounds_per_lane` or `rounds_total` and its value."""
    stream, names = stream_of(items)
    limits: dict[str, Any] = {**limit}
    chosen = replace(options or DpaOptions(), policy=METHODS[method](**limits))
    run = dpa_run(stream, names, chosen, variant)
    result = run.run()
    counts = result.counts(chosen.lanes)
    return Counted(skew(counts), counts, result.end_s, sum(run.balancer.rounds.values()), result, names)
