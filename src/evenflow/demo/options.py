"""What can be chosen about the demo, and the rates that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from evenflow.errors import InputError
from evenflow.model import RoutingTable
from evenflow.policies import DEFAULT_POLICY, policy_named

LANE_ROWS_PER_SECOND = 5_000  # low enough that two real cores keep up with all lanes together
_OVERLOAD = 1.2  # what the hot lane would need, of what it can do
_MOST_OF_ALL = 0.65  # of what all lanes can do together; the rest catches up and pays for the bookkeeping
_LEAST_SECONDS, _MOST_SECONDS = 10, 3600
_WORTHWHILE_S = 20.0  # less shows nothing
_ENDING_S = 5.0  # to stop Spark, to draw
_LEAST_LANES, _MOST_LANES = 2, 32
_SLOTS_PER_LANE = 16


@dataclass(frozen=True)
class DemoOptions:
    """See `evenflow demo --help`."""

    seconds: float = 50.0
    lanes: int = 4
    skew: float = 0.8
    policy: str = DEFAULT_POLICY
    seed: int = 1
    live: bool = True
    json: Path | None = None
    png: Path = Path("evenflow-demo.png")
    whole_s: float | None = None  # bound on the demo with Spark's start: `seconds` is cut down to it

    def __post_init__(self) -> None:
        """Refuse what cannot be, before Spark starts."""
        if not _LEAST_SECONDS <= self.seconds <= _MOST_SECONDS:
            raise InputError(f"demo: --seconds is from {_LEAST_SECONDS} to {_MOST_SECONDS}, got {self.seconds:g}")
        if not _LEAST_LANES <= self.lanes <= _MOST_LANES:
            raise InputError(f"demo: --lanes is from {_LEAST_LANES} to {_MOST_LANES}, got {self.lanes}")
        if not 0 < self.skew <= 1:
            raise InputError(
                f"demo: --skew is the share of the rows for lane 0, above 0 and up to 1, got {self.skew:g}"
            )
        if self.seed < 0:
            raise InputError(f"demo: --seed must not be negative, got {self.seed}")
        policy_named(self.policy)
        for option, file in self.files:
            if file.is_dir() or not file.absolute().parent.is_dir():
                raise InputError(f"demo: {option} expects a file in a folder that exists, got {file}")

    @property
    def files(self) -> list[tuple[str, Path]]:
        """The files to write, each with the option that names it."""
        return [("--png", self.png)] if self.json is None else [("--png", self.png), ("--json", self.json)]

    def after_start(self, took_s: float) -> DemoOptions:
        """Return the options with less time if starting took so long that the whole would take too long."""
        if self.whole_s is None:
            return self
        left = max(_WORTHWHILE_S, self.whole_s - took_s - _ENDING_S)
        return replace(self, seconds=min(self.seconds, round(left)))

    @property
    def slots(self) -> int:
        """Enough slots for each lane to give some away."""
        return max(64, _SLOTS_PER_LANE * self.lanes)

    @property
    def table(self) -> RoutingTable:
        """The table that the query starts with."""
        return RoutingTable.even(self.slots, self.lanes)

    @property
    def rows_per_second(self) -> int:
        """The input: more than the hot lane can take, less than all lanes together can."""
        wanted = min(_OVERLOAD / self.skew, _MOST_OF_ALL * self.lanes)
        return round(wanted * LANE_ROWS_PER_SECOND)

    @property
    def switch_s(self) -> float:
        """When the policy is switched on: when two fifths of the time are over."""
        return self.seconds * 2 / 5

    @property
    def after_s(self) -> float:
        """When measuring the balanced query begins: the backlog should be gone by then."""
        return self.seconds * 2 / 3
