"""LR-E6: how many bins: the pause of a step against the number of steps."""

from __future__ import annotations

from dataclasses import replace

from evenflow.plot.picture import Panel, Picture, Series
from evenflow.sim.quantum import uniform
from papers.experiment import Experiment, Outcome, Settings
from papers.reconfiguration.migrations import Migration, MigrationRun, spread_out
from papers.reconfiguration.rules import DURATION_RISES, PEAK_FALLS, SAME_SHARES
from papers.reconfiguration.rules import E6 as RULE

BINS = (4, 16, 64, 256, 1024, 4096)
QUICK_BINS = (4, 32, 256)
_PER_WORKER = 5e6
_KEYS, _RATE = 10e6, 1e6


def migration_of(bins: int, *, quick: bool) -> Migration:
    """Return E1's migration with another number of bins; the quantum is a part of one step's pause."""
    whole = Migration(_KEYS, spread_out(bins, 1, 2), uniform(bins, _RATE), _PER_WORKER, start_s=1.0, duration_s=25.0)
    if quick:
        return replace(whole, step_s=4e-3, epoch_steps=1)
    return replace(whole, step_s=1e-3 if bins >= 256 else 4e-3, epoch_steps=1)  # noqa: PLR2004 - the paper's number


def run_e6(settings: Settings) -> Outcome:
    """Sweep the number of bins under fluid migration."""
    sizes = QUICK_BINS if settings.quick else BINS
    runs: list[MigrationRun] = []
    for at, bins in enumerate(sizes):
        runs.append(migration_of(bins, quick=settings.quick).run("fluid"))
        settings.progress((at + 1) / len(sizes))
    peaks, spans = [run.peak_s for run in runs], [run.duration_s for run in runs]
    checks = (
        PEAK_FALLS.check(
            (peaks,),
            "tunable granularity for avoiding latency spikes",
            ", ".join(f"{bins}: {peak * 1e3:.1f} ms" for bins, peak in zip(sizes, peaks, strict=True)),
            "the cost of a step itself, not of its keys, is felt: more bins help no more",
        ),
        DURATION_RISES.check(
            (spans,),
            "granularity of each reconfiguration against their number",
            ", ".join(f"{bins}: {span:.2f} s" for bins, span in zip(sizes, spans, strict=True)),
            "few large steps let a queue build up that has to be served before the next step",
        ),
        SAME_SHARES.check(
            ([run.complete for run in runs],),
            "uniformly distributed",
            f"{sum(run.complete for run in runs)} of {len(runs)} migrations complete",
            "a migration was not complete when the run ended",
        ),
    )
    panels = [
        Panel(
            "Peak latency",
            "bins",
            "peak latency (ms)",
            [Series("fluid", sizes, [1e3 * peak for peak in peaks])],
            log_x=True,
            log_y=True,
        ),
        Panel("Duration", "bins", "first to last step (s)", [Series("fluid", sizes, spans)], log_x=True),
    ]
    data = {"bins": sizes, "peak_s": peaks, "duration_s": spans, "steps": [run.steps for run in runs]}
    return Outcome(
        checks, Picture(panels), data, "E1's migration, fluid, with other numbers of bins.", (settings.seed,)
    )


E6 = Experiment("LR-E6", "1, 2, 3", "Granularity: peak and duration against the number of bins", RULE, run_e6)
