"""Parameters that the paper leaves open (AF-P6, P7, P9), one at a time around the recommended values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from evenflow.model.balance import spread
from papers.autoflow.scenario import Scenario
from papers.autoflow.simulated import simulate

SWEEPS: dict[str, tuple[float, ...]] = {
    "slots_per_reducer": (4, 16, 64),
    "control_period_s": (0.25, 1.0, 4.0),
    "factor": (0.1, 0.2, 0.3, 0.5),
}
_SCALE = 0.2
_LAST_S = 10.0


def sweep(scenario: Scenario, seed: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return for each parameter and value how often was migrated, how even the end is, and the latency then."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, values in SWEEPS.items():
        for value in values:
            chosen: dict[str, Any] = {name: int(value) if name == "slots_per_reducer" else value}
            run = simulate(replace(scenario.scaled(_SCALE), **chosen), seed)
            end = float(scenario.duration_s)
            found.setdefault(name, {})[f"{value:g}"] = {
                "migrations": len(run.migrations_s),
                "spread in the end": spread(run.shares(end - _LAST_S, end)),
                "99 % latency in the end, s": float(np.quantile(run.latency(end - _LAST_S), 0.99)),
            }
    return found
