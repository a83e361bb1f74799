"""Which experiments also run on Spark, and by what rule: `evenflow reproduce AF-E4 --engine spark`.

The rules are here and the runs elsewhere, so that listing experiments starts no Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evenflow.reproduce.experiment import Experiment, Outcome, Settings

_OFF = (
    "latency on hot lanes rises as share, rate and capacity say, within 25 % (shape: factor 2); on the others by at "
    "most a fifth of that (shape: less); hot lanes are at 85 % of their limit at least (shape: above the others)"
)
_ON = (
    "in the last quarter (max - min)/max is below 0.2 (shape: half of the first); at least 1.25 times as many rows are "
    "finished as off (shape: more); latency on the slowest lane ends at half of that off (shape: less)"
)
_WANDERS = "latency is below that off in total; "
SPARK_RULES: dict[str, str] = {
    "AF-E1": _OFF,
    "AF-E2": _ON,
    "AF-E3": _OFF,
    "AF-E4": _ON,
    "AF-E5": _OFF,
    "AF-E6": _ON,
    "AF-E7": _OFF,
    "AF-E8": _ON,
    "AF-E9": "balancing takes half of the latency away (shape: some)",
    "AF-E10": "balancing takes some of the latency away, and less than on a spike twice as long",
    "AF-E11": _WANDERS + "all but one episode relieved (shape: some)",
    "AF-E12": _WANDERS + "some episodes relieved and some not (shape: some)",
    "LR-E1": "the same bins move; sudden's peak is at least twice fluid's (shape: higher)",
    "LR-E2": "as E1; the steps are 1, one per bin, and bins by pairs (shape: in that order); batched's peak is below "
    "sudden's by a quarter (shape: below)",
    "LR-E3": "batched's peak is below sudden's (shape: within 25 %); it is stable NO earlier",
    "GZ-E3": "UHLB <= PKG <= ELB <= CLB by mean and by deviation of var(L) (else differs); CLB is the least even "
    "(shape: in the worse half); each mean is that of the policy on the same histograms without an engine, within 25 % "
    "(shape: factor 2)",
    "GZ-E4": "CLB amortised <= ELB <= PKG <= UHLB (shape: the last three); CLB moves most per balancing and least "
    "amortised (shape: amortised below a quarter); each share is that on the same histograms, within 25 % (shape: "
    "factor 2)",
    "GZ-E7": "rows served with ELB, and with CLB, are within 10 % of linear (shape: 20 %); PKG and UHLB are further "
    "from it than ELB by a point at least (shape: UHLB); with the most lanes CLB is behind all three by 1 % of linear "
    "at least (shape: behind ELB); ELB's lanes follow its rule at the end of each stage and no row is lost (shape: "
    "they rise and fall, and no row is lost)",
    "FX-E1": "shares are of what the lanes' limits add up to; lock-step gets 40 to 55 % (shape: below 70 %); the rate "
    "never falls by more than 5 points with max_lag and ends at most 5 points below and 2 above the limit 1 - 0.57/n "
    "(shape: above the first, and not further above the limit); it is ahead of lock-step with as many rows under way "
    "until both are at most 5 points below the limit (shape: at half of the sizes)",
    "FX-E2": "felt within a factor of 2 (and the second that is the grain) of when max_lag + 1 epochs are full (shape: "
    "after an epoch); static at 43 % +- 6 points of what the lanes' limits add up to (shape: below 60 %); balancing "
    "ends at the rate of the pair rule on these lanes without chance, less 5 points at most (shape: 10 points above "
    "static), and no more than 2 points above the limit 1 - 0.57/n (else differs); as many slots leave as there, "
    "+- 1 (shape: 3); steady within 2.5 times the paper's 9 s (shape: before what counts as the end of the run)",
    "FX-E3": "static at 43 % +- 6 points of what the lanes' limits add up to from k = 1 on (shape: 12); balancing "
    "never rises by more than 5 points with k and a straight line explains 90 % (shape: the first); within 10 % of the "
    "pair rule on these lanes without chance (shape: 20 %)",
    "FX-E4": "shortest delta_min at most 75 % of static (shape: below static); better than static from a longer one on "
    "(shape: from any); with the hottest lane loaded better than static without load from no longer one on (shape: "
    "nearer to it than to static with load)",
}


def with_engines(experiment: Experiment) -> Experiment:
    """Return the experiment with its run on Spark, if it has one."""
    rule = SPARK_RULES.get(experiment.id)
    if rule is None or "spark" in experiment.engines:
        return experiment

    def run(settings: Settings) -> Outcome:
        return (_spark_run(experiment.id) if settings.engine == "spark" else experiment.run)(settings)

    whole_rule = f"{experiment.rule.removesuffix('.')}. On Spark, match: {rule}."
    return replace(experiment, rule=whole_rule, run=run, engines=(*experiment.engines, "spark"))


def _spark_run(id_: str) -> Callable[[Settings], Outcome]:
    """Return the run; Spark is imported only now."""
    from evenflow.reproduce.spark_runs import autoflow, flux, guo_zhou, reconfiguration

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
