"""FX-E9 and E10 (Fig. 15): processing load and memory pressure together; memory, load and hybrid policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from evenflow.model.slots import FloatArray
from evenflow.plot.picture import Panel, Picture, Series
from evenflow.sim.quantum import Timeline
from papers.experiment import Experiment, Outcome, Settings
from papers.flux.cluster import (
    LOADED_SPEED,
    MACHINE_BYTES,
    MACHINES,
    MB,
    SKEW_BUFFER,
    Setup,
    evenly_spread,
    external,
    memory_run,
    run,
)
from papers.flux.readings import in_memory_from, level, per_second, rounded, steady_from
from papers.flux.rules import E9 as E9_RULE
from papers.flux.rules import E10 as E10_RULE
from papers.flux.rules import (
    HALVED,
    HYBRID_AS_LOAD,
    HYBRID_FIRST,
    MEMORY_WORST,
    NEVER_WORSE,
    SAME_THROUGHPUT,
)

_POLICIES = ("flux-memory", "flux-load", "flux-hybrid")
_LAST_S = 20.0


@dataclass(frozen=True)
class _Pinned:
    """Bytes that the external process pins, by machine."""

    pinned: tuple[float, ...]

    def at(self, at_s: float, lanes: int) -> FloatArray:  # noqa: ARG002 - the interface
        """Return what is left."""
        return MACHINE_BYTES - np.array(self.pinned[:lanes])


def _setup(settings: Settings, duration_s: float) -> Setup:
    """Return more than the paper's 100 s: with 8 transfers at a time a round takes longer than its figures allow."""
    if settings.quick:
        return Setup(4, 128, 60, 0.025, skew_buffer=SKEW_BUFFER / 8)
    return Setup(MACHINES, 128, duration_s, 0.02)


def _runs(
    setup: Setup, seed: int, loaded: tuple[int, ...], pinned: tuple[float, ...], policies: tuple[str, ...] = _POLICIES
) -> dict[str, Timeline]:
    scenario = memory_run(setup, _Pinned(pinned), external(loaded))
    return {policy: run(scenario, policy, seed) for policy in policies}


def _run_e9(settings: Settings) -> Outcome:
    setup = _setup(settings, 300)
    machines = setup.machines
    loaded = evenly_spread(machines // 4, machines)
    pinned = tuple(512 * MB if at in loaded else 0.0 for at in range(machines))
    found = _runs(setup, settings.seed, loaded, pinned)
    rate = {policy: level(one, _LAST_S) / setup.full_rate for policy, one in found.items()}
    steady = {policy: steady_from(one, _LAST_S) for policy, one in found.items()}
    most = {policy: int(np.bincount(one.table.owners).max()) for policy, one in found.items()}
    kept = int(np.bincount(found["flux-memory"].table.owners, minlength=machines)[list(loaded)].max())
    in_memory = {policy: in_memory_from(one) for policy, one in found.items()}
    better = max(rate["flux-memory"], rate["flux-load"])
    checks = (
        MEMORY_WORST.check(
            (rate["flux-memory"], rate["flux-load"], rate["flux-hybrid"]),
            "the worst of the three",
            _listed(rate),
            (
                f"even memory leaves a loaded machine at most {kept} of its {setup.partitions} partitions, which it "
                f"serves at {LOADED_SPEED * setup.partitions / kept:.0%} of the full rate; the fullest of the others "
                f"allows {setup.partitions / most['flux-memory']:.0%}: hardly any imbalance is left that the other "
                "two could cure"
            ),
        ),
        HYBRID_AS_LOAD.check(
            (rate["flux-hybrid"], rate["flux-load"]),
            "equal",
            f"{rate['flux-hybrid'] / rate['flux-load']:.0%} of it",
            "the hybrid must leave each partition a place in memory",
        ),
        HYBRID_FIRST.check(
            (steady["flux-hybrid"], steady["flux-load"]),
            "hybrid after 55 s, load-balancing after 63 s",
            f"hybrid {_when(steady['flux-hybrid'])}, load-balancing {_when(steady['flux-load'])}",
            (
                f"all is in memory {_when(in_memory['flux-hybrid'])} with hybrid, {_when(in_memory['flux-load'])} with "
                "load-balancing; moves by load then go on to the end under both, and single seconds stray with them"
            ),
        ),
        NEVER_WORSE.check(
            (rate["flux-hybrid"], better),
            "matches or outperforms both",
            f"{rate['flux-hybrid'] / better:.1%} of the better one",
            (
                f"the fullest machine bounds the rate: {_fullest(most)}. Even memory spreads partitions more evenly "
                "here than a policy that stops at utilisations within its thresholds: the claim does not hold in "
                "general"
            ),
        ),
    )
    data = _data(found, rate, steady)
    return Outcome(checks, _picture(found), data, f"{machines} machines, {setup.duration_s:g} s", (settings.seed,))


def _run_e10(settings: Settings) -> Outcome:
    setup = _setup(settings, 200)
    machines = setup.machines
    pinned = tuple(512 * MB if at % 2 else 262 * MB for at in range(machines))
    found = _runs(setup, settings.seed, tuple(range(machines)), pinned, ("flux-load", "flux-hybrid"))
    rate = {policy: level(one, _LAST_S) / setup.full_rate for policy, one in found.items()}
    most = {policy: int(np.bincount(one.table.owners).max()) for policy, one in found.items()}
    latency = {policy: one.mean_latency_s(float(one.time_s[-1]) - _LAST_S) for policy, one in found.items()}
    throughput = rate["flux-hybrid"] / rate["flux-load"]
    factor = latency["flux-load"] / latency["flux-hybrid"]
    checks = (
        SAME_THROUGHPUT.check(
            (throughput,),
            "unaffected by the policy",
            f"hybrid {throughput:.0%} of load-balancing",
            (
                f"the others wait for the fullest machine, which gets tuples for all its partitions: {_fullest(most)}; "
                "even memory is not even load"
            ),
        ),
        HALVED.check(
            (factor,),
            "hybrid halves it",
            f"load-balancing {latency['flux-load']:.2g} s, hybrid {latency['flux-hybrid']:.2g} s: factor {factor:.1f}",
            "how long a cycle over the partitions on disk takes depends on output buffers that the paper does not give",
        ),
    )
    data = _data(found, rate, latency)
    return Outcome(checks, _picture(found), data, f"{machines} machines, {setup.duration_s:g} s", (settings.seed,))


def _when(seconds: float) -> str:
    return f"after {seconds:.0f} s" if np.isfinite(seconds) else "not in this run"


def _fullest(most: dict[str, int]) -> str:
    return ", ".join(f"{count} partitions with {policy}" for policy, count in most.items())


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.1%}" for name, value in values.items())


def _picture(found: dict[str, Timeline]) -> Picture:
    series = tuple(per_second(policy, timeline) for policy, timeline in found.items())
    on_disk = tuple(
        Series(policy, timeline.time_s.tolist(), timeline.spilled.tolist()) for policy, timeline in found.items()
    )
    return Picture(
        [
            Panel("Comparison of policies", "time (s)", "throughput (tuples/s)", series),
            Panel("Partitions on disk", "time (s)", "partitions", on_disk),
        ]
    )


def _data(found: dict[str, Timeline], rate: dict[str, float], other: dict[str, float]) -> dict[str, Any]:
    return {
        policy: {
            "rate": rate[policy],
            "steady_s_or_latency_s": other[policy] if np.isfinite(other[policy]) else None,
            "throughput": rounded(timeline.throughput),
            "on_disk": timeline.spilled.tolist(),
            "moves": int(timeline.moves.sum()),
        }
        for policy, timeline in found.items()
    }


E9 = Experiment("FX-E9", "Fig. 15a", "Medium load and memory pressure: three policies", E9_RULE, _run_e9)
E10 = Experiment("FX-E10", "Fig. 15b, c", "Heavy load and memory pressure: latency", E10_RULE, _run_e10)
