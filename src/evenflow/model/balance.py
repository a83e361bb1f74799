"""How even a load is: the five papers' formulas, once, over the load of each lane.

========================  =====================================================  ======
measure                   formula                                                paper
========================  =====================================================  ======
`spread`                  (max - min) / max                                      AF
`max_over_mean`           max / mean                                             common
`variance`                sum (l - mean)^2 / n                                   GZ (1)
`skew`                    S = (W - U) / (M - U), U = ceil(M / R), W = max        DP (2)
`utilisation_ratio`       max / min of the lanes' utilisation                    FX
`moved_state`             sum of the state of all slots that change lane         GZ (2)
========================  =====================================================  ======

A load of nothing is perfectly even: `spread` 0, `max_over_mean` 1, `skew` 0, `utilisation_ratio` 1.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from evenflow.model.routing import RoutingTable


@dataclass(frozen=True, slots=True)
class Balance:
    """All measures of one load, side by side."""

    spread: float
    max_over_mean: float
    variance: float
    skew: float
    utilisation_ratio: float
    max_load: float
    mean_load: float

    @classmethod
    def of(cls, loads: npt.ArrayLike, utilisation: npt.ArrayLike, records: npt.ArrayLike) -> Balance:
        """Measure `loads` per lane; the utilisation ratio and S have their own inputs, as in their papers."""
        load = np.asarray(loads, dtype=np.float64)
        return cls(
            spread=spread(load),
            max_over_mean=max_over_mean(load),
            variance=variance(load),
            skew=skew(records),
            utilisation_ratio=utilisation_ratio(utilisation),
            max_load=float(load.max()),
            mean_load=float(load.mean()),
        )

    def as_dict(self) -> dict[str, float | None]:
        """Return the measures by name; an infinite one as None, for JSON."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}


def spread(loads: npt.ArrayLike) -> float:
    """Return (max - min) / max, AutoFlow's trigger (Algorithm 3, line 6)."""
    load = np.asarray(loads, dtype=np.float64)
    top = float(load.max())
    return (top - float(load.min())) / top if top > 0 else 0.0


def max_over_mean(loads: npt.ArrayLike) -> float:
    """Return max / mean: how many times slower the slowest lane is than an even one."""
    load = np.asarray(loads, dtype=np.float64)
    mean = float(load.mean())
    return float(load.max()) / mean if mean > 0 else 1.0


def variance(loads: npt.ArrayLike) -> float:
    """Return Guo and Zhou's load imbalance, with divisor n (equation 1)."""
    return float(np.var(np.asarray(loads, dtype=np.float64)))


def skew(records: npt.ArrayLike) -> float:
    """Return DPA's S of the records per lane (equation 2); 0 where it is 0/0 (DP-A6)."""
    counts = np.asarray(records, dtype=np.float64)
    total = float(counts.sum())
    ideal = math.ceil(total / counts.size)
    return max(0.0, float(counts.max()) - ideal) / (total - ideal) if total > ideal else 0.0


def utilisation_ratio(utilisation: npt.ArrayLike) -> float:
    """Return Flux's imbalance: the highest utilisation over the lowest, infinite if one lane is idle (FX-A4)."""
    used = np.asarray(utilisation, dtype=np.float64)
    low, high = float(used.min()), float(used.max())
    if high <= 0:
        return 1.0
    return high / low if low > 0 else math.inf


def moved_state(before: RoutingTable, after: RoutingTable, state: npt.ArrayLike) -> float:
    """Return the state of all slots whose lane differs between two tables (equation 2)."""
    sizes = np.asarray(state, dtype=np.float64)
    return float(sizes[before.owners != after.owners].sum())
