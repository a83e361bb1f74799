"""After a power cut: epochs whose input is not whole are given back, or it is said exactly what is lost.

Records are flushed to disk, blocks are not, and neither are Spark's own logs. So the newest epochs may be accepted
although their blocks, or what Spark knows of them, are gone. Spark hands a batch over again if it takes it for not
done: then the epoch is forgotten here, and comes once more. That is possible as long as no slot has passed the epoch;
after that, the rows that other slots have not folded are lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from evenflow.errors import DamagedFileError
from evenflow.model import Epoch
from evenflow.state.files import Folder
from evenflow.state.ledger import Ledger
from evenflow.state.records import EpochRecord
from evenflow.state.retrying import Retries

_WAY_OUT = (
    "Restore that from a copy of the checkpoint, or start with a new checkpoint location; the query then reads its "
    "source from the beginning. Nothing was changed."
)


class SourceLog(Protocol):
    """Whoever hands over batches, and can do so again."""

    def address(self, batch: int) -> str:
        """Return where it is written down what a batch is made of, for people."""

    def has_planned(self, batch: int) -> bool:
        """Return whether it knows what a batch is made of."""

    def hand_over_again(self, first: int) -> None:
        """Hand over all batches from one on, whatever became of them; to be called again after a crash."""


@dataclass(frozen=True)
class SparkLog:
    """Spark's part of a checkpoint: `offsets/n` says what batch n is made of, `commits/n` that it is done.

    Spark carries out the newest batch of its offsets again if that is not in its commits, with just those offsets; then
    it plans further ones. A source that cannot be read again from there makes Spark fail, and say so.
    """

    folder: Folder

    @classmethod
    def at(cls, location: str, retries: Retries | None = None) -> SparkLog:
        """Return the log at Spark's checkpoint location."""
        return cls(Folder.at(location, retries=retries))

    def address(self, batch: int) -> str:
        return self.folder.storage.address(f"offsets/{batch}")

    def has_planned(self, batch: int) -> bool:
        name = f"offsets/{batch}"
        return self.folder.exists(name) and self.folder.storage.open(name).size() > 0

    def hand_over_again(self, first: int) -> None:
        done = self._from("commits", first)
        planned = self._from("offsets", first + self.has_planned(first))
        self.folder.delete([*done, *planned])

    def _from(self, kind: str, first: int) -> list[str]:
        """Return the entries of batches from one on, with the checksums that Hadoop keeps beside local files."""
        numbers = [name.rpartition("/")[2] for name in self.folder.names(kind)]
        found = [number for number in numbers if number.isdigit() and int(number) >= first]
        sums = {f".{number}.crc" for number in found} & set(numbers)
        return [f"{kind}/{name}" for name in (*found, *sorted(sums))]


@dataclass(frozen=True)
class Loss:
    """The epochs from `first` to `last` are not whole: why, and how many rows of theirs are to be handed over again.

    `batch` is the first one that Spark is to hand over again.
    """

    first: Epoch
    last: Epoch
    batch: int
    why: str
    rows: int

    @property
    def remark(self) -> str:
        """What whoever runs the query should know once they are given back."""
        return (
            f"{self._epochs()} given back: {self.why}, as after a power cut. No slot had folded anything of it; Spark "
            f"hands {self.rows} rows over again, and its source must still have them"
        )

    def _epochs(self) -> str:
        return f"epoch {self.first} is" if self.first == self.last else f"epochs {self.first} to {self.last} are"


def loss_in(folder: Folder, ledger: Ledger, source: SourceLog) -> Loss | None:
    """Return which epochs must be given back, None if all are whole; raise if that is not possible any more."""
    if ledger.reached is not None:
        _refuse_if_unknown(folder, ledger.reached, source)
    broken = _broken(folder, ledger, source)
    if not broken:
        return None
    first, why, _ = broken[0]
    if int(ledger.slot_versions.max()) >= first:
        _refuse_if_unknown(folder, ledger.pending[first], source)
        lost = {epoch: sum(rows for at, _, rows in broken if at == epoch) for epoch, _, _ in broken}
        shown = ", ".join(f"{rows} rows of epoch {epoch}" for epoch, rows in lost.items())
        ahead = int((ledger.slot_versions >= first).sum())
        raise DamagedFileError(
            f"checkpoint {folder.storage.address('')}: {why}, as after a power cut. {ahead} of "
            f"{ledger.slot_versions.size} slots have committed epoch {first} already, so that Spark cannot hand it "
            f"over again; {shown} are lost, which the other slots have not folded. {_WAY_OUT}"
        )
    given_back = [record for epoch, record in ledger.pending.items() if epoch >= first]
    batch, rows = ledger.pending[first].batch, sum(record.rows for record in given_back)
    return Loss(first, ledger.accepted, batch, why, rows)


def _refuse_if_unknown(folder: Folder, record: EpochRecord, source: SourceLog) -> None:
    """Raise if the source does not know an epoch that counts: it would go on from before it, with rows that count."""
    if not source.has_planned(record.batch):
        raise DamagedFileError(
            f"checkpoint {folder.storage.address('')}: epoch {record.epoch} was accepted, but Spark's own part of the "
            f"checkpoint does not know it ({source.address(record.batch)} is missing). {_WAY_OUT}"
        )


def _broken(folder: Folder, ledger: Ledger, source: SourceLog) -> list[tuple[Epoch, str, int]]:
    """Return what is not whole of the epochs that slots have yet to pass: (epoch, why, rows that are needed of it)."""
    broken = []
    for epoch, record in ledger.pending.items():
        if not source.has_planned(record.batch):
            broken.append((epoch, f"Spark's {source.address(record.batch)} is missing", 0))
        for block in record.blocks:
            rows = sum(
                count
                for segment in block.segments
                for slot, count in zip(segment.slots, segment.counts, strict=True)
                if ledger.slot_versions[slot] < epoch
            )
            flaw = folder.flaw(block.file) if rows else None
            if flaw is not None:
                broken.append((epoch, f"{folder.storage.address(block.file.name)} is damaged ({flaw})", rows))
    return broken
