"""FX-E5 to E8 (Fig. 11 to 14): memory taken away from machines; stall and recovery, and how the stage degrades."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenflow.plot.picture import Panel, Picture, Series
from evenflow.sim.quantum import Fixed, Network, Timeline
from papers.experiment import Check, Experiment, Outcome, Settings
from papers.flux.cluster import (
    BIG_PARTITION_BYTES,
    CONNECTION,
    MACHINE_BYTES,
    MACHINES,
    PRESSED_BYTES,
    SERVICE_S,
    SKEW_BUFFER,
    Setup,
    evenly_spread,
    memory_run,
    run,
)
from papers.flux.readings import (
    from_then_on,
    in_memory_from,
    latency_per_second,
    level,
    per_second,
    rounded,
)
from papers.flux.rules import (
    CYCLE_S,
    FULL_RATE,
    HIGH_LATENCY,
    IN_MEMORY,
    KNEE,
    LOW_AGAIN,
    ORDERS,
    ORDERS_ABOVE,
    RESUMES,
    RISES,
    STAGE_DEGRADES,
    STALLED,
    STATIC_SLOW,
    STAYS_LOW,
)
from papers.flux.rules import E5 as E5_RULE
from papers.flux.rules import E6 as E6_RULE
from papers.flux.rules import E7 as E7_RULE
from papers.flux.rules import E8 as E8_RULE

_PARTITIONS = 128
_FROM_S = 1.0


def _setup(settings: Settings, duration_s: float, few: int = 8) -> Setup:
    """Return 32 machines, or `few` with as much less of the producers' buffer."""
    if settings.quick:
        return Setup(few, _PARTITIONS, duration_s, 0.025, skew_buffer=SKEW_BUFFER * few / MACHINES)
    return Setup(MACHINES, _PARTITIONS, duration_s, 0.02)


def _reaction(settings: Settings) -> tuple[Timeline, Timeline, Setup]:
    setup = _setup(settings, 60)
    scenario = memory_run(setup, Fixed(MACHINE_BYTES, (0,), PRESSED_BYTES, _FROM_S))
    static = run(scenario, seed=settings.seed)
    return static, run(scenario, "flux-memory", settings.seed), setup


def _run_e5(settings: Settings) -> Outcome:
    static, moved, setup = _reaction(settings)
    full = setup.full_rate
    resumes = from_then_on(static, 0.12 * full)
    static_end, back = level(static, 20) / full, max(from_then_on(moved, 0.9 * full), in_memory_from(moved))
    checks = (
        _stall_check(static, moved, full, resumes),
        RESUMES.check(
            (resumes,),
            "from t = 15 s",
            f"from t = {resumes:.0f} s",
            "the disk writes at the paper's rate, but seeks or the number of partitions differ",
        ),
        STATIC_SLOW.check(
            (static_end,),
            "a much lower rate",
            f"{static_end:.0%} of full in the last 20 s",
            "rotating through the partitions on disk costs less here",
        ),
        IN_MEMORY.check(
            (back,),
            "at t = 37 s",
            f"at t = {back:.0f} s" if np.isfinite(back) else f"not within {setup.duration_s:g} s",
            "one partition leaves per round; a round is as long as the disk work that its extraction waits for",
        ),
    )
    return Outcome(
        checks, _over_time(static, moved, "throughput"), _reaction_data(static, moved), _size(setup), (settings.seed,)
    )


def _stall_check(static: Timeline, moved: Timeline, full: float, resumes_s: float) -> Check:
    """Compare for how long almost nothing is served before the static run resumes, under both."""
    stalled = [int((one.throughput[one.rows(0.0, resumes_s)] < 0.1 * full).sum()) for one in (static, moved)]
    return STALLED.check(
        (stalled,),
        "about 14 s under both",
        f"{stalled[0]} s below 10 % of full static, {stalled[1]} s with repartitioning",
        (
            "the skew buffers keep the other machines going for the first seconds; with repartitioning partitions "
            f"leave while others are written: at most {int(moved.spilled.max())} are on disk, not "
            f"{int(static.spilled.max())}, and the writing is over sooner"
        ),
    )


def _run_e6(settings: Settings) -> Outcome:
    static, moved, setup = _reaction(settings)
    before = float(static.latency_mean_s[0])
    peak_static, peak = float(np.nanmax(static.latency_mean_s)), float(np.nanmax(moved.latency_mean_s))
    end_s = setup.duration_s - 10
    end_static, end = static.mean_latency_s(end_s), moved.mean_latency_s(end_s)
    checks = (
        HIGH_LATENCY.check(
            ([peak, peak_static], before),
            "high latency",
            f"up to {peak:.2g} s (static {peak_static:.2g} s), {before * 1e3:.0f} ms in memory",
            "few of the records served belong to spilled partitions",
        ),
        LOW_AGAIN.check(
            (end, before, end_static),
            "the in-memory latency, from t = 37 s",
            f"{end * 1e3:.0f} ms (static {end_static * 1e3:.0f} ms)",
            "partitions are still on disk at the end of the run",
        ),
    )
    return Outcome(
        checks, _over_time(static, moved, "latency"), _reaction_data(static, moved), _size(setup), (settings.seed,)
    )


def _over_time(static: Timeline, moved: Timeline, what: str) -> Picture:
    series, label = (
        (per_second, "throughput (tuples/s)") if what == "throughput" else (latency_per_second, "mean latency (s)")
    )
    panel = Panel(
        "Memory of one machine halved",
        "time (s)",
        label,
        (series("repartitioning", moved), series("static", static)),
        log_y=what == "latency",
        marks=((_FROM_S, "memory taken"),),
    )
    return Picture([panel], columns=1)


def _reaction_data(static: Timeline, moved: Timeline) -> dict[str, Any]:
    return {
        name: {
            "throughput": rounded(timeline.throughput),
            "latency_mean_s": rounded(np.nan_to_num(timeline.latency_mean_s)),
            "on_disk": timeline.spilled.tolist(),
            "moves": timeline.moves.tolist(),
        }
        for name, timeline in (("static", static), ("repartitioning", moved))
    }


def _size(setup: Setup) -> str:
    return f"{setup.machines} machines, {setup.partitions} partitions each, {setup.duration_s:g} s"


# -- by number of machines -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Degradation:
    """Steady states by number of pressed machines."""

    setup: Setup
    counts: list[int]
    moved: list[Timeline]
    static_counts: list[int]
    static: list[Timeline]
    last_s: float

    @property
    def half(self) -> int:
        """The number of pressed machines from which on the cluster's memory is too small."""
        return self.setup.machines // 2

    def rates(self, timelines: list[Timeline]) -> list[float]:
        """Return the steady throughputs as shares of the full one."""
        return [level(one, self.last_s) / self.setup.full_rate for one in timelines]

    def allowed(self, timeline: Timeline) -> float:
        """Return the share of the full rate at which the machine with most partitions has no idle time."""
        return self.setup.partitions / int(np.bincount(timeline.table.owners).max())

    def latencies(self, timelines: list[Timeline]) -> list[float]:
        """Return the steady mean latencies."""
        return [one.mean_latency_s(float(one.time_s[-1]) - self.last_s) for one in timelines]


def _degradation(settings: Settings) -> _Degradation:
    """Run both. What the steady state is does not depend on the network; without limits it is reached sooner."""
    setup = _setup(settings, 50 if settings.quick else 80, few=4)
    counts = [0, 1, 2] if settings.quick else [0, 1, 8, 15, 16, 17, 24, 32]
    static_counts = [1] if settings.quick else [1, 16, 32]
    turns = replace(setup, duration_s=60 if settings.quick else 150)  # all partitions on disk have had their turn

    def one(count: int, policy: str, size: Setup) -> Timeline:
        pressed = evenly_spread(count, setup.machines)
        scenario = memory_run(size, Fixed(MACHINE_BYTES, pressed, PRESSED_BYTES))
        return run(replace(scenario, network=Network()), policy, settings.seed)

    return _Degradation(
        setup,
        counts,
        [one(count, "flux-memory", setup if count else replace(setup, duration_s=20)) for count in counts],
        static_counts,
        [one(count, "static", turns) for count in static_counts],
        15 if settings.quick else 20,
    )


def _run_e7(settings: Settings) -> Outcome:
    found = _degradation(settings)
    moved, static = found.rates(found.moved), found.rates(found.static)
    by_count = dict(zip(found.counts, moved, strict=True))
    below = [rate for count, rate in by_count.items() if count < found.half]
    allowed = [found.allowed(one) for count, one in zip(found.counts, found.moved, strict=True) if count < found.half]
    of_allowed = min(rate / bound for rate, bound in zip(below, allowed, strict=True))
    on_disk = [count for count, one in zip(found.counts, found.moved, strict=True) if one.spilled[-1] > 0]
    drop = by_count[found.half] / below[-1]
    checks = (
        STAGE_DEGRADES.check(
            (static[0],),
            "the whole stage degrades",
            f"{static[0]:.0%} of full",
            "rotating through the partitions on disk costs less here",
        ),
        FULL_RATE.check(
            (min(below), of_allowed),
            f"full, for fewer than {found.half} machines",
            f"at least {min(below):.0%} of full, {of_allowed:.0%} of what the processors allow",
            "with uniform input the machine that holds most partitions bounds the rate; the paper does not say so",
        ),
        KNEE.check(
            (on_disk[0] if on_disk else None, found.half, drop),
            f"exactly at half of the machines ({found.half}), a steep drop",
            f"partitions on disk from k = {on_disk[0] if on_disk else None} on; there {drop:.0%} of the rate before",
            "partitions do not fill the memory as counted in FX-A18",
        ),
    )
    return Outcome(
        checks,
        _by_count(found, moved, static, "throughput"),
        _by_count_data(found),
        _size(found.setup),
        (settings.seed,),
    )


def _run_e8(settings: Settings) -> Outcome:
    found = _degradation(settings)
    moved, static = found.latencies(found.moved), found.latencies(found.static)
    in_memory = moved[0]
    by_count = dict(zip(found.counts, moved, strict=True))
    below = max(latency for count, latency in by_count.items() if count < found.half)
    at_knee = by_count[found.half]
    oldest = float(found.static[0].latency_max_s[found.static[0].rows(found.static[0].time_s[-1] - found.last_s)].max())
    on_disk = int(found.static[0].spilled[-1])
    checks = (
        ORDERS_ABOVE.check(
            (static[0] / in_memory, oldest),
            "orders of magnitude above; 42 on disk, 0.9 s per swap: 38 s per cycle",
            f"{static[0] / in_memory:.0f} times the in-memory latency; the oldest tuple waited {oldest:.0f} s",
            _why_static(static[0], in_memory, oldest, on_disk / found.setup.slots),
        ),
        STAYS_LOW.check(
            (below / in_memory,),
            f"low, for fewer than {found.half} machines",
            f"at most {below / in_memory:.1f} times the in-memory latency",
            "some partition is still on disk in the steady state",
        ),
        RISES.check(
            (at_knee / below,),
            "rises exponentially",
            f"{at_knee / below:.0f} times at {found.half} machines; {moved[-1]:.2g} s at {found.counts[-1]}",
            "one partition per machine on disk is few of all tuples",
        ),
    )
    return Outcome(
        checks, _by_count(found, moved, static, "latency"), _by_count_data(found), _size(found.setup), (settings.seed,)
    )


def _as_a_cycle(oldest_s: float) -> bool:
    return abs(oldest_s - CYCLE_S) <= CYCLE_S / 3


def _why_static(latency_s: float, in_memory_s: float, oldest_s: float, on_disk: float) -> str:
    """Say which of the two parts of the statement does not hold, and why."""
    low = (
        f"only {on_disk:.1%} of the tuples are of partitions on disk: half of a cycle for them is "
        f"{on_disk * oldest_s / 2:.2g} s in the mean of all. And the latency in memory, of which the paper prints no "
        f"number, is {in_memory_s * 1e3:.0f} ms already: connections are full, with {MACHINES * CONNECTION:.0f} tuples "
        f"before each machine, {MACHINES * CONNECTION * SERVICE_S * 1e3:.0f} ms of its work"
    )
    far = "the cycle differs: a partition works off all its spooled input before the next swap"
    return "; ".join(
        [low] * (latency_s < ORDERS * in_memory_s) + [far] * (not _as_a_cycle(oldest_s)),
    )


def _by_count(found: _Degradation, moved: list[float], static: list[float], what: str) -> Picture:
    label = "steady throughput (share of full)" if what == "throughput" else "steady mean latency (s)"
    panel = Panel(
        f"{what.capitalize()} degradation",
        "machines with 512 MB taken",
        label,
        (Series("repartitioning", found.counts, moved), Series("static", found.static_counts, static)),
        log_y=what == "latency",
        marks=((float(found.half), "memory exhausted"),),
    )
    return Picture([panel], columns=1)


def _by_count_data(found: _Degradation) -> dict[str, Any]:
    return {
        "pressed": found.counts,
        "rate": rounded(np.array(found.rates(found.moved))),
        "latency_s": rounded(np.array(found.latencies(found.moved))),
        "on_disk": [int(one.spilled[-1]) for one in found.moved],
        "moves": [int(one.moves.sum()) for one in found.moved],
        "static_pressed": found.static_counts,
        "static_rate": rounded(np.array(found.rates(found.static))),
        "static_latency_s": rounded(np.array(found.latencies(found.static))),
        "static_on_disk": [int(one.spilled[-1]) for one in found.static],
        "partition_bytes": BIG_PARTITION_BYTES,
    }


E5 = Experiment("FX-E5", "Fig. 11", "Memory of one machine halved: throughput", E5_RULE, _run_e5)
E6 = Experiment("FX-E6", "Fig. 12", "Memory of one machine halved: latency", E6_RULE, _run_e6)
E7 = Experiment("FX-E7", "Fig. 13", "Throughput against machines under memory pressure", E7_RULE, _run_e7)
E8 = Experiment("FX-E8", "Fig. 14", "Latency against machines under memory pressure", E8_RULE, _run_e8)
