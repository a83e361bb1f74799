"""What a run comes to: before and after the switch, in five numbers each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evenflow.demo.lanes import Backlog, Work
from evenflow.demo.record import EpochFigures, Record
from evenflow.errors import EvenflowError
from evenflow.model.balance import max_over_mean

_WARM_UP = 0.2  # of the static part: not counted
_DRAINED_S = 2.5  # seconds of input that may wait without being called a backlog
_AT_LEAST = 2  # epochs to measure by, where there are so many
_LEAST_S = 1.0  # the shortest part that is measured

Latency = Callable[[int, int], Mapping[str, float]]


@dataclass(frozen=True)
class Figures:
    """What a part of the run came to; the backlog is that at its end."""

    rows_per_s: float
    imbalance: float
    latency_p50_s: float
    latency_p99_s: float
    backlog_rows: int


@dataclass(frozen=True)
class Summary:
    """The demo's answer. `drained`: whether the backlog was gone before the balanced part was measured."""

    before: Figures
    after: Figures
    moves: int
    drained: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the promised JSON."""
        return {"before": asdict(self.before), "after": asdict(self.after), "moves": self.moves}


@dataclass(frozen=True)
class Course:
    """When what was to happen, in seconds from the first bid; and the input."""

    switch_s: float
    after_s: float
    rows_per_second: float


def summarise(record: Record, latency: Latency, course: Course) -> Summary:
    """Compare the static part, without its beginning, with the last part, when the backlog should be gone."""
    warm_s = _WARM_UP * course.switch_s
    static = [one for one in record.epochs if one.began_s < course.switch_s]
    warm = [one for one in static if one.began_s >= warm_s]
    balanced = [one for one in record.epochs if one.began_s >= course.switch_s]
    late = [one for one in balanced if one.began_s >= course.after_s]
    if not static or not balanced:
        raise EvenflowError(
            f"the machine is too slow or too busy: {len(static)} epochs finished before the switch and "
            f"{len(balanced)} after it; give the demo more time with --seconds"
        )
    before = warm if len(warm) >= _AT_LEAST else static[-_AT_LEAST:]
    after = late if len(late) >= _AT_LEAST else balanced[-_AT_LEAST:]
    ended_s = record.epochs[-1].committed_s
    began_s = min(course.after_s, after[0].began_s, ended_s - _LEAST_S)
    backlog, work = Backlog(record), Work.of(record.pieces, record.lanes)
    waited, waiting, left = (float(backlog.at(at_s).sum()) for at_s in (course.switch_s, began_s, ended_s))
    return Summary(
        _figures(work, (warm_s, course.switch_s), _over(before, latency), waited),
        _figures(work, (began_s, ended_s), _over(after, latency), left),
        len(record.moves),
        waiting <= _DRAINED_S * course.rows_per_second,
    )


def _over(part: Sequence[EpochFigures], latency: Latency) -> Mapping[str, float]:
    return latency(part[0].epoch, part[-1].epoch)


def _figures(work: Work, span_s: tuple[float, float], latency: Mapping[str, float], waiting: float) -> Figures:
    edges_s = np.array(span_s)
    return Figures(
        float(work.rates(edges_s).sum()),
        float(max_over_mean(work.busy_s(edges_s)[0])),
        latency["p50_s"],
        latency["p99_s"],
        round(waiting),
    )
