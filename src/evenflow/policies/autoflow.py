"""AutoFlow's hotspot diminishing (Algorithm 3): from the busiest lane to the idlest, half of the gap.

Readings: `>=` on the ratio (AF-A19), nothing on an empty window (A20), an end when the lane's slots are used up
(A21), idle slots stay (A22), a slot heavier than half the gap stays for good and is named (A23), the pair is part
of the answer (A24), the lowest number wins ties (A25), tumbling windows of `window_length_s` (A26).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evenflow.errors import InputError
from evenflow.model import LoadView, Move
from evenflow.policies.base import Proposal


@dataclass(frozen=True, slots=True)
class AutoFlow:
    """Move slots from the lane with most records to the one with fewest, first fit, up to half the gap."""

    name: ClassVar[str] = "autoflow"
    paper: ClassVar[str] = "AutoFlow (Lu et al.)"
    summary: ClassVar[str] = "busiest lane to idlest lane, first fit into half the gap, by record counts"
    takes_parts: ClassVar[bool] = True

    factor: float = 0.2
    window_length_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse a factor that is no ratio, and a window without length or end."""
        if not 0 <= self.factor <= 1:
            raise InputError(f"autoflow: factor is a ratio from 0 to 1, got {self.factor}")
        if self.window_length_s is not None and not 0 < self.window_length_s < float("inf"):
            raise InputError(f"autoflow: window_length_s is in seconds, above 0, got {self.window_length_s}")

    def propose(self, view: LoadView) -> Proposal:
        """Apply Algorithm 3 to the newest window."""
        counts = view.last.slots.records
        totals = view.lane_sums(counts)
        busiest, idlest = int(totals.argmax()), int(totals.argmin())
        most, least = totals[busiest], totals[idlest]
        if most == 0 or (most - least) / most < self.factor:
            return Proposal(collect_s=self.window_length_s, note="the lanes are within the factor")
        source, target = view.table.lanes[busiest], view.table.lanes[idlest]
        half_gap = (most - least) / 2
        fitting, gap = [], half_gap
        for slot in view.biggest_first(source, counts):
            records = counts[slot]
            if gap <= 0 or records == 0:
                break
            if records <= gap:
                fitting.append(slot)
                gap -= records
        reason = f"lane {source} served {most:.0f} records, lane {target} {least:.0f}: half the gap is moved"
        own = view.table.slots_of(source)
        too_heavy = own[counts[own] > totals.mean()] if not fitting else own[:0]
        return Proposal(
            moves=tuple(Move(slot, source, target, reason) for slot in sorted(fitting)),
            not_curable=tuple(too_heavy.tolist()),
            collect_s=self.window_length_s,
            note=reason,
        )
