"""LR-E5: how far ahead to foreswear reconfigurations: no waiting in the router, but later reaction (2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenflow.plot.picture import Panel, Picture, Series
from papers.experiment import Experiment, Outcome, Settings
from papers.reconfiguration.protocol import Advance, Arrival, Datum, Reconfigurable, Reconfiguration
from papers.reconfiguration.rules import E5 as RULE
from papers.reconfiguration.rules import REACTION_RISES, WAITING_FALLS
from papers.verdicts import median_range

HORIZONS_MS = (0, 5, 10, 20, 40, 80)
_EVERY_MS = 5  # the control input is advanced so often,
_DELAY_MS = 3  # and what it says takes so long to arrive
_RUN_MS = 400
_KEYS = "abcdefgh"


@dataclass(frozen=True)
class Waited:
    """What the router made data wait for, and how long a reconfiguration took from the wish to the move; in ms."""

    added_ms: float
    reaction_ms: float


def run_horizon(horizon_ms: int, seed: int) -> Waited:
    """Stream data through the protocol while the control input promises no change for `horizon_ms` more."""
    random = np.random.default_rng((seed, horizon_ms))
    wishes = np.sort(random.choice(np.arange(50, _RUN_MS - 150), 8, replace=False)).tolist()
    system, added, moved = Reconfigurable(2), list[int](), list[int]()
    for now, arrival in _arrivals(horizon_ms, wishes, random):
        before = len(system.applied), len(system.moved)
        system.take(arrival)
        added += [now - one.datum.time for one in system.applied[before[0] :]]
        moved += [now] * (len(system.moved) - before[1])
    reaction = [then - wish for wish, then in zip(wishes, moved, strict=True)]
    return Waited(float(np.mean(added)), float(np.mean(reaction)))


def _arrivals(horizon_ms: int, wishes: Sequence[int], random: np.random.Generator) -> list[tuple[int, Arrival]]:
    """Return what arrives when: a datum every millisecond, promises of the control input, and what is asked for.

    A wish gets the earliest time that is not foresworn yet; it travels with the promise that is sent next.
    """
    found: list[tuple[int, int, Arrival]] = []
    for now in range(_RUN_MS):
        found.append((now, 1, Datum(now, _KEYS[int(random.integers(len(_KEYS)))], 1)))
        found.append((now, 2, Advance("data", now + 1)))
    promised = 0
    for sent in range(0, _RUN_MS, _EVERY_MS):
        for wish in wishes:
            if sent - _EVERY_MS < wish <= sent:
                key = f"moved-{wish}"
                found.append((sent + _DELAY_MS, 0, Reconfiguration(max(promised, sent), (key,), 1)))
        promised = sent + horizon_ms + 1
        found.append((sent + _DELAY_MS, 3, Advance("control", promised)))
    return [(now, arrival) for now, _, arrival in sorted(found, key=lambda one: one[:2])]


def run_e5(settings: Settings) -> Outcome:
    """Sweep the horizon."""
    seeds = settings.seeds(full=10, quick=2)
    runs = {horizon: [run_horizon(horizon, seed) for seed in seeds] for horizon in HORIZONS_MS}
    added = [float(np.median([one.added_ms for one in runs[horizon]])) for horizon in HORIZONS_MS]
    reaction = [float(np.median([one.reaction_ms for one in runs[horizon]])) for horizon in HORIZONS_MS]
    felt = [at for at, horizon in enumerate(HORIZONS_MS) if horizon > _EVERY_MS + _DELAY_MS]
    first, last = felt[0], felt[-1]
    slope = (reaction[last] - reaction[first]) / (HORIZONS_MS[last] - HORIZONS_MS[first])
    checks = (
        WAITING_FALLS.check(
            (added,),
            "removes the queueing for records within the foresworn time",
            ", ".join(f"{value:.1f}" for value in added) + " ms",
            "data still wait for the control frontier",
        ),
        REACTION_RISES.check(
            (slope, reaction[0], reaction[last]),
            "trades off latency against adaptivity",
            ", ".join(f"{value:.1f}" for value in reaction) + f" ms; {slope:.2f} ms per ms once it is felt",
            "reactions do not follow the horizon",
        ),
    )
    panels = [
        Panel(
            "Latency added, and reaction",
            "control input advanced ahead by (ms)",
            "time (ms)",
            [Series("waiting in the router", HORIZONS_MS, added), Series("wish to move", HORIZONS_MS, reaction)],
        )
    ]
    data = {
        "horizon_ms": HORIZONS_MS,
        "added_ms": {str(key): median_range(one.added_ms for one in found) for key, found in runs.items()},
        "reaction_ms": {str(key): median_range(one.reaction_ms for one in found) for key, found in runs.items()},
        "added": added,
        "reaction": reaction,
    }
    note = f"Message level; the control input is advanced every {_EVERY_MS} ms and its word takes {_DELAY_MS} ms."
    return Outcome(checks, Picture(panels, columns=1), data, note, tuple(seeds))


E5 = Experiment("LR-E5", "2.2", "Foreswearing reconfigurations for a time", RULE, run_e5)
