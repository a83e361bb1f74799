"""The records that this run has written, by kind: which of them are useless by now is known without looking."""

from __future__ import annotations

from dataclasses import dataclass, field

from evenflow.model import Epoch
from evenflow.state.naming import BASE, COMMITS, EPOCHS, PUBLISHED, RECORDS


@dataclass(slots=True)
class WrittenRecords:
    """The names of all records that are there, by kind and number; and how many bytes the newest base sums up."""

    base: int = -1  # the sequence number of the newest
    base_size: int = 0
    bytes_since_base: int = 0
    _names: dict[str, dict[int, str]] = field(default_factory=lambda: {kind: {} for kind in RECORDS})
    _useless: list[str] = field(default_factory=list)

    def add(self, kind: str, number: int, name: str, size: int) -> None:
        """Note that a record was written."""
        if kind == BASE:
            self._drop(BASE, number)
            self.base, self.base_size = number, size
        elif kind == PUBLISHED:
            self._drop(PUBLISHED, number)
        else:
            self.bytes_since_base += size
        self._names[kind][number] = name

    def summed_up(self, frontier: Epoch, accepted: Epoch) -> None:
        """Let go of what the newest base sums up; the newest epoch stays, it says which there have been."""
        self.bytes_since_base = 0
        self._drop(COMMITS, self.base + 1)
        newest = self._names[EPOCHS].pop(accepted, None)
        self._drop(EPOCHS, frontier + 1)
        if newest is not None:
            self._names[EPOCHS][accepted] = newest

    def take_useless(self) -> list[str]:
        """Return the records that nobody needs any more, once."""
        useless, self._useless = self._useless, []
        return useless

    def _drop(self, kind: str, before: int) -> None:
        names = self._names[kind]
        for number in [number for number in names if number < before]:
            self._useless.append(names.pop(number))
