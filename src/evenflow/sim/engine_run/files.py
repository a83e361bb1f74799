"""What played lanes have written: the content of their files, slot by slot, kept in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from evenflow.lane.messages import SlotToLoad
from evenflow.model import SlotId
from evenflow.sim.engine_run.operator import SlotState
from evenflow.state import FileRef, SlotRef


@dataclass(frozen=True, slots=True)
class Stored:
    """The state of a slot, or what of it has changed, and how many bytes that is."""

    state: SlotState
    size: int


class MissingFileError(Exception):
    """A file that is to be read is gone: somebody has found that nobody needs it any more."""


@dataclass
class PlayedFiles:
    """All files there are, by name."""

    _files: dict[str, Mapping[SlotId, Stored]] = field(default_factory=dict)

    def write(self, name: str, slots: Mapping[SlotId, Stored]) -> FileRef:
        """Write a file."""
        self._files[name] = slots
        return FileRef(name, sum(stored.size for stored in slots.values()), 0)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that hold no slots (blocks) were never written."""
        for name in names:
            self._files.pop(name, None)

    def read(self, entry: SlotToLoad) -> tuple[SlotState, int]:
        """Return what is to be loaded of a slot, older parts first, and how many bytes are read."""
        refs = (*(() if entry.snapshot is None else (entry.snapshot,)), *entry.changes)
        parts = [self._part(entry.slot, ref) for ref in refs]
        state = {key: value for part in parts for key, value in part.state.items()}
        return state, sum(part.size for part in parts)

    def _part(self, slot: SlotId, ref: SlotRef) -> Stored:
        found = self._files.get(ref.file.name)
        if found is None:
            raise MissingFileError(ref.file.name)
        return found[slot]
