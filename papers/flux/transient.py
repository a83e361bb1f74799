"""FX-E1 (Fig. 3): load that visits one machine after the other; the transient skew buffer against Exchange."""

from __future__ import annotations

from evenflow.plot.picture import Panel, Picture, Series
from evenflow.policies import policy_named
from evenflow.sim.quantum import Flow, Scenario, Visiting, simulate, uniform
from papers.experiment import Experiment, Outcome, Settings
from papers.flux.cluster import CONNECTION, LOADED_SPEED, MACHINES, PRODUCE_S, SERVICE_S, TUPLE_BYTES
from papers.flux.rules import E1 as RULE
from papers.flux.rules import FLUX_AGAINST_EXCHANGE, GROWING_BUFFER, NO_BUFFER

_VISIT_S = 0.5
_LIMIT = 1 - (1 - LOADED_SPEED) / MACHINES  # one machine at a time is slow, and nobody waits for it


def _rate(buffer: float, settings: Settings, *, exchange: bool) -> float:
    """Return the mean throughput over the whole tour, as a share of the unloaded rate."""
    step_s = 0.01 if settings.quick else 0.005
    scenario = Scenario(
        lanes=MACHINES,
        slots=MACHINES,
        arrivals=uniform(MACHINES, 1.0),
        seconds_per_record=SERVICE_S,
        duration_s=(8 if settings.quick else MACHINES) * _VISIT_S,
        step_s=step_s,
        epoch_steps=round(_VISIT_S / step_s),
        speeds=Visiting(LOADED_SPEED, _VISIT_S, MACHINES),
        flow=Flow(MACHINES, CONNECTION, buffer, exchange=exchange, produce_s=PRODUCE_S, together=False),
    )
    timeline = simulate(scenario, policy_named("static"), seed=settings.seed)
    return float(timeline.throughput.mean()) * SERVICE_S / MACHINES


def _run(settings: Settings) -> Outcome:
    sizes = [0, 256, 2048, 8192] if settings.quick else [0, 64, 256, 512, 1024, 2048, 4096, 8192, 12288]
    flux = [_rate(size, settings, exchange=False) for size in sizes]
    exchange = [_rate(size, settings, exchange=True) for size in sizes]
    checks = (
        NO_BUFFER.check(
            (exchange[0],),
            "about half of the unloaded rate",
            f"{exchange[0]:.0%} (Exchange), {flux[0]:.0%} (Flux)",
            "head-of-line blocking costs more or less here than in the paper",
        ),
        GROWING_BUFFER.check(
            (flux, _LIMIT),
            f"approaches it; the limit is {_LIMIT:.1%}",
            f"{flux[0]:.0%} to {flux[-1]:.1%}",
            "the largest buffer of this run does not absorb a whole visit" if settings.quick else "it stays below",
        ),
        FLUX_AGAINST_EXCHANGE.check(
            (flux[1:], exchange[1:], _LIMIT),
            "Flux quickly beats Exchange",
            ", ".join(f"{s}: {f:.0%}/{e:.0%}" for s, f, e in zip(sizes[1:], flux[1:], exchange[1:], strict=True)),
            "at some size the space in Exchange's queues does as well",
        ),
    )
    kilobytes = [size * TUPLE_BYTES / 1e3 for size in sizes]
    panel = Panel(
        "Effect of short-term imbalances",
        "space per producer (KB)",
        "share of the unloaded throughput",
        (
            Series("Flux, transient skew buffer", kilobytes, flux),
            Series("Exchange", kilobytes, exchange),
            Series("limit: nobody waits", [kilobytes[0], kilobytes[-1]], [_LIMIT, _LIMIT]),
        ),
    )
    data = {"buffer_tuples": sizes, "flux": flux, "exchange": exchange, "limit": _LIMIT}
    return Outcome(checks, Picture([panel], columns=1), data, seeds=(settings.seed,))


E1 = Experiment("FX-E1", "Fig. 3", "Transient skew buffer against Exchange", RULE, _run)
