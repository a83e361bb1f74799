"""Never move anything: what plain hash partitioning does, and every other policy's yardstick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evenflow.model import LoadView
from evenflow.policies.base import Proposal


@dataclass(frozen=True, slots=True)
class Static:
    """Leave every slot where it is."""

    name: ClassVar[str] = "static"
    paper: ClassVar[str] = "none (hash partitioning)"
    summary: ClassVar[str] = "never moves anything; the yardstick"

    def propose(self, view: LoadView) -> Proposal:  # noqa: ARG002 - the interface hands it over
        """Propose nothing."""
        return Proposal()
