"""Several stages in one dataflow (FX-F3): what one serves comes to the next, and each is balanced on its own.

Every stage has its own lanes, balancer and policy; none knows of the others. They go in lock step: what a stage
serves in a step comes to the next one in the same step, by that one's key. Nothing holds a stage back: what is too
much for the next one waits there, or is refused if its queues are bounded. Latencies are those of each stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from evenflow.control import BalancerOptions
from evenflow.errors import InputError
from evenflow.migration import Strategy
from evenflow.model.load import refuse_bad_numbers
from evenflow.model.slots import FloatArray
from evenflow.policies import Policy
from evenflow.sim.quantum.engine import Cluster, ConservationError, cluster_under
from evenflow.sim.quantum.scenario import Scenario
from evenflow.sim.quantum.timeline import Timeline

_ROUNDING = 1e-9  # records: sums of many small numbers, relative


@dataclass(frozen=True, eq=False)
class Stage:
    """A scenario, and who decides in it.

    To a later stage comes what the one before has served. Of its `arrivals` only the shares count then, as if its key
    had nothing to do with the key before; so there must be some whenever records come. With `mixing` not even these
    count: entry (i, j) is how many records of slot j come of one record of slot i of the stage before, so that a row
    adds up to 1 unless records are dropped or made.
    """

    scenario: Scenario
    policy: Policy
    strategy: Strategy | None = None
    options: BalancerOptions | None = None
    mixing: npt.ArrayLike | None = None

    def by_own_key(self, served: FloatArray, at_s: float) -> FloatArray:
        """Return what comes to each slot here of what the stage before has `served`."""
        if self.mixing is not None:
            mixed: FloatArray = served @ np.asarray(self.mixing, dtype=np.float64)
            return mixed
        rates, records = self.scenario.arrivals.rates(at_s), float(served.sum())
        if records == 0:
            return np.zeros(rates.size)
        if not rates.any():
            raise InputError(
                f"stages: at {at_s:g} s a stage gets {records:g} records from the one before, and its arrivals give no "
                f"slot a share of them; let them be above 0 somewhere at all times, or give the stage a mixing"
            )
        spread: FloatArray = rates * (records / rates.sum())
        return spread


def simulate_stages(stages: Sequence[Stage], seed: int = 1) -> tuple[Timeline, ...]:
    """Run all stages together; return their timelines. The first one runs as it would alone."""
    _refuse_misfits(stages)
    clusters = [cluster_under(one.scenario, one.policy, one.strategy, one.options, seed) for one in stages]
    for _ in range(stages[0].scenario.steps):
        served: FloatArray | None = None
        for stage, cluster in zip(stages, clusters, strict=True):
            offered = None if served is None else stage.by_own_key(served, cluster.now_s)
            before = cluster.counts.served.copy()
            cluster.step(offered)
            served = cluster.counts.served - before
    timelines = tuple(cluster.timeline() for cluster in clusters)
    for at in range(1, len(stages)):
        _check(stages[at], clusters[at - 1], timelines[at])
    return timelines


def _check(stage: Stage, before: Cluster, timeline: Timeline) -> None:
    """Raise unless all that the stage before has served came to this one."""
    served = before.counts.served
    passed_on = float(served.sum() if stage.mixing is None else stage.by_own_key(served, 0.0).sum())
    came = float(timeline.arrived.sum() + timeline.refused.sum())
    if abs(passed_on - came) > _ROUNDING * (1.0 + passed_on):
        raise ConservationError(f"a stage passed {passed_on} records on, to the next one came {came}")


def _refuse_misfits(stages: Sequence[Stage]) -> None:
    """Refuse stages that cannot go in lock step, or do not fit each other."""
    if not stages:
        raise InputError("stages: needs at least 1 stage, got none")
    first = stages[0].scenario
    for at, (before, stage) in enumerate(pairwise(stages), start=2):
        scenario = stage.scenario
        if (scenario.step_s, scenario.steps) != (first.step_s, first.steps):
            raise InputError(
                f"stages: stage {at} has {scenario.steps} steps of {scenario.step_s} s, the first one {first.steps} of "
                f"{first.step_s} s; give both the same step_s, and a duration that is whole rows of both"
            )
        if scenario.flow is not None:
            raise InputError(f"stages: stage {at} gets what the one before serves; only the first may have a flow")
        if stage.mixing is None:
            continue
        mixing, fits = np.asarray(stage.mixing, dtype=np.float64), (before.scenario.slots, scenario.slots)
        refuse_bad_numbers(f"stages: mixing of stage {at}", mixing)
        if mixing.shape != fits:
            raise InputError(f"stages: mixing of stage {at} must be {fits}, slots before by slots, got {mixing.shape}")
