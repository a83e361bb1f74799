"""LR-E7: what the paper lets sudden migration stand for: halting all, halting a part, state kept elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evenflow.model import RoutingTable
from evenflow.plot.picture import Panel, Picture
from evenflow.sim.quantum import Way, uniform
from papers.experiment import Experiment, Outcome, Settings
from papers.reconfiguration.migrations import BINS, Migration
from papers.reconfiguration.rules import E7 as RULE
from papers.reconfiguration.rules import EXTERNAL_STATE, HALTING_PEAK, OTHERS_SERVED

_KEYS, _RATE = 40e6, 1e6
_PER_WORKER, _PER_WORKER_REMOTE = 1.25e6, 0.5e6  # with the state in a store of its own, a record costs 1.2 us more
_HALF = 16  # bins that the fifth worker gets of each of two


def one_more_worker(*, quick: bool) -> Migration:
    """Return a migration that leaves two of four workers alone: a fifth one takes over bins of the other two."""
    before = np.arange(BINS) % 4
    after = before.copy()
    for lane in (0, 1):
        after[np.flatnonzero(before == lane)[:_HALF]] = 4
    tables = RoutingTable(before, tuple(range(5))), RoutingTable(after, tuple(range(5)))
    whole = Migration(_KEYS, tables, uniform(BINS, _RATE), _PER_WORKER, start_s=5.0, duration_s=20.0, step_s=2e-3)
    return replace(whole, epoch_steps=5, start_s=1.0 if quick else 5.0, step_s=1e-2 if quick else 2e-3)


def run_e7(settings: Settings) -> Outcome:
    """Take over some bins in four ways."""
    base = one_more_worker(quick=settings.quick)
    remote = replace(base, records_per_s=_PER_WORKER_REMOTE, seconds_per_key=0.0)
    runs = {
        "halt all": replace(base, way=Way.PAUSE_ALL).run("sudden"),
        "halt a part (sudden)": base.run("sudden"),
        "fluid": base.run("fluid"),
        "external state": remote.run("sudden"),
    }
    peak = {name: run.peak_s for name, run in runs.items()}
    halted, part = runs["halt all"].timeline, runs["halt a part (sudden)"].timeline
    during = halted.rows(base.start_s, base.start_s + 1.0)
    others = [float(timeline.served[during][:, [2, 3]].sum()) for timeline in (halted, part)]
    busy = {name: float(runs[name].timeline.busy_s[: during[0]].mean()) for name in ("fluid", "external state")}
    checks = (
        HALTING_PEAK.check(
            (peak["halt all"], peak["halt a part (sudden)"]),
            "described only; sudden stands for them",
            f"{peak['halt all']:.2f} s against {peak['halt a part (sudden)']:.2f} s",
            "halting all was over sooner",
        ),
        OTHERS_SERVED.check(
            (others[0], others[1]),
            "partial stop keeps the rest going",
            f"{others[0]:,.0f} against {others[1]:,.0f}",
            "workers that move nothing were held up as well",
        ),
        EXTERNAL_STATE.check(
            (peak["external state"], peak["fluid"], busy["external state"] / busy["fluid"]),
            "described only",
            (
                f"peak {peak['external state'] * 1e3:.0f} ms against {peak['fluid'] * 1e3:.0f} ms of fluid; workers "
                f"busy {busy['external state'] / busy['fluid']:.1f} times as long per record"
            ),
            "the price of a record was not felt",
        ),
    )
    panel = Panel(
        "A fifth worker takes over bins of two of four",
        "elapsed (s)",
        "latency, maximum per 250 ms (us)",
        [run.series(name) for name, run in runs.items()],
        log_y=True,
        marks=[(base.start_s, "migration")],
    )
    data = {name: run.as_dict() for name, run in runs.items()}
    note = "External state is modelled as 1.2 us more per record and nothing to move; that price is ours."
    return Outcome(checks, Picture([panel], columns=1), data, note, (settings.seed,))


E7 = Experiment("LR-E7", "1, 3", "Halting everything, halting a part, and state kept elsewhere", RULE, run_e7)
