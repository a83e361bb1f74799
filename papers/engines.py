"""Which experiments also run on Spark, and by what rule: `python -m papers run AF-E4 --engine spark`.

The rules import no Spark, and the runs only when one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from papers.experiment import Experiment, Outcome, Settings
from papers.spark_runs.rules import SPARK_RULES


def with_engines(experiment: Experiment) -> Experiment:
    """Return the experiment with its run on Spark, if it has one."""
    rule = SPARK_RULES.get(experiment.id)
    if rule is None:
        return experiment

    def run(settings: Settings) -> Outcome:
        return (_spark_run(experiment.id) if settings.engine == "spark" else experiment.run)(settings)

    return replace(experiment, run=run, spark_rule=rule)


def _spark_run(id_: str) -> Callable[[Settings], Outcome]:
    """Return the run; Spark is imported only now."""
    from papers.spark_runs import autoflow, flux, guo_zhou, reconfiguration

    runs: dict[str, Callable[[Settings], Outcome]] = {
        "AF-E1": autoflow.off("3/50"),
        "AF-E2": autoflow.on("3/50"),
        "AF-E3": autoflow.off("3/80"),
        "AF-E4": autoflow.on("3/80"),
        "AF-E5": autoflow.off("5/60"),
        "AF-E6": autoflow.on("5/60"),
        "AF-E7": autoflow.off("5/80"),
        "AF-E8": autoflow.on("5/80"),
        "AF-E9": autoflow.spikes,
        "AF-E10": autoflow.short_spikes,
        "AF-E11": autoflow.wanderer(0.5),
        "AF-E12": autoflow.wanderer(0.8),
        "LR-E1": reconfiguration.run_e1,
        "LR-E2": reconfiguration.run_e2,
        "LR-E3": reconfiguration.run_e3,
        "GZ-E3": guo_zhou.run_e3,
        "GZ-E4": guo_zhou.run_e4,
        "GZ-E7": guo_zhou.run_e7,
        "FX-E1": flux.run_e1,
        "FX-E2": flux.run_e2,
        "FX-E3": flux.run_e3,
        "FX-E4": flux.run_e4,
    }
    return runs[id_]
