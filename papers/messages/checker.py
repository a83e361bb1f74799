"""The invariants, checked in every run: served once, in order, by the lane that holds the slot; state as the oracle.

The checker sees all lanes at once, which no part of a protocol can. A lane tells it what it does; a protocol that
breaks a promise is found here even if the final state happens to come out right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from evenflow.errors import ProtocolError
from evenflow.model import Epoch, LaneId, SlotId
from evenflow.model.slots import IntArray
from papers.messages.folds import Fold, KeyState
from papers.messages.stream import RecordStream

NOBODY = -1
_SHOWN = 5


class Checker:
    """Watches one run. `ordered` is False for protocols that promise no order per key, as DPA's merge.

    `holder` says which lane holds each slot now; a lane that takes up a record compares it with its own number.
    """

    __slots__ = (
        "_next_place",
        "_place",
        "_stream",
        "_tables",
        "_thread",
        "found",
        "holder",
        "ordered",
        "overtaken",
        "remaining",
        "served_at",
        "served_by",
    )

    def __init__(self, stream: RecordStream, owners: Iterable[LaneId], *, ordered: bool = True) -> None:
        """Begin with every slot held by its owner and nothing served."""
        thread, place = stream.threads()
        self._stream = stream
        self._thread: list[int] = thread.tolist()
        self._place: list[int] = place.tolist()
        self._next_place = [0] * (int(thread.max()) + 1 if thread.size else 0)
        self._tables: dict[Epoch, tuple[LaneId, ...]] = {}
        self.ordered = ordered
        self.holder: list[LaneId] = [int(owner) for owner in owners]
        self.served_at = [-1] * len(stream)
        self.served_by = [NOBODY] * len(stream)
        self.remaining = len(stream)
        self.overtaken = 0
        self.found: Counter[str] = Counter()

    # --- what lanes and mappers tell ------------------------------------------------------------------------------

    def served(self, record: int, lane: LaneId, now: int) -> None:
        """A lane has folded a record into the state of its slot."""
        if self.served_by[record] != NOBODY:
            self.found["a record was served twice"] += 1
        else:
            self.remaining -= 1
        self.served_at[record], self.served_by[record] = now, lane
        thread = self._thread[record]
        if self._place[record] != self._next_place[thread]:
            self.overtaken += 1
        self._next_place[thread] = self._place[record] + 1

    def released(self, slot: SlotId, lane: LaneId) -> None:
        """A lane has let go of a slot: nobody holds it until it is installed."""
        if self.holder[slot] != lane:
            self.found["a slot was released by a lane that does not hold it"] += 1
        self.holder[slot] = NOBODY

    def installed(self, slot: SlotId, lane: LaneId) -> None:
        """A lane has taken over a slot."""
        if self.holder[slot] != NOBODY:
            self.found["a slot was installed while another lane holds it"] += 1
        self.holder[slot] = lane

    def table_in_force(self, epoch: Epoch, owners: Sequence[LaneId]) -> None:
        """A mapper routes by `owners` from `epoch` on: all mappers must agree, so that a slot has one owner."""
        if self._tables.setdefault(epoch, tuple(owners)) != tuple(owners):
            self.found["two mappers route one epoch by different tables"] += 1

    # --- afterwards -----------------------------------------------------------------------------------------------

    def violations(self, state: KeyState, fold: Fold) -> dict[str, int]:
        """Return what was broken and how often, with the final `state` compared to the batch oracle."""
        broken = Counter(self.found)
        if self.remaining:
            broken["a record was never served"] += self.remaining
        if self.ordered and self.overtaken:
            broken["a record overtook one of its key"] += self.overtaken
        expected = fold.oracle(self._stream)
        wrong = sum(1 for key in expected.keys() | state.keys() if _differ(key, expected, state))
        if wrong:
            broken["the state of a key differs from the oracle"] += wrong
        return dict(broken)

    def require(self, state: KeyState, fold: Fold) -> None:
        """Raise if anything was broken; the message says what and how often."""
        broken = self.violations(state, fold)
        if broken:
            listed = "; ".join(f"{what} ({count} times)" for what, count in list(broken.items())[:_SHOWN])
            raise ProtocolError(f"the protocol broke what it promises: {listed}")

    def columns(self) -> tuple[IntArray, IntArray]:
        """Return when and by which lane each record was served."""
        return np.array(self.served_at, np.int64), np.array(self.served_by, np.int64)


def _differ(key: int, expected: KeyState, state: KeyState) -> bool:
    return key not in expected or key not in state or bool(expected[key] != state[key])
