"""State on its way from lane to lane: which handoffs there are; once loaded, they count as snapshots."""

from __future__ import annotations

import msgspec

from evenflow.model import Epoch, SlotId
from evenflow.state import LaneCommit, SlotRef


class Handoffs:
    """The handoffs that were written and are not in the checkpoint's records yet."""

    def __init__(self) -> None:
        """Begin with none."""
        self._refs: dict[SlotId, SlotRef] = {}

    def __contains__(self, unit: object) -> bool:
        """Tell whether a unit has a handoff."""
        return unit in self._refs

    def written(self, unit: SlotId, ref: SlotRef) -> SlotRef | None:
        """A unit was handed off; return the handoff before, if it has moved on before it was taken any further."""
        outdated = self._refs.get(unit)
        self._refs[unit] = ref
        return outdated

    def of(self, unit: SlotId, version: Epoch) -> SlotRef | None:
        """Return a unit's handoff if it is the unit at this version."""
        ref = self._refs.get(unit)
        return ref if ref is not None and ref.version == version else None

    def noted_in(self, commit: LaneCommit) -> LaneCommit:
        """Let the handoffs that a lane has loaded count as snapshots: they save reading older changes."""
        if not self._refs:
            return commit
        advanced = (unit for advance in commit.advances for unit in advance.slots)
        loaded = tuple((unit, self._refs.pop(unit)) for unit in advanced if unit in self._refs)
        # Those that newer snapshots replace are named as well: so they are known, and go.
        return msgspec.structs.replace(commit, snapshots=(*loaded, *commit.snapshots)) if loaded else commit
