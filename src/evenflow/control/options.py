"""The brakes of the balancer: how much it watches, waits for and lets happen at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from evenflow.errors import InputError
from evenflow.model import MoveCost


@dataclass(frozen=True, slots=True)
class BalancerOptions:
    """The brakes. All have defaults; the policies' own thresholds are theirs.

    `window_epochs`: epochs per load window, at least. `settle_windows`: windows not used after the start
    and after a lane was lost, since a lane that has just started is slow. `warm_up_windows`: windows to see before the
    policy is asked for the first time; with two, noise can be told from skew. `history`: windows kept for policies
    that look back; `even` takes 12 to tell that a skew lasts.
    `cooldown_windows`: full windows that are watched after the last move before the policy is asked again; the one
    in which a move completed is never used (AF-A26). `max_bytes_in_flight`: state announced and not yet settled;
    one slot may always go. `min_gain`: share of the busiest lane's time that a plan must take off it, 0 trusts the
    policy. `min_lanes`, `max_lanes`: bounds for policies that ask for more or fewer lanes; None keeps the number.
    `patience`: how many epochs a report may lag behind the others before its window is given up.
    `copy_ahead_bytes`: slots with at least so much state are loaded by their new lane before they move; None for none.
    `overlap`: moves of different lanes may be under way at once, and the policy may be asked about lanes that are in
    none (AF-M8); without it one step is under way at a time.
    `whole_epochs`: rows come an epoch at a time, as on Spark, not one by one (see `LoadView`).
    """

    window_epochs: int = 1
    settle_windows: int = 0
    warm_up_windows: int = 1
    history: int = 24
    cooldown_windows: int = 0
    max_bytes_in_flight: int | None = None
    min_gain: float = 0.0
    min_lanes: int | None = None
    max_lanes: int | None = None
    patience: int = 8
    copy_ahead_bytes: int | None = None
    overlap: bool = True
    whole_epochs: bool = True
    move_cost: MoveCost = field(default_factory=MoveCost)

    def __post_init__(self) -> None:
        """Refuse numbers that would stop the balancer for good."""
        least_of = {
            "window_epochs": 1,
            "settle_windows": 0,
            "warm_up_windows": 1,
            "history": 1,
            "cooldown_windows": 0,
            "patience": 0,
        }
        for name, least in least_of.items():
            if getattr(self, name) < least:
                raise InputError(f"balancer: {name} must be at least {least}, got {getattr(self, name)}")
        if not 0 <= self.min_gain < 1:
            raise InputError(f"balancer: min_gain is a share from 0 to below 1, got {self.min_gain}")
        for name in ("max_bytes_in_flight", "copy_ahead_bytes"):
            most = getattr(self, name)
            if most is not None and most < 0:
                raise InputError(f"balancer: {name} must not be negative, got {most}")
        fewest = 1 if self.min_lanes is None else self.min_lanes
        if fewest < 1 or (self.max_lanes is not None and self.max_lanes < fewest):
            raise InputError(f"balancer: lanes from {self.min_lanes} to {self.max_lanes} is no range")
