"""How many records each slot gets, and when: rates that stay, spike, or move from slot to slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from evenflow.errors import InputError
from evenflow.model.load import refuse_bad_numbers
from evenflow.model.slots import FloatArray, IntArray, frozen_array


class Arrivals(Protocol):
    """Anything that knows how many records to expect."""

    def rates(self, at_s: float) -> FloatArray:
        """Return the expected records per second of each slot at a moment; the array is not changed."""


@dataclass(frozen=True, eq=False)
class Steady:
    """The same rates for ever, in records per second and slot."""

    per_slot: npt.ArrayLike
    _rates: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Freeze the rates and refuse those that no stream has."""
        rates = np.asarray(self.per_slot, dtype=np.float64)
        refuse_bad_numbers("arrivals: rates per slot", rates)
        if rates.ndim != 1 or rates.size == 0:
            raise InputError(f"arrivals: rates are one number per slot, got shape {rates.shape}")
        object.__setattr__(self, "_rates", frozen_array(rates, np.float64))

    def rates(self, at_s: float) -> FloatArray:  # noqa: ARG002 - the interface
        """Return the rates."""
        return self._rates


@dataclass(frozen=True, eq=False)
class During:
    """`base`, except from `start_s` until `end_s`, when `then` is what arrives: a spike, a hotspot that goes again."""

    base: Arrivals
    then: Arrivals
    start_s: float
    end_s: float = float("inf")

    def rates(self, at_s: float) -> FloatArray:
        """Return the rates of the one that holds."""
        return (self.then if self.start_s <= at_s < self.end_s else self.base).rates(at_s)


@dataclass(frozen=True, eq=False)
class InTurn:
    """Each of `phases` for `each_s` seconds, over and over: a hotspot that moves."""

    phases: Sequence[Arrivals]
    each_s: float

    def __post_init__(self) -> None:
        """Refuse a cycle without phases or without length."""
        if not self.phases or not self.each_s > 0:
            raise InputError(f"arrivals: {len(self.phases)} phases of {self.each_s} s are no cycle")

    def rates(self, at_s: float) -> FloatArray:
        """Return the rates of the phase that is on."""
        return self.phases[int(at_s // self.each_s) % len(self.phases)].rates(at_s)


def uniform(slots: int, per_s: float) -> Steady:
    """Return `per_s` records per second, spread evenly over all slots."""
    return Steady(np.full(slots, per_s / slots))


def with_hotspot(slots: int, per_s: float, hot: Sequence[int] | IntArray, share: float) -> Steady:
    """Return `per_s` records per second, of which `share` go to the `hot` slots and the rest to the others."""
    chosen = np.asarray(hot, dtype=np.int64)
    if not 0 <= share <= 1 or not 0 < chosen.size < slots:
        raise InputError(f"arrivals: {share} of the records on {chosen.size} of {slots} slots is no hotspot")
    rates = np.full(slots, per_s * (1 - share) / (slots - chosen.size))
    rates[chosen] = per_s * share / chosen.size
    return Steady(rates)
