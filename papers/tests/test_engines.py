"""Rules of experiments that also run on Spark, and verdicts of those runs that need no Spark."""

from __future__ import annotations

import math

from papers.catalogue import every_experiment
from papers.experiment import Verdict
from papers.spark_runs.reconfiguration import stability_check
from papers.spark_runs.rules import SPARK_RULES


def test_what_runs_on_spark_has_a_rule_of_its_own_there() -> None:
    rules = {experiment.id: experiment.rule_on("spark") for experiment in every_experiment() if experiment.spark_rule}
    assert rules == SPARK_RULES


def test_what_is_not_stable_is_told_in_words_and_only_then() -> None:
    both = stability_check(12.0, 6.3)
    assert both.ours == "batched after 12.0 s, sudden after 6.3 s"
    assert both.verdict is Verdict.MATCH
    never = stability_check(math.nan, math.nan)
    assert never.ours == "batched not within the run, sudden not within the run"
    assert (never.verdict, never.why) == (Verdict.SHAPE, "neither is stable within the run")
    earlier = stability_check(4.0, math.nan)
    assert (earlier.verdict, earlier.why) == (Verdict.DIFFERS, "here it does occur")
