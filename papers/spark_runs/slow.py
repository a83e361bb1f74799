"""Lanes that are slow for a while: stands for other programs on their machines (Flux's external load)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from evenflow.model import EpochTime, LaneId
from evenflow.model.slots import IntArray
from evenflow.operators import LATEST, Folded
from papers.spark_runs.around import AroundOperator, AroundResident

_FOR_EVER_S = 1e9


@dataclass(frozen=True, slots=True)
class SlowSpan:
    """A lane is slow from `start_s` to `end_s` of a run."""

    lane: LaneId
    start_s: float = 0.0
    end_s: float = _FOR_EVER_S


def done_at(start_s: float, work_s: float, spans: Sequence[Sequence[float]], speed: float) -> float:
    """Return when work begun at `start_s` is done: it takes `work_s` at full speed, goes at `speed` in the spans."""
    now, left = start_s, work_s
    for begin, end in sorted((float(begin), float(end)) for begin, end in spans):
        if end <= now:
            continue
        free = max(0.0, begin - now)
        if left <= free:
            return now + left
        now, left = now + free, left - free
        if left <= (end - now) * speed:
            return now + left / speed
        now, left = end, left - (end - now) * speed
    return now + left


def tell(file: Path, pids: Mapping[LaneId, int], spans: Sequence[SlowSpan], zero_s: float) -> None:
    """Write down which processes are slow when, for `SlowLanes` to read; `zero_s` is when the run began."""
    found: dict[str, list[list[float]]] = {}
    for span in spans:
        found.setdefault(str(pids[span.lane]), []).append([zero_s + span.start_s, zero_s + span.end_s])
    hidden = file.with_suffix(".new")
    hidden.write_text(json.dumps(found))
    hidden.rename(file)


class _SlowResident(AroundResident["SlowLanes"]):
    """State whose rows take longer to fold while its lane is slow."""

    def fold(self, rows: pa.Table, slots: IntArray, at: EpochTime = LATEST) -> Folded:
        """Fold the rows, and take as long as the lane would."""
        began_s = time.time()
        folded = self.resident.fold(rows, slots, at)
        lanes = self.around
        until_s = done_at(began_s, rows.num_rows / lanes.capacity, lanes.spans(), lanes.speed)
        time.sleep(max(0.0, until_s - time.time()))
        return folded


@dataclass(frozen=True)
class SlowLanes(AroundOperator):
    """An operator that serves `capacity` rows per second, less on processes that `file` names."""

    held_as = _SlowResident

    capacity: float
    speed: float
    file: str

    def spans(self) -> list[list[float]]:
        """Return when this process is slow, by the wall clock."""
        file = Path(self.file)
        found: dict[str, list[list[float]]] = json.loads(file.read_text()) if file.exists() else {}
        return found.get(str(os.getpid()), [])
