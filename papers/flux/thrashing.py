"""FX-E4 (Fig. 9): skewed groups and the shortest collection time; `even` with nothing to tune (FX-F2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evenflow.control import BalancerOptions
from evenflow.migration import strategy_named
from evenflow.plot.picture import Panel, Picture, Series
from evenflow.policies import policy_named
from evenflow.sim.quantum import Scenario, Timeline, simulate
from papers.experiment import Experiment, Outcome, Settings
from papers.flux.cluster import (
    MACHINES,
    Setup,
    by_partition,
    evenly_spread,
    external,
    flat,
    load_run,
    longer_epochs,
    run,
    self_similar,
)
from papers.flux.rules import CROSSING, CROSSING_LOADED, NOTHING_TO_TUNE, THRASHES
from papers.flux.rules import E4 as RULE

_SLOW_MACHINES = 8
_LOAD_FROM_S = 2.0  # "introduced", as in E2; see `even_load_from_the_start` in the results for the other way
_FULL_S = 60
_EPOCH_S = 0.5  # a usual micro-batch; `even` gets no other setting


def _even(scenario: Scenario, seed: int) -> float:
    """Return the mean throughput under evenflow's own policy, strategy and brakes, as a query has them by default."""
    brakes = BalancerOptions(settle_windows=1, warm_up_windows=2, overlap=False)  # Flux moves in rounds
    timeline = simulate(
        longer_epochs(scenario, _EPOCH_S), policy_named("even"), strategy_named("paced"), brakes, seed=seed
    )
    return _mean_of(timeline)


def _mean(scenario: Scenario, policy: str, seed: int, **options: Any) -> float:
    return _mean_of(run(scenario, policy, seed, **options))


def _mean_of(timeline: Timeline) -> float:
    """Return the mean over the run; of a short one, only of its second half, for the start would count too much."""
    seconds = timeline.throughput
    return float(seconds[seconds.size // 2 :].mean() if seconds.size < _FULL_S else seconds.mean())


def _crossing(deltas: list[float], rates: list[float], bound: float) -> float:
    """Return the delta_min from which on all rates are above `bound`, infinity if none."""
    below = [at for at, rate in enumerate(rates) if rate <= bound]
    first = below[-1] + 1 if below else 0
    return deltas[first] if first < len(deltas) else float("inf")


def _run(settings: Settings) -> Outcome:
    deltas = [0.01, 0.25, 0.5] if settings.quick else [0.01, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0]
    setup = Setup(duration_s=14 if settings.quick else _FULL_S, step_s=0.02 if settings.quick else 0.01)
    seed = settings.seed
    skewed = by_partition(self_similar(), setup.slots, np.random.default_rng(seed))
    hottest = int(np.argmax(skewed.rates(0.0))) % MACHINES
    slow = evenly_spread(_SLOW_MACHINES, MACHINES, hottest)
    cases = {
        "unloaded": load_run(setup, skewed),
        "loaded": load_run(setup, skewed, external(slow, _LOAD_FROM_S)),
    }
    static = {name: _mean(case, "static", seed) for name, case in cases.items()}
    swept = {
        name: [_mean(case, "flux-load", seed, delta_min_s=delta) for delta in deltas] for name, case in cases.items()
    }
    even = {name: _even(case, seed) for name, case in cases.items()}
    from_the_start = _even(load_run(setup, skewed, external(slow)), seed)
    level_case = load_run(setup, by_partition(flat(), setup.slots, np.random.default_rng(seed)))
    ends = (deltas[0], deltas[-1])
    flat_static = _mean(level_case, "static", seed)
    flat_swept = [_mean(level_case, "flux-load", seed, delta_min_s=delta) for delta in ends]
    worst = swept["unloaded"][0] / static["unloaded"]
    crossing = _crossing(deltas, swept["unloaded"], static["unloaded"])
    crossing_loaded = _crossing(deltas, swept["loaded"], static["unloaded"])
    reached = {name: even[name] / max(swept[name]) for name in cases}
    checks = (
        THRASHES.check(
            (worst,),
            "half of the static rate: thrashing",
            f"{worst:.0%} of static",
            "the hottest partition is moved in many rounds, not in all: its machine sheds others in between",
        ),
        CROSSING.check(
            (crossing,),
            "from 250 ms",
            f"from {crossing * 1e3:g} ms" if np.isfinite(crossing) else "never",
            "rounds here are longer or shorter than the paper's",
        ),
        CROSSING_LOADED.check(
            (crossing_loaded, crossing),
            "from 150 ms, earlier than without load",
            f"from {crossing_loaded * 1e3:g} ms" if np.isfinite(crossing_loaded) else "never",
            "the loaded machines keep the hottest partition away, but not earlier on this grid of delta_min",
        ),
        NOTHING_TO_TUNE.check(
            (list(reached.values()), [even[name] / static[name] for name in cases]),
            "95 % of it (what auto-tuning should reach)",
            ", ".join(f"{name} {share:.0%}" for name, share in reached.items()),
            "the hottest partition bounds the rate; what is left to gain around it even takes for noise, or sees late",
        ),
    )
    milliseconds = [delta * 1e3 for delta in deltas]
    panels = [
        Panel(
            f"80/20, {'no external load' if name == 'unloaded' else '8 machines loaded'}",
            "delta_min (ms)",
            "mean throughput (tuples/s)",
            (
                Series("flux-load", milliseconds, swept[name]),
                Series("static", milliseconds, [static[name]] * len(deltas)),
                Series("static, no load", milliseconds, [static["unloaded"]] * len(deltas)),
                Series("even, nothing to tune", milliseconds, [even[name]] * len(deltas)),
            ),
            log_x=True,
        )
        for name in cases
    ]
    data = {
        "delta_min_s": deltas,
        "static": static,
        "flux_load": swept,
        "even": even,
        "even_load_from_the_start": from_the_start,
        "flat_reading": {"delta_min_s": ends, "static": flat_static, "flux_load": flat_swept},
    }
    note = f"{setup.duration_s:g} s of 32 machines. {flat_note(ends, flat_static, flat_swept)}"
    return Outcome(checks, Picture(panels), data, note, (seed,))


def flat_note(deltas: Sequence[float], static: float, swept: Sequence[float]) -> str:
    """Say what comes of the other reading of 80/20, without external load."""
    shares = " and ".join(
        f"{rate / static:.0%} of that with a delta_min of {delta * 1e3:g} ms"
        for delta, rate in zip(deltas, swept, strict=True)
    )
    return (
        f"The flat reading of 80/20 (a fifth of the groups shares four fifths of the load evenly), no external load: "
        f"static {static:,.0f} tuples/s, balancing {shares}."
    )


E4 = Experiment("FX-E4", "Fig. 9", "Thrashing and the shortest collection time", RULE, _run)
