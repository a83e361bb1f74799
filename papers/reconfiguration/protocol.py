"""The reconfiguration stream with frontiers (latency-conscious reconfiguration, 2.2): routing depends on time only.

Two timestamped inputs, data (key, value) and reconfigurations (keys, worker). Neither is acted on before the control
frontier has passed its time. A reconfiguration at T waits until every datum before T has been applied; then the state
travels as a message at T, and a worker applies nothing at t >= T before it has arrived. Readings: data at T follow
the reconfiguration at T (LR-A4); a key may be reconfigured once per time (A5); without any reconfiguration data wait
for the control frontier all the same (A6). `replay` runs a list of arrivals.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from evenflow.errors import InputError
from evenflow.model import LaneId
from papers.messages.folds import SUM, Fold

Key: TypeAlias = Hashable
Time: TypeAlias = int


@dataclass(frozen=True, slots=True)
class Datum:
    """A value for a key at a time."""

    time: Time
    key: Key
    value: Any


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """From `time` on these keys live on `worker`."""

    time: Time
    keys: tuple[Key, ...]
    worker: LaneId


@dataclass(frozen=True, slots=True)
class Advance:
    """Nothing before `time` will come on this input any more."""

    stream: Literal["data", "control"]
    time: Time


@dataclass(frozen=True, slots=True)
class StateMoved:
    """A key's state on its way, with the time of its reconfiguration."""

    time: Time
    key: Key
    source: LaneId
    target: LaneId
    state: Any


@dataclass(frozen=True, slots=True)
class Applied:
    """A datum that a worker has folded into its state."""

    datum: Datum
    worker: LaneId


Arrival: TypeAlias = Datum | Reconfiguration | Advance


@dataclass
class Reconfigurable:
    """Workers, each with a fixer that routes and a state operator that folds; `step` does all that may be done now.

    `initial` says where keys live at first, worker 0 if not said. Messages between workers arrive at once, unless
    `holds_state` keeps states back until `release`.
    """

    workers: int
    initial: Mapping[Key, LaneId] = field(default_factory=dict)
    fold: Fold = SUM
    holds_state: bool = False
    states: list[dict[Key, Any]] = field(init=False)
    applied: list[Applied] = field(default_factory=list)
    moved: list[StateMoved] = field(default_factory=list)
    routed: dict[Datum, LaneId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin before all time."""
        self.states = [{} for _ in range(self.workers)]
        self._frontier: dict[str, float] = {"data": 0, "control": 0}
        self._data: list[Datum] = []
        self._plan: dict[Key, dict[Time, LaneId]] = {}
        self._pending: list[tuple[Time, Key]] = []
        self._in_flight: list[StateMoved] = []

    # --- in -------------------------------------------------------------------------------------------------------

    def take(self, arrival: Arrival) -> None:
        """Take in one arrival and do what it allows."""
        if isinstance(arrival, Advance):
            self._frontier[arrival.stream] = max(self._frontier[arrival.stream], arrival.time)
        elif isinstance(arrival, Datum):
            self._refuse_the_past("data", arrival.time)
            self._data.append(arrival)
        else:
            self._refuse_the_past("control", arrival.time)
            self._reconfigure(arrival)
        self.step()

    def finish(self) -> None:
        """Close both inputs and let everything come to rest."""
        self._frontier = {"data": float("inf"), "control": float("inf")}
        self.step()

    def release(self) -> None:
        """Deliver the states that were held back."""
        self.holds_state = False
        self.step()

    def _refuse_the_past(self, stream: str, time: Time) -> None:
        if time < self._frontier[stream]:
            raise InputError(
                f"{stream} at {time} came after the {stream} frontier had passed to {self._frontier[stream]}"
            )

    def _reconfigure(self, arrival: Reconfiguration) -> None:
        if not 0 <= arrival.worker < self.workers:
            raise InputError(f"there is no worker {arrival.worker}; workers are 0 to {self.workers - 1}")
        for key in arrival.keys:
            if arrival.time in self._plan.get(key, {}):
                raise InputError(f"key {key!r} is reconfigured twice at time {arrival.time}")
        for key in arrival.keys:
            self._plan.setdefault(key, {})[arrival.time] = arrival.worker
            self._pending.append((arrival.time, key))

    # --- what may be done -----------------------------------------------------------------------------------------

    def owner(self, key: Key, time: Time) -> LaneId:
        """Return where a key lives at a time, by what is known now; final once the control frontier has passed."""
        plan = self._plan.get(key, {})
        past = [at for at in plan if at <= time]
        return plan[max(past)] if past else self.initial.get(key, 0)

    def step(self) -> None:
        """Deliver, migrate and apply until nothing more may be done."""
        while self._deliver() or self._migrate() or self._apply():
            pass

    def _deliver(self) -> bool:
        if self.holds_state or not self._in_flight:
            return False
        message = self._in_flight.pop(0)
        if message.state is not None:
            self.states[message.target][message.key] = message.state
        return True

    def _migrate(self) -> bool:
        """Send the state of the earliest pending reconfiguration whose time has come."""
        for time, key in sorted(self._pending, key=lambda pending: pending[0]):
            # Inputs have reached T, no other reconfiguration can come at T or before, all data before T are applied.
            if self._frontier["control"] <= time or self._frontier["data"] < time or self._busy_before(time, key):
                continue
            self._pending.remove((time, key))
            source, target = self.owner(key, time - 1), self.owner(key, time)
            if source != target:
                message = StateMoved(time, key, source, target, self.states[source].pop(key, None))
                self.moved.append(message)
                self._in_flight.append(message)
            return True
        return False

    def _busy_before(self, time: Time, key: Key) -> bool:
        """Whether the state of a key may still change or arrive at a time before `time`."""
        return (
            any(datum.time < time and datum.key == key for datum in self._data)
            or any(at < time and other == key for at, other in self._pending)
            or any(message.time < time and message.key == key for message in self._in_flight)
        )

    def _apply(self) -> bool:
        """Apply the earliest datum whose place is final and whose state is there."""
        for datum in sorted(self._data, key=lambda datum: datum.time):
            if self._frontier["control"] <= datum.time:
                break  # a reconfiguration with an earlier or equal time may still come
            worker = self.routed[datum] = self.owner(datum.key, datum.time)
            if self._frontier["data"] <= datum.time or self._state_is_to_come(datum):
                continue
            self._data.remove(datum)
            state = self.states[worker].get(datum.key, self.fold.initial)
            self.states[worker][datum.key] = self.fold.step(state, datum.value)
            self.applied.append(Applied(datum, worker))
            return True
        return False

    def _state_is_to_come(self, datum: Datum) -> bool:
        waiting = [time for time, key in self._pending if key == datum.key]
        waiting += [message.time for message in self._in_flight if message.key == datum.key]
        return any(time <= datum.time for time in waiting)


def replay(
    arrivals: Iterable[Arrival], workers: int, initial: Mapping[Key, LaneId] | None = None, fold: Fold = SUM
) -> Reconfigurable:
    """Replay arrivals in their order, close the inputs, and return the workers as they are then."""
    system = Reconfigurable(workers, initial or {}, fold)
    for arrival in arrivals:
        system.take(arrival)
    system.finish()
    return system


def example_of_2_3() -> Sequence[Arrival]:
    """Return the dog and cat example of section 2.3 as it arrives, word for word (LR-E4)."""
    return (
        Datum(100, "dog", 10),
        Datum(100, "cat", 5),
        Advance("control", 101),
        Advance("data", 101),
        Reconfiguration(150, ("dog",), 1),
        Advance("control", 151),
        Advance("data", 151),
        Reconfiguration(200, ("cat",), 1),
        Advance("data", 200),
        Advance("control", 201),
        Datum(200, "dog", 13),
        Datum(200, "cat", 23),
        Advance("data", 201),
    )
