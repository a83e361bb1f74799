"""Who decides what moves in a run: the real balancer, or a script that says what moves at which epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from evenflow.control import Ack, LaneWish
from evenflow.model import ControlMessage, Epoch, LoadReport, Move


class Decider(Protocol):
    """What the protocols need of `evenflow.control.Balancer`, which is one."""

    def next_epoch(self, epoch: Epoch, at_s: float = 0.0) -> ControlMessage:
        """Return the control message of an epoch."""

    def report(self, report: LoadReport) -> LaneWish | None:
        """Take a load report."""

    def acknowledge(self, ack: Ack) -> LaneWish | None:
        """Take a lane's word on a move."""


class Script:
    """Moves given beforehand, by epoch; it keeps what it is told. Moves may overlap, which a balancer avoids."""

    def __init__(self, moves: Mapping[Epoch, Sequence[Move]] | None = None) -> None:
        """Plan `moves`."""
        self.moves = dict(moves or {})
        self.reports: list[LoadReport] = []
        self.acks: list[Ack] = []

    def next_epoch(self, epoch: Epoch, at_s: float = 0.0) -> ControlMessage:  # noqa: ARG002 - the interface
        """Return the control message of an epoch, empty unless the script has moves for it."""
        return ControlMessage(epoch, tuple(self.moves.get(epoch, ())))

    def report(self, report: LoadReport) -> LaneWish | None:
        """Keep a report."""
        self.reports.append(report)
        return None

    def acknowledge(self, ack: Ack) -> LaneWish | None:
        """Keep an acknowledgement."""
        self.acks.append(ack)
        return None
