"""What a lane does with each message. It knows no Spark and no socket: messages in, messages out.

`holding` is what it has, `traffic` what comes and goes, `folding` what work does to it, `writing` what becomes of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from evenflow.errors import ProtocolError
from evenflow.lane.background import Background, Inline
from evenflow.lane.config import LaneConfig
from evenflow.lane.costs import loads_of
from evenflow.lane.faults import Faults
from evenflow.lane.folding import Folding
from evenflow.lane.holding import Holding
from evenflow.lane.hot_keys import KeyCounter
from evenflow.lane.messages import Adopt, Done, Forget, FromLane, Prepare, Release, ToLane, Work
from evenflow.lane.traffic import Traffic
from evenflow.lane.writing import Writing
from evenflow.operators.clock import NeededTime
from evenflow.state import Folder


@dataclass
class LaneWorker:
    """The state of one lane and how messages change it."""

    config: LaneConfig
    attempt: str
    folder: Folder
    faults: Faults = field(default_factory=Faults)
    clock: Callable[[], float] = time.perf_counter
    needed: Callable[[], float] = field(default_factory=NeededTime)
    background: Background = field(default_factory=Inline)
    holding: Holding = field(init=False)
    _traffic: Traffic = field(init=False)
    _folding: Folding = field(init=False)
    _writing: Writing = field(init=False)
    _files: int = 0
    _idle_since: float = field(init=False)

    def __post_init__(self) -> None:
        """Start with no unit."""
        config = self.config

        def now() -> float:
            return self.clock()

        self.holding = Holding(config.lane, config.stages)
        self._traffic = Traffic(config.lane, self.holding, self.folder, self.faults, self.background, now, self._file)
        self._folding = Folding(config, self.holding, self.folder, now)
        self._writing = Writing(config, self.holding, self.folder, self.attempt)
        self._idle_since = self.clock()

    def handle(self, message: ToLane) -> list[FromLane]:
        """Do what a message says and return what there is to answer now."""
        if isinstance(message, Work):
            return [self._work(message)]
        if isinstance(message, Release):
            self._traffic.release(message)
        elif isinstance(message, Adopt | Prepare):
            self._traffic.load(message)
        elif isinstance(message, Forget):
            self._traffic.forget(message)
        else:
            raise ProtocolError(f"lane {self.config.lane} cannot handle {type(message).__name__}")
        return []

    @property
    def is_moving_state(self) -> bool:
        """Whether state is on its way in or out: `step` brings it on."""
        return self._traffic.is_under_way

    def step(self) -> list[FromLane]:
        """Bring what is in the background a piece further; return what has become ready."""
        return self._traffic.step()

    def _work(self, message: Work) -> Done:
        began, needed = self.clock(), self.needed()
        idle_s, lane, holding = began - self._idle_since, self.config.lane, self.holding
        self._check(message)
        self.faults.reach("lane.before-fold", lane, message.epoch)
        counters = [KeyCounter(stage.keys, message.hot_slots) for stage in self.config.stages]
        folds = list(self._folding.folds(message, counters))
        self.faults.reach("lane.folded", lane, message.epoch)
        commit = self._writing.commit(message, folds, self._file())
        self.faults.reach("lane.changes-written", lane, message.epoch)
        for advance in message.advances:
            holding.versions.update(dict.fromkeys(advance.slots, advance.version))
        self._keep_pace(sum(int(fold.records.sum()) for fold in folds), began)
        busy_s = self.clock() - began
        # A lane that is kept to a pace stands for a machine of its own: what else runs here is not on its cores.
        paced = self.config.rows_per_second is not None
        needed_s = busy_s if paced else min(busy_s, self.needed() - needed)
        hot_keys = tuple(key for counter in counters for key in counter.hottest())  # for people: no cost of the units
        self._idle_since = self.clock()
        sizes, rows = holding.unit_bytes(), holding.unit_rows()
        held = np.zeros(sizes.size, dtype=bool)
        held[list(holding.versions)] = True
        sizes, rows = sizes * held, rows * held
        epochs = [each.epoch for each in message.inputs]
        loads = loads_of(epochs, folds, sizes, busy_s=busy_s, needed_s=needed_s, paced=paced)
        return Done(commit, loads, idle_s, int(rows.sum()), int(sizes.sum()), hot_keys, holding.due())

    def _check(self, message: Work) -> None:
        """Refuse work that does not begin where the units are: rows would be folded twice, or not at all."""
        versions = self.holding.versions
        for advance in message.advances:
            self.holding.must_serve(advance.slots, "fold rows of")
            wrong = [unit for unit in advance.slots if versions[unit] != advance.since]
            if wrong:
                raise ProtocolError(
                    f"lane {self.config.lane} was told to fold slot {wrong[0]} from version {advance.since}, "
                    f"it is at {versions[wrong[0]]}"
                )

    def _file(self) -> str:
        """Return what tells this attempt's files apart, from those of others and from each other."""
        self._files += 1
        return f"{self.attempt}.{self._files}"

    def _keep_pace(self, rows: int, began: float) -> None:
        if self.config.rows_per_second is not None:
            time.sleep(max(0.0, rows / self.config.rows_per_second - (self.clock() - began)))
