"""What the epochs of a run come to: before and after the switch, in four numbers each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import numpy as np

from evenflow.errors import EvenflowError
from evenflow.model.balance import max_over_mean

_WARM_UP = 0.2  # of the static part: epochs that began in it are not counted
_DRAINED_S = 2.5  # seconds of input that may wait without being called a backlog
_AT_LEAST = 2  # epochs to measure by, where there are so many

Latency = Callable[[int, int], Mapping[str, float]]


@dataclass(frozen=True)
class EpochFigures:
    """One epoch: seconds count from the start of the bids."""

    epoch: int
    began_s: float
    committed_s: float
    rows: int
    lane_rows: tuple[int, ...]
    lane_busy_s: tuple[float, ...]
    moves: int
    latency_p50_s: float
    latency_p99_s: float

    @classmethod
    def of(cls, progress: Mapping[str, Any], zero_s: float) -> EpochFigures:
        """Read one entry of `recentProgress`; `zero_s` is the wall-clock time of the first bid."""
        began_s = datetime.fromisoformat(progress["timestamp"]).timestamp() - zero_s
        took_ms = sum(ms for part, ms in progress["durationMs"].items() if part != "publish")
        lanes = sorted(progress["lanes"], key=lambda lane: lane["lane"])
        return cls(
            progress["epoch"],
            began_s,
            began_s + took_ms / 1e3,
            progress["numInputRows"],
            tuple(lane["rows"] for lane in lanes),
            tuple(lane["busy_s"] for lane in lanes),
            progress["moves"],
            progress["latency"]["p50_s"],
            progress["latency"]["p99_s"],
        )


@dataclass(frozen=True)
class Figures:
    """What a part of the run came to."""

    rows_per_s: float
    imbalance: float
    latency_p50_s: float
    latency_p99_s: float


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
    """When what was to happen, in seconds from the first bid; the input; and how many moves were made."""

    switch_s: float
    after_s: float
    rows_per_second: float
    moves: int


def summarise(epochs: Sequence[EpochFigures], latency: Latency, course: Course) -> Summary:
    """Compare the static part, without its first epochs, with the last part, when the backlog should be gone."""
    static = [at for at, one in enumerate(epochs) if one.began_s < course.switch_s]
    warm = [at for at in static if epochs[at].began_s >= _WARM_UP * course.switch_s]
    before = warm if len(warm) >= _AT_LEAST else static[-_AT_LEAST:]
    balanced = [at for at, one in enumerate(epochs) if one.began_s >= course.switch_s]
    late = [at for at in balanced if epochs[at].began_s >= course.after_s]
    after = late if len(late) >= _AT_LEAST else balanced[-1:]
    if not before or not after:
        raise EvenflowError(
            f"the machine is too slow or too busy: {len(static)} epochs finished before the switch and "
            f"{len(balanced)} after it; give the demo more time with --seconds"
        )
    behind = course.rows_per_second * epochs[after[0]].began_s - sum(one.rows for one in epochs[: after[0]])
    drained = behind <= _DRAINED_S * course.rows_per_second
    return Summary(_figures(epochs, before, latency), _figures(epochs, after, latency), course.moves, drained)


def lane_rates(epochs: Sequence[EpochFigures], at: int) -> list[float]:
    """Return the rows per second of each lane in one epoch, over the time since the epoch before was committed."""
    span = _since(epochs, at, at)
    return [rows / span for rows in epochs[at].lane_rows]


def _figures(epochs: Sequence[EpochFigures], chosen: Sequence[int], latency: Latency) -> Figures:
    part = [epochs[at] for at in chosen]
    busy = np.sum([one.lane_busy_s for one in part], axis=0)
    seen = latency(part[0].epoch, part[-1].epoch)
    return Figures(
        sum(one.rows for one in part) / _since(epochs, chosen[0], chosen[-1]),
        float(max_over_mean(busy)),
        seen["p50_s"],
        seen["p99_s"],
    )


def _since(epochs: Sequence[EpochFigures], first: int, last: int) -> float:
    """Return the seconds that the epochs from `first` to `last` took, with the waiting before them."""
    start = epochs[first - 1].committed_s if first else epochs[first].began_s
    return max(1e-3, epochs[last].committed_s - start)
