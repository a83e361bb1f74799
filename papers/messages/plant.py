"""What a run is made of besides its records: lanes, costs, delays, the fold, the seed."""

from __future__ import annotations

from dataclasses import dataclass, field

from evenflow.model import RoutingTable
from papers.messages.folds import SUM, Fold
from papers.messages.loop import SECOND


@dataclass(frozen=True, slots=True)
class Timing:
    """Delays and costs, in microseconds.

    `data`: between two operators, from and to. `control`: from the scheduler to a source, and of every message that
    is not data. `metric`: of a load report on its way back. `transfer`, `transfer_per_key`: to bring the state of a
    slot to another lane, in the background. `hand_over_per_key`: what taking out and putting in a key costs the
    lane itself, which does nothing else meanwhile. `marker`: what a control message costs a lane.
    """

    data: tuple[int, int] = (1_000, 1_000)
    control: tuple[int, int] = (1_000, 1_000)
    metric: tuple[int, int] = (1_000, 1_000)
    transfer: int = 20_000
    transfer_per_key: int = 10
    hand_over_per_key: int = 0
    marker: int = 0
    reorder: bool = False


@dataclass(frozen=True, slots=True)
class Plant:
    """What a run is made of besides its records.

    `table`: the lanes and who holds which slot at first. `service`: what a record costs a lane, `period`: time between
    two control messages, both in microseconds. Without `control` no control message is sent at all.
    """

    table: RoutingTable
    service: int = 1_000
    period: int = SECOND
    timing: Timing = field(default_factory=Timing)
    fold: Fold = SUM
    seed: int = 1
    control: bool = True
    sources_close: bool = False
