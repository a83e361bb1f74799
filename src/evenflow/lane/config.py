"""What a lane is told when it starts: whose lane it is, what it does with rows, and where its files go."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from evenflow.operators import Operator
from evenflow.state import ARROW, OutputFormat, Retries
from evenflow.state.retrying import PATIENCE_S


@dataclass(frozen=True)
class LaneConfig:
    """What a lane is told when it starts, whatever its attempt."""

    lane: int
    location: str
    operator: Operator
    schema: pa.Schema
    keys: tuple[str, ...]
    slots: int
    complete: bool = False
    rows_per_second: float | None = None  # stands for a slower machine in demos and experiments; None in real use
    query: str = "query"  # what it is called in the log
    publishes: bool = True  # False if no sink wants the outputs: then they are not written
    output: OutputFormat = ARROW  # what the sink takes best
    retry_s: float = PATIENCE_S  # for how long errors of the storage that may pass are tried again

    @property
    def retries(self) -> Retries:
        """How this lane tries again what its storage has refused."""
        return Retries(self.retry_s, self.query, self.lane)
