"""Rules: words and verdict are one thing, and every statement of every experiment can match, hold and differ."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from evenflow.errors import InputError
from papers.autoflow import rules as af
from papers.catalogue import every_experiment
from papers.cross import rules as cross
from papers.dpa import rules as dp
from papers.experiment import Engine, Experiment, Outcome, Verdict
from papers.flux import rules as fx
from papers.guo_zhou import rules as gz
from papers.reconfiguration import rules as lr
from papers.report import write_report
from papers.results import read_result, to_json
from papers.rules import Rule, Statement, close
from papers.spark_runs import rules as spark

Values: TypeAlias = tuple[Any, ...]
NONE = None  # no shape: the statement has no weaker form, so what is no match differs

CASES: dict[Statement, tuple[Values, Values | None, Values]] = {
    # AutoFlow, simulator: values that match, hold and differ
    af.BACKLOG: ((204.0, 200.0), (280.0, 200.0), (310.0, 200.0)),
    af.LATENCY_RISES: ((0.1,), NONE, (0.0,)),
    af.HOT_THROUGHPUT: ((990, 600, 1000), (900, 600, 1000), (600, 600, 1000)),
    af.OTHERS_FLAT: ((9.9, 1000), NONE, (10.1, 1000)),
    af.SHARES: (([True, True], [0.3, 0.1], 0.2), ([True, False], [0.1, 0.19], 0.2), ([True, False], [0.1, 0.2], 0.2)),
    af.ENDS_EVEN: (([0.1, 0.19], 0.2), NONE, ([0.1, 0.2], 0.2)),
    af.FIRST_MIGRATION: (([7.0, 11.0], 5), ([7.0, 11.5], 5), ([], 5)),
    af.SOLVED: ((0.11, 0.01, 20.0), (9.0, 0.01, 20.0), (10.0, 0.01, 20.0)),
    af.SLIGHT_SPIKES: ((0.1, 2.0), (0.1, 2.1), (0.0, 1.0)),
    af.AREA_REDUCED: ((0.5,), (0.49,), (0.0,)),
    af.PEAK_REDUCED: ((0.5,), (0.01,), (-0.1,)),
    af.SMALL_BEATS_LARGE: (([0.9, 0.8], [0.8, 0.7]), NONE, ([0.9, 0.8], [0.8, 0.8])),
    af.SHORT_IMPROVED: ((0.01,), NONE, (0.0,)),
    af.SHORT_LESS: (([0.8, 0.9], [0.95, 0.91]), NONE, ([0.8, 0.92], [0.95, 0.91])),
    af.MOST_RELIEVED: ((25, 30, 5), (16, 30, 5), (15, 30, 5)),
    af.SOME_RELIEVED: ((1, 15), NONE, (15, 15)),
    af.TOTAL_LESS: ((0.1,), NONE, (0.0,)),
    af.WORSE_THAN_HALF: ((12.0, 2.0), NONE, (2.0, 2.0)),
    af.TRAFFIC: (([0.1, 0.9],), NONE, ([0.1, 1.0],)),
    af.BATCH_LATENCY: (([0.25, 0.3], 0.5), NONE, ([0.24, 0.3], 0.5)),
    af.HOTSPOT_EASED: ((1.0, 27.0), NONE, (14.0, 27.0)),
    af.REFUSED: (([2, 2], 2), NONE, ([2, 1], 2)),
    af.SAME_RATE: ((0.02,), NONE, (0.021,)),
    af.SAME_LATENCY: ((0.0, 0.02), (0.0, 0.03), (0.03, 0.03)),
    af.NONE_HELD: ((0,), NONE, (1,)),
    af.ONLY_MIGRATED_WAIT: ((500, 0), NONE, (500, 1)),
    af.FEWER_WAIT: ((500, 900), (900, 900), (901, 900)),
    # reconfiguration, simulator
    lr.SAME_MAP: (([True, True],), NONE, ([True, False],)),
    lr.PEAK_FACTOR: ((100,), (10,), (9.9,)),
    lr.FLUID_STABLE: ((4.0, 4.0), (5.0, 4.0), (5.1, 4.0)),
    lr.STEPS: (([1, 128, 32],), NONE, ([1, 128, 33],)),
    lr.SUDDEN_NO_LONGER: ((5.0, 4.0), (6.0, 4.0), (6.1, 4.0)),
    lr.DURATIONS: ((4.0, 6.0, 12.0), (4.0, 7.0, 8.0), (4.0, 7.0, 6.0)),
    lr.PEAKS: ((4.0, 0.3, 0.4), (4.0, 0.3, 3.9), (4.0, 0.3, 4.0)),
    lr.BATCHED_LOWER: ((1.9, 2.0), (2.5, 2.0), (2.6, 2.0)),
    lr.NO_EARLIER: ((6.0, 6.0), (nan, nan), (5.9, 6.0)),
    lr.AT_ONCE: ((1.0, 1.5, 6.0, 22.0), (1.0, 1.5, 23.0, 22.0), (1.6, 1.5, 6.0, 22.0)),
    lr.EXACTLY: (([[1, "dog"]], [[1, "dog"]]), NONE, ([[1, "cat"]], [[1, "dog"]])),
    lr.WAITING_FALLS: (([5.0, 1.0, 0.5],), ([5.0, 6.0, 1.0],), ([5.0, 1.0, 5.0],)),
    lr.REACTION_RISES: ((1.09, 5.0, 80.0), (1.2, 5.0, 80.0), (0.0, 5.0, 5.0)),
    lr.PEAK_FALLS: (([9.0, 3.0, 1.0],), ([90.0, 91.0, 8.0],), ([90.0, 91.0, 9.0],)),
    lr.DURATION_RISES: (([1.0, 2.0, 3.0],), ([1.0, 0.5, 3.0],), ([1.0, 2.0, 1.0],)),
    lr.SAME_SHARES: (([True, True],), NONE, ([True, False],)),
    lr.HALTING_PEAK: ((4.0, 4.0), NONE, (3.9, 4.0)),
    lr.OTHERS_SERVED: ((9.0, 100.0), (99.0, 100.0), (100.0, 100.0)),
    lr.EXTERNAL_STATE: ((0.01, 0.1, 1.6), (0.2, 0.1, 1.1), (0.01, 0.1, 1.0)),
    # Guo and Zhou, simulator
    gz.MEAN_ON_STREAM: ((2.09, 2.0), (2.5, 2.0), (2.6, 2.0)),
    gz.DEVIATION_ON_STREAM: ((2.5, 2.0), (20.0, 2.0), (20.1, 2.0)),
    gz.ZIPF_FLUCTUATES: ((8.0, 7.0), NONE, (7.0, 7.0)),
    gz.EXTREMES: (([True, True],), ([True, False],), ([True, False, False],)),
    gz.FLUCTUATES_BY_EACH: (([1.1, 2.0, 1.5],), ([1.1, 2.0, 1.0],), ([1.1, 1.0, 1.0],)),
    gz.MEANS_EQUAL: (([1.09, 0.91, 1.0],), ([1.5, 1.0, 1.0],), ([1.51, 1.0, 1.0],)),
    gz.ORDER: ((1.0, 2.0, 3.0, 4.0), NONE, (1.0, 3.0, 2.0, 4.0)),
    gz.SIZE: ((1.25, 1.0), (10.0, 1.0), (0.09, 1.0)),
    gz.RANGE_EXISTS: (([0.95],), NONE, ([],)),
    gz.MOVED: ((1.25, 1.0), (0.5, 1.0), (2.1, 1.0)),
    gz.AMORTISED: ((1.6, 1.6), (3.2, 1.6), (3.3, 1.6)),
    gz.MOVEMENT_ORDER: ((1.6, 14.5, 21.2, 24.2), (15.0, 14.5, 21.2, 24.2), (1.6, 22.0, 21.2, 24.2)),
    gz.FRONT: ((["even", "static"],), NONE, (["even"],)),
    gz.BELOW: ((1.0, 1.0, 2.0, 2.0), (9.0, 1.0, 2.0, 2.0), (1.0, 2.0, 2.0, 2.0)),
    gz.MAXIMUM_OVER_MEAN: ((300, 300, 300, 300), (2, 30, 15, 20), (300, 29, 300, 300)),
    gz.ORDER_KEPT: ((True,), NONE, (False,)),
    gz.FLUCTUATION: ((0.1, 0.1, 0.2, 0.2), (0.3, 0.1, 0.2, 0.2), (0.1, 0.2, 0.2, 0.2)),
    gz.LINEAR: ((0.05,), (0.2,), (0.21,)),
    gz.HASHING_FURTHER: ((0.03, 0.02, 0.01), (0.01, 0.03, 0.01), (0.03, 0.01, 0.01)),
    gz.CLB_LAST: ((1.0, 15.0, 14.0, 14.0, 15), (14.0, 15.0, 14.0, 15.0, 15), (14.9, 15.0, 15.0, 15.0, 15)),
    gz.ELASTIC: ((True, 0.0), NONE, (True, 1.0)),
    gz.INTERIOR: (([1.0, 3.0, 2.0],), NONE, ([1.0, 2.0, 3.0],)),
    gz.MOVEMENT_FALLS: (([4.0, 2.0, 1.0],) * 2, ([4.0, 5.0, 0.9],) * 2, ([4.0, 5.0, 1.0],) * 2),
    gz.ONE_BALANCING: (([True] * 10,), ([True] * 9 + [False],), ([True] * 8 + [False] * 2,)),
    gz.FEWER_MOVES: ((0.2, 1.1), (0.2, 1.3), (1.0, 1.0)),
    gz.WORKED_EXAMPLE: (([4.0, 25.0, 3.0, 0.0],), NONE, ([4.0, 25.0, 3.0, 1.0],)),
    gz.FORMULA: ((1e-12,), NONE, (2e-12,)),
    # Flux, simulator
    fx.NO_BUFFER: ((0.5,), (0.6,), (0.7,)),
    fx.GROWING_BUFFER: (([0.5, 0.9, 0.98], 0.982), ([0.5, 0.9, 0.95], 0.982), ([0.5, 0.9, 0.88], 0.982)),
    fx.FLUX_AGAINST_EXCHANGE: (
        ([0.7, 0.98, 0.98], [0.5, 0.9, 0.98], 0.982),
        ([0.7, 0.8], [0.5, 0.9], 0.982),
        ([0.7, 0.8, 0.8], [0.5, 0.9, 0.9], 0.982),
    ),
    fx.FELT: ((6.5,), (10.0,), (10.1,)),
    fx.FALLS: ((0.459,), (0.59,), (0.6,)),
    fx.RECOVERS: ((0.83, 0.43), (0.5, 0.43), (0.43, 0.43)),
    fx.PARTITIONS_LEFT: ((31, 31), (31, 61), (41, 41)),
    fx.WITHOUT_CHANCE: ((0.834, 0.43, 31, 31), (0.834, 0.43, 31, 61), (0.42, 0.43, 31, 31)),
    fx.STEADY_AGAIN: ((12.0, 9), (22.5, 9), (inf, 9)),
    fx.STATIC_STAYS: (([0.43, 0.459],), ([0.43, 0.489],), ([0.43, 0.5],)),
    fx.LINEAR: (([1.0, 0.8, 0.6], 0.97), ([1.0, 0.8, 0.79], 0.9), ([1.0, 0.8, 0.83], 0.97)),
    fx.AS_THE_PAIR_RULE: ((-0.05,), (0.2,), (-0.21,)),
    fx.THRASHES: ((0.6,), (0.99,), (1.0,)),
    fx.CROSSING: ((0.25,), (1.0,), (inf,)),
    fx.CROSSING_LOADED: ((0.15, 0.25), (0.25, 0.25), (inf, 0.25)),
    fx.NOTHING_TO_TUNE: (([0.95, 1.0], [1.0, 1.0]), ([0.9, 1.0], [1.1, 1.1]), ([0.9, 1.0], [1.0, 1.1])),
    fx.STALLED: (([10, 8],), ([10, 4],), ([10, 3],)),
    fx.RESUMES: ((16.5,), (22.5,), (inf,)),
    fx.STATIC_SLOW: ((0.59,), (0.6,), (0.9,)),
    fx.IN_MEMORY: ((42.0,), (43.0,), (inf,)),
    fx.HIGH_LATENCY: (([1.0, 2.0], 0.1), ([0.31, 2.0], 0.1), ([0.29, 2.0], 0.1)),
    fx.LOW_AGAIN: ((0.02, 0.01, 1.0), (0.05, 0.01, 1.0), (0.1, 0.01, 1.0)),
    fx.STAGE_DEGRADES: ((0.59,), (0.6,), (0.9,)),
    fx.FULL_RATE: ((0.97, 0.97), (0.76, 0.97), (0.76, 0.96)),
    fx.KNEE: ((16, 16, 0.7), NONE, (16, 16, 0.8)),
    fx.ORDERS_ABOVE: ((100, 38.0), (100, 60.0), (9.9, 38.0)),
    fx.STAYS_LOW: ((3,), (10,), (10.1,)),
    fx.RISES: ((10,), (1.1,), (1.0,)),
    fx.MEMORY_WORST: ((0.8, 0.9, 0.9), (0.9, 0.9, 0.9), (0.95, 0.9, 0.9)),
    fx.HYBRID_AS_LOAD: ((0.97, 1.0), (0.9, 1.0), (0.89, 1.0)),
    fx.HYBRID_FIRST: ((55.0, 63.0), (175.0, inf), (inf, inf)),
    fx.NEVER_WORSE: ((0.99, 1.0), NONE, (0.98, 1.0)),
    fx.SAME_THROUGHPUT: ((0.9,), (0.75,), (0.74,)),
    fx.HALVED: ((2.0,), (3.1,), (1.0,)),
    fx.MOVES: (({5: 4, 8: 3},), NONE, ({5: 4, 9: 3},)),
    fx.GAP_THROUGHPUT: (([1.0, 0.99, 2.0],), ([1.0, 0.9, 2.0],), ([1.0, 2.0, 1.0],)),
    fx.GAP_LATENCY: (([1.0, 1.5, 2.0],), ([1.0, 0.9, 2.0],), ([2.0, 1.5, 1.0],)),
    # DPA
    dp.FIRM_CELL: (([0.2], 0.2), ([0.2, 0.25], 0.2), ([0.26], 0.2)),
    dp.FREE_CELL: (([0.2, 0.3], 0.2), ([0.25], 0.2), ([0.26], 0.2)),
    dp.MORE_ROUNDS_HELP: ((5, 5), (3, 5), (2, 5)),
    dp.NEVER_HURT_HALVING: (([], []), (["WL4"], []), (["WL4"], ["WL4"])),
    dp.CAN_HURT_DOUBLING: ((["WL3"],), NONE, ([],)),
    dp.CORRELATED: ((0.8,), (0.5,), (0.49,)),
    dp.SMALL_VARIANCE: ((0.01,), (0.03,), (0.031,)),
    dp.MERGED: (([],), NONE, (["WL1 halving 5"],)),
    dp.MERGED_AT_SCALE: (([True, True],), NONE, ([True, False],)),
    dp.LOOK_UP: ((26, 26), NONE, (25, 26)),
    # the cross table
    cross.NONE_LOST: ((0.0,), NONE, (1.0,)),
    cross.NEAR_THE_BEST: ((1.1,), (2.0,), (2.1,)),
    cross.NEAR_THE_BEST_BY_WAY: ((1.0,), (1.5,), (3.0,)),
    # on Spark
    spark.HOT_LATENCY: ((0.25, 0.2), (0.4, 0.2), (0.41, 0.2)),
    spark.OTHER_LATENCY: ((0.04, 0.2), (0.1, 0.2), (0.2, 0.2)),
    spark.HOT_THROUGHPUT: ((850, 900, 1000), (800, 500, 1000), (500, 500, 1000)),
    spark.GAP_CLOSED: ((0.19, 0.2, 0.2), (0.25, 0.6, 0.2), (0.3, 0.6, 0.2)),
    spark.MORE_FINISHED: ((1250, 1000), (1001, 1000), (1000, 1000)),
    spark.SLOWEST_EASED: ((1.0, 2.0), (1.9, 2.0), (2.0, 2.0)),
    spark.GREATLY_REDUCED: ((0.5,), (0.1,), (-0.02,)),
    spark.REDUCED: ((0.1,), NONE, (-0.02,)),
    spark.SMALLER_GAIN: ((0.1, 0.2), NONE, (0.2, 0.2)),
    spark.MOST_RELIEVED: ((5, 6), (1, 6), (0, 6)),  # what AF-E11 printed as "shape holds": none of six
    spark.SOME_RELIEVED: ((1, 5), (5, 5), (0, 5)),  # and AF-E12: none of five
    spark.BINS_MOVED: ((16, 16, 16), (16, 15, 16), (15, 15, 16)),
    spark.PEAK_FACTOR: ((2.0,), (1.1,), (1.0,)),
    spark.STEPS: (([1, 32, 8], [1, 32, 8]), ([1, 30, 8], [1, 32, 8]), ([1, 8, 32], [1, 32, 8])),
    spark.BATCHED_BELOW: ((1.6, 2.0), (1.9, 2.0), (2.0, 2.0)),
    spark.ORDER: ((1.0, 2.0, 3.0, 4.0), NONE, (2.0, 1.0, 3.0, 4.0)),
    spark.CLB_LEAST_EVEN: ((4.0, [1.0, 2.0, 3.0]), (2.5, [1.0, 2.0, 3.0]), (1.5, [1.0, 2.0, 3.0])),
    spark.SIZE: ((1.25, 1.0), (2.0, 1.0), (2.1, 1.0)),
    spark.MOVEMENT_ORDER: ((1.6, 14.5, 21.2, 24.2), (15.0, 14.5, 21.2, 24.2), (1.6, 22.0, 21.2, 24.2)),
    spark.CLB_AMORTISED: ((1.0, 50.0, [2.0, 20.0, 30.0]), (1.0, 5.0, [2.0, 20.0, 30.0]), (2.0, 5.0, [2.0, 20.0, 30.0])),
    spark.MOVED: ((0.0, 0.0), (2.0, 1.0), (1.0, 0.0)),
    spark.LINEAR: ((0.1,), (0.2,), (0.21,)),
    spark.ELASTIC: (([1, 2, 1], [1, 2, 1], 0), ([1, 3, 1], [1, 2, 1], 0), ([1, 2, 1], [1, 2, 1], 1)),
    spark.NO_BUFFER: ((0.55,), (0.69,), (0.7,)),
    spark.GROWING_BUFFER: (([0.5, 0.86, 0.85], 0.8575), ([0.5, 0.9, 0.7], 0.8575), ([0.5, 0.9, 0.9], 0.8575)),
    spark.AGAINST_LOCK_STEP: (
        ([0.7, 0.84], [0.5, 0.85], 0.8575),
        ([0.7, 0.7], [0.5, 0.8], 0.8575),
        ([0.7, 0.7, 0.7], [0.5, 0.8, 0.8], 0.8575),
    ),
    spark.FELT: ((5.2, 2.1, 0.6), (9.0, 2.1, 0.6), (inf, 2.1, 0.6)),
    spark.FALLS: ((0.489,), (0.59,), (0.6,)),
    spark.RECOVERS: ((0.75, 0.8, 0.45, 0.8575), (0.6, 0.8, 0.45, 0.8575), (0.9, 0.8, 0.45, 0.8575)),
    spark.SLOTS_LEFT: ((8, 7), (10, 7), (11, 7)),
    spark.STEADY_AGAIN: ((22.5,), (34.0,), (inf,)),
    spark.STATIC_STAYS: (([0.489, 0.4],), ([0.549, 0.4],), ([0.56, 0.4],)),
    spark.SMOOTH: (([0.9, 0.7, 0.5], 0.9), ([0.9, 0.7, 0.74], 0.5), ([0.9, 0.7, 0.76], 0.9)),
    spark.AS_THE_PAIR_RULE: ((0.1,), (0.2,), (0.21,)),
    spark.THRASHES: ((0.75,), (0.97,), (1.0,)),
    spark.CROSSING: ((4.0, 0.01), (0.01, 0.01), (inf, 0.01)),
    spark.CROSSING_LOADED: ((4.0, 4.0, 1.1, 1.0, 0.4), (10.0, 4.0, 1.1, 1.0, 0.4), (inf, 4.0, 0.7, 1.0, 0.4)),
}
# Statements by which several engines are judged: values as they come on Spark.
ON_SPARK: dict[Statement, tuple[Values, Values, Values]] = {
    lr.BATCHED_LOWER: ((1.9, 2.0), (2.5, 2.0), (2.6, 2.0)),
    lr.NO_EARLIER: ((nan, 6.0), (nan, nan), (4.0, nan)),
    gz.HASHING_FURTHER: ((0.03, 0.02, 0.01), (0.01, 0.03, 0.01), (0.03, 0.01, 0.01)),
    gz.CLB_LAST: ((6.0, 8.0, 7.0, 7.0, 8), (7.0, 8.0, 7.0, 7.0, 8), (8.1, 8.0, 8.0, 8.0, 8)),
}
RULES = [(one, engine) for one in every_experiment() for engine in one.engines]


def worst_of(*verdicts: Verdict) -> Verdict:
    return max(verdicts, key=list(Verdict).index)


@pytest.mark.parametrize(("experiment", "engine"), RULES, ids=[f"{one.id} {engine}" for one, engine in RULES])
def test_every_statement_of_every_experiment_can_match_hold_and_differ(experiment: Experiment, engine: Engine) -> None:
    rule = experiment.rule_on(engine)
    for judged in rule.statements:
        match, shape, differs = CASES[judged]
        assert judged.verdict(*match) is Verdict.MATCH, judged
        assert judged.verdict(*differs) is Verdict.DIFFERS, judged
        assert (shape is None) == (judged.shape is None), f"{judged} has a shape, or has none"
        assert shape is None or judged.verdict(*shape) is Verdict.SHAPE, judged
        for values, expected in ((match, Verdict.MATCH), (shape, Verdict.SHAPE), (differs, Verdict.DIFFERS)):
            if values is None:
                continue
            checks = [
                one.check(values if one is judged else CASES[one][0], "published", "ours", "why")
                for one in rule.statements
            ]
            assert Outcome(tuple(checks)).verdict is expected, "the worst statement is the experiment's verdict"
            assert rule.faults(checks) == []
            assert [bool(check.why) for check in checks] == [check.verdict is not Verdict.MATCH for check in checks]


@pytest.mark.parametrize("statement", ON_SPARK, ids=lambda statement: statement.name)
def test_a_statement_for_several_engines_can_match_hold_and_differ_on_each(statement: Statement) -> None:
    verdicts = [statement.verdict(*values) for values in ON_SPARK[statement]]
    assert verdicts == [Verdict.MATCH, Verdict.SHAPE, Verdict.DIFFERS]
    judged_on = {engine for one, engine in RULES if statement in one.rule_on(engine).statements}
    assert len(judged_on) > 1, "else its cases belong to the others"


def test_there_is_no_case_for_a_statement_of_no_rule() -> None:
    used = {statement for one, engine in RULES for statement in one.rule_on(engine).statements}
    assert CASES.keys() == used


@pytest.mark.parametrize(("experiment", "engine"), RULES, ids=[f"{one.id} {engine}" for one, engine in RULES])
def test_the_sentence_has_every_condition_in_words(experiment: Experiment, engine: Engine) -> None:
    rule = experiment.rule_on(engine)
    told = str(rule)
    for statement in rule.statements:
        for words, _ in [statement.match, *([statement.shape] if statement.shape else [])]:
            assert words in told
    assert len({statement.name for statement in rule.statements}) == len(rule.statements)


def test_no_episode_relieved_differs() -> None:
    """AF-E11 and AF-E12 on Spark stood on the page as "shape holds" with this."""
    assert spark.MOST_RELIEVED.verdict(0, 6) is spark.SOME_RELIEVED.verdict(0, 5) is Verdict.DIFFERS
    assert spark.MOST_RELIEVED.verdict(0, 0) is spark.SOME_RELIEVED.verdict(0, 0) is Verdict.DIFFERS
    assert spark.MOST_RELIEVED.verdict(0, 1) is Verdict.DIFFERS, "of one episode, all but one is none"


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (105.0, Verdict.MATCH),
        (95.1, Verdict.MATCH),
        (106.0, Verdict.SHAPE),
        (199.0, Verdict.SHAPE),
        (51.0, Verdict.SHAPE),
        (201.0, Verdict.DIFFERS),
        (49.0, Verdict.DIFFERS),
        (nan, Verdict.DIFFERS),
        (inf, Verdict.DIFFERS),
    ],
)
def test_a_number_is_close_near_or_neither(ours: float, verdict: Verdict) -> None:
    assert Statement("a number", *close(0.05, 2.0)).verdict(ours, 100.0) is verdict


@pytest.mark.parametrize("value", [inf, -inf])
def test_what_is_not_finite_is_kept_and_judged_the_same_again(value: float) -> None:
    same = Statement("a number", ("it is the same", lambda ours: ours == [value, 1.0]))
    check = same.check(([value, 1.0],), "published", "ours", "why")
    assert check.verdict is same.verdict(*check.values) is Verdict.MATCH


EQUAL = Statement("equal", ("they are", lambda one, other: one == other), ("nearly", lambda one, other: one < other))
OTHER = Statement("other", ("it is", lambda one: bool(one)))  # noqa: PLW0108 - each condition is a lambda


def test_checks_that_do_not_follow_the_rule_are_told() -> None:
    rule = Rule((EQUAL, OTHER))
    fine = EQUAL.check((1, 1), "1", "1", ""), OTHER.check((True,), "yes", "yes", "")
    assert rule.faults(fine) == []
    assert rule.faults(fine[:1]) == ["'other' is not judged"]
    assert Rule((EQUAL,)).faults(fine) == ["'other' is in no rule"]
    assert rule.faults([replace(fine[0], verdict=Verdict.SHAPE), fine[1]]) == [
        "'equal' is 'shape holds' but its rule says 'match'"
    ]


def test_a_report_judges_again_what_was_kept_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    kept = tmp_path / "results"
    kept.mkdir()
    file = Path(__file__).parents[1] / "results" / "AF-E11.spark.json"
    now = read_result(file)
    flattered = tuple(replace(check, verdict=Verdict.MATCH) for check in now.checks)
    old = replace(now, rule="an older rule", checks=flattered, verdict=Verdict.MATCH, picture=None)
    (kept / file.name).write_bytes(to_json(old))
    write_report(kept, tmp_path / "page.md")
    again = read_result(kept / file.name)
    assert (again.rule, again.checks, again.verdict) == (now.rule, now.checks, now.verdict)
    assert again.verdict is Verdict.DIFFERS
    silent = tuple(replace(check, statement="", values=()) for check in now.checks)
    (kept / file.name).write_bytes(to_json(replace(old, checks=silent)))
    with pytest.raises(InputError, match=r"AF-E11\.spark was judged on other statements.*run it again"):
        write_report(kept, tmp_path / "page.md")
