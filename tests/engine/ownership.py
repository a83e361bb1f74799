"""A slot has one owner at every epoch: watched from outside, commit by commit and fold by fold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from evenflow.lane.messages import Work
from evenflow.model import RoutingTable
from evenflow.state import Advance, Checkpoint, EpochRecord, LaneCommit


def ways(advances: Iterable[Advance]) -> list[tuple[int, int]]:
    """Return all (slot, epoch) that some advances pass."""
    return [
        (slot, epoch)
        for advance in advances
        for slot in advance.slots
        for epoch in range(advance.since + 1, advance.version + 1)
    ]


@dataclass
class Ownership:
    """Who committed each slot at each epoch, over all lives of a query."""

    committed: dict[tuple[int, int], int] = field(default_factory=dict)
    records: dict[int, EpochRecord] = field(default_factory=dict)
    first_table: RoutingTable | None = None  # of this life: a restart may be with other lanes
    served_by: Callable[[int], set[int]] = lambda _slot: set()  # without a record: since a lane is gone

    def accept(self, record: EpochRecord) -> None:
        self.records[record.epoch] = record

    def commit(self, lanes: Sequence[LaneCommit]) -> None:
        for done in lanes:
            for slot, epoch in ways(done.advances):
                assert (slot, epoch) not in self.committed, (
                    f"lanes {self.committed[slot, epoch]} and {done.lane} both committed epoch {epoch} of slot {slot}"
                )
                assert epoch == 0 or (slot, epoch - 1) in self.committed, f"slot {slot} has skipped epoch {epoch - 1}"
                assert done.lane in self._may_serve(slot, epoch), (
                    f"lane {done.lane} committed epoch {epoch} of slot {slot}, which it never owned"
                )
                self.committed[slot, epoch] = done.lane

    def _may_serve(self, slot: int, epoch: int) -> set[int]:
        """Return who was to serve a slot at an epoch or later: a backlog goes along with its slot."""
        later = {record.owners[slot] for record in self.records.values() if record.epoch >= epoch}
        return (
            later
            | self.served_by(slot)
            | ({int(self.first_table.owners[slot])} if self.first_table is not None else set())
        )

    def check(self, slots: int, epochs: int) -> None:
        """Check that every slot was committed at every epoch, once."""
        assert set(self.committed) == {(slot, epoch) for slot in range(slots) for epoch in range(epochs)}


class WatchedCheckpoint(Checkpoint):
    """A checkpoint that tells what was written down."""

    ownership: Ownership

    def accept(self, record: EpochRecord) -> None:
        super().accept(record)
        self.ownership.accept(record)

    def commit(self, lanes: Sequence[LaneCommit]) -> None:
        super().commit(lanes)
        self.ownership.commit(lanes)


@dataclass
class Serving:
    """Which attempt folds each slot at each epoch. Another one may do it again once the first is dead or fenced off."""

    folds: dict[tuple[int, int], str] = field(default_factory=dict)

    def work(self, token: str, work: Work, alive: set[str]) -> None:
        for way in ways(work.advances):
            before = self.folds.get(way, token)
            assert before == token or before not in alive, (
                f"{before} and {token} both fold slot {way[0]} at epoch {way[1]}, and both are alive"
            )
            self.folds[way] = token
