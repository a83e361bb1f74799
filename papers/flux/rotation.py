"""FX-E12 (6.1): how long a partition stays in memory before the next swap, throughput against latency."""

from __future__ import annotations

import numpy as np

from evenflow.plot.picture import Panel, Picture, Series
from evenflow.sim.quantum import Fixed
from papers.experiment import Experiment, Outcome, Settings
from papers.flux.cluster import (
    BIG_PARTITION_BYTES,
    DISK,
    MACHINE_BYTES,
    MACHINES,
    SKEW_BUFFER,
    Setup,
    memory_run,
    run,
)
from papers.flux.readings import level, rounded
from papers.flux.rules import E12 as E12_RULE
from papers.flux.rules import GAP_LATENCY, GAP_THROUGHPUT

_MACHINES = 2
_ON_DISK = 12  # of 128 partitions, on each machine
_BLOCKED = (
    f"a swap blocks its machine for {2 * BIG_PARTITION_BYTES / DISK.read:.1f} s, and the tuples in memory wait too; "
    "where t_gap is shorter that is most of the latency"
)


def _run(settings: Settings) -> Outcome:
    gaps = [0.1, 0.5, 2.0] if settings.quick else [0.1, 0.25, 0.5, 1.0, 2.0, 4.0]
    setup = Setup(_MACHINES, 128, 60 if settings.quick else 240, 0.025, skew_buffer=SKEW_BUFFER * _MACHINES / MACHINES)
    available = MACHINE_BYTES - (128 - _ON_DISK) * BIG_PARTITION_BYTES
    budgets = Fixed(MACHINE_BYTES - available)
    last_s = setup.duration_s / 2
    rates, latencies = [], []
    for gap in gaps:
        timeline = run(memory_run(setup, budgets, gap_s=gap), seed=settings.seed)
        rates.append(level(timeline, last_s))
        latencies.append(timeline.mean_latency_s(setup.duration_s - last_s))
    checks = tuple(
        statement.check(
            (values,),
            f"more {what}",
            ", ".join(f"{gap:g} s: {value:.3g}" for gap, value in zip(gaps, values, strict=True)),
            why,
        )
        for statement, what, values, why in (
            (GAP_THROUGHPUT, "throughput", rates, "where t_gap is long, a swap more or less is little of the time"),
            (GAP_LATENCY, "latency", latencies, _BLOCKED),
        )
    )
    panels = [
        Panel("Throughput", "t_gap (s)", "throughput (tuples/s)", (Series("static", gaps, rates),), log_x=True),
        Panel("Latency", "t_gap (s)", "mean latency (s)", (Series("static", gaps, latencies),), log_x=True),
    ]
    data = {"gap_s": gaps, "throughput": rounded(np.array(rates)), "latency_s": rounded(np.array(latencies))}
    note = f"{_MACHINES} machines, {_ON_DISK} of 128 partitions on disk at each, {setup.duration_s:g} s"
    return Outcome(checks, Picture(panels), data, note, (settings.seed,))


E12 = Experiment("FX-E12", "6.1", "How long a partition stays in memory", E12_RULE, _run)
