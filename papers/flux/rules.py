"""By what rules Flux's experiments are judged in the simulator."""

from __future__ import annotations

import math
from itertools import pairwise

from papers.rules import Rule, Statement, close

# --- FX-E1 -----------------------------------------------------------------------------------------------------------

NO_BUFFER = Statement(
    "no buffer, one of 32 machines slow at a time",
    ("Exchange gets from 40 to 55 % of the unloaded rate (FX-A9)", lambda share: 0.40 <= share <= 0.55),
    ("it gets below 70 %", lambda share: share < 0.7),
)
GROWING_BUFFER = Statement(
    "with growing buffer Flux nears the unloaded rate",
    (
        "the rate never falls by more than a point and ends within a point of the limit 1 - 0.57/32",
        lambda shares, limit: _never_falls(shares, 0.01) and abs(shares[-1] - limit) <= 0.01,
    ),
    ("it never falls by more than a point", lambda shares, limit: _never_falls(shares, 0.01)),
)
FLUX_AGAINST_EXCHANGE = Statement(
    "Flux against Exchange with the same space",
    (
        "Flux is ahead at every size above 0 until both are at most a point below the limit",
        lambda flux, exchange, limit: all(_ahead(flux, exchange, limit - 0.01)),
    ),
    (
        "it is at half of the sizes",
        lambda flux, exchange, limit: 2 * sum(_ahead(flux, exchange, limit - 0.01)) >= len(flux),
    ),
)
E1 = Rule((NO_BUFFER, GROWING_BUFFER, FLUX_AGAINST_EXCHANGE), "Rates are shares of the unloaded one.")

# --- FX-E2 -----------------------------------------------------------------------------------------------------------

FELT = Statement(
    "the load is felt only when the skew buffer is full",
    ("within 1.5 s of t = 5 s", lambda felt_s: abs(felt_s - 5) <= 1.5),
    ("from t = 2.5 to 10 s", lambda felt_s: 2.5 <= felt_s <= 10),
)
FALLS = Statement(
    "without balancing",
    ("it ends at 43 % +- 3 points", lambda share: abs(share - 0.43) <= 0.03),
    ("below 60 %", lambda share: share < 0.6),
)
RECOVERS = Statement(
    "with balancing",
    ("the median over the seeds ends at 83 % or more", lambda rate, static: rate >= 0.83),
    ("it ends above static", lambda rate, static: rate > static),
)
PARTITIONS_LEFT = Statement(
    "partitions moved in these runs",
    ("31 or 32 left the slow machine and no other moved", lambda left, moves: left in (31, 32) and moves == left),
    ("25 to 40 left it (37 would even it out completely)", lambda left, moves: 25 <= left <= 40),
)
WITHOUT_CHANCE = Statement(
    "the same without chance fluctuations",
    (
        "at 83 % or more, 31 or 32 left and no other moved",
        lambda rate, static, left, moves: rate >= 0.83 and left in (31, 32) and moves == left,
    ),
    ("above static and 25 to 40 left", lambda rate, static, left, moves: rate > static and 25 <= left <= 40),
)
STEADY_AGAIN = Statement(
    "time from feeling the load to a steady rate", *close(1 / 3, 2.5, " of 9 s, before the last 5 s of the run")
)
E2 = Rule((FELT, FALLS, RECOVERS, PARTITIONS_LEFT, WITHOUT_CHANCE, STEADY_AGAIN), "Rates are shares of the full one.")

# --- FX-E3 -----------------------------------------------------------------------------------------------------------

STATIC_STAYS = Statement(
    "no balancing: drops at k = 1 and stays",
    ("every k from 1 on is at 43 % +- 3 points", lambda shares: _all_near(shares, 0.43, 0.03)),
    ("+- 6 points", lambda shares: _all_near(shares, 0.43, 0.06)),
)
LINEAR = Statement(
    "balancing: smooth, linear",
    (
        "the rate rises with no k by more than 2 % of full and a straight line explains 97 % of it",
        lambda shares, straight: _never_rises(shares, 0.02) and straight >= 0.97,
    ),
    ("it rises with no k by more than 2 % of full", lambda shares, straight: _never_rises(shares, 0.02)),
)
AS_THE_PAIR_RULE = Statement(
    "against the pair rule round by round, without chance",
    ("all k are within 5 %", lambda off: abs(off) <= 0.05),
    ("within 20 %", lambda off: abs(off) <= 0.2),
)
E3 = Rule(
    (STATIC_STAYS, LINEAR, AS_THE_PAIR_RULE),
    "The pair rule is the policy with the paper's thresholds on means, computed.",
)

# --- FX-E4 -----------------------------------------------------------------------------------------------------------

THRASHES = Statement(
    "smallest delta_min, no external load",
    ("balancing gets at most 60 % of the static rate ('half')", lambda share: share <= 0.6),
    ("less than static", lambda share: share < 1),
)
CROSSING = Statement(
    "no external load: better than static",
    ("from a delta_min of 150 to 500 ms on (published 250)", lambda crossing_s: 0.15 <= crossing_s <= 0.5),
    ("from any", math.isfinite),
)
CROSSING_LOADED = Statement(
    "8 machines loaded: better than static without load",
    ("from an earlier delta_min on than without load", lambda loaded_s, crossing_s: loaded_s < crossing_s),
    ("from any", lambda loaded_s, crossing_s: math.isfinite(loaded_s)),
)
NOTHING_TO_TUNE = Statement(
    "FX-F2: `even`, nothing to tune, against the best fixed delta_min",
    ("it reaches 95 % of it in both cases", lambda of_best, of_static: min(of_best) >= 0.95),
    ("it beats static in both", lambda of_best, of_static: min(of_static) > 1),
)
E4 = Rule(
    (THRASHES, CROSSING, CROSSING_LOADED, NOTHING_TO_TUNE),
    "80/20 is read as self-similar (FX-A10); the flat reading is run and shown below the table, it has no published "
    "figure to be compared with.",
)

# --- FX-E5, E6 -------------------------------------------------------------------------------------------------------

STALLED = Statement(
    "256 MB are written first: how long almost nothing is served",
    ("at least 8 s are below 10 % of full before static resumes, under both", lambda seconds: min(seconds) >= 8),
    ("at least 4 s", lambda seconds: min(seconds) >= 4),
)
RESUMES = Statement(
    "static processes again",
    ("it stays above 12 % of full from t = 15 s on, within 10 %", lambda at_s: abs(at_s - 15) <= 1.5),
    ("within a factor of 1.5", lambda at_s: 15 / 1.5 <= at_s <= 15 * 1.5),
)
STATIC_SLOW = Statement(
    "static after that",
    ("below 60 % of full in the last 20 s", lambda share: share < 0.6),
    ("below 90 %", lambda share: share < 0.9),
)
IN_MEMORY = Statement(
    "repartitioning: all in memory, full rate",
    (
        "nothing is on disk and the rate is 90 % of full from t = 37 s on, within 15 %",
        lambda at_s: abs(at_s - 37) <= 0.15 * 37,
    ),
    ("at any time in the run", math.isfinite),
)
E5 = Rule((STALLED, RESUMES, STATIC_SLOW, IN_MEMORY))
HIGH_LATENCY = Statement(
    "while spilled input is processed",
    (
        "the mean latency of a second rises tenfold over the in-memory one under both",
        lambda peaks, before: min(peaks) >= 10 * before,
    ),
    ("threefold", lambda peaks, before: min(peaks) >= 3 * before),
)
LOW_AGAIN = Statement(
    "repartitioning, at the end",
    ("at most twice the in-memory latency", lambda end, before, static: end <= 2 * before),
    ("below a tenth of static's", lambda end, before, static: end < 0.1 * static),
)
E6 = Rule((HIGH_LATENCY, LOW_AGAIN))

# --- FX-E7, E8 -------------------------------------------------------------------------------------------------------

ONE_PRESSED = "static, one machine pressed"
SUFFICES = "repartitioning, while the cluster's memory suffices"
STAGE_DEGRADES = Statement(
    ONE_PRESSED, ("below 60 % of full", lambda share: share < 0.6), ("below 90 %", lambda share: share < 0.9)
)
FULL_RATE = Statement(
    SUFFICES,
    ("at 97 % of full", lambda of_full, of_allowed: of_full >= 0.97),
    (
        (
            "at 97 % of what the processors allow: a machine that takes over partitions gets their tuples too, so "
            "128 / (most partitions on a machine) is a bound"
        ),
        lambda of_full, of_allowed: of_allowed >= 0.97,
    ),
)
KNEE = Statement(
    "the knee",
    (
        (
            "partitions stay on disk exactly from half of the machines on (FX-A18) and the rate there is below 80 % of "
            "that just before"
        ),
        lambda first, half, drop: first == half and drop < 0.8,
    ),
)
E7 = Rule((STAGE_DEGRADES, FULL_RATE, KNEE), "Repartitioning is judged below half of the machines.")
CYCLE_S = 38.0
ORDERS = 100
ORDERS_ABOVE = Statement(
    ONE_PRESSED,
    (
        (
            "the mean latency is 100 times the in-memory one ('orders of magnitude') and the oldest tuple waited 42 "
            "x 0.9 s = 38 s, within a third"
        ),
        lambda times, oldest_s: times >= ORDERS and abs(oldest_s - CYCLE_S) <= CYCLE_S / 3,
    ),
    ("10 times", lambda times, oldest_s: times >= 10),
)
STAYS_LOW = Statement(
    SUFFICES,
    ("at most 3 times the in-memory latency", lambda times: times <= 3),
    ("10 times", lambda times: times <= 10),
)
RISES = Statement(
    "from the knee on", ("it rises there tenfold", lambda times: times >= 10), ("it rises", lambda times: times > 1)
)
E8 = Rule((ORDERS_ABOVE, STAYS_LOW, RISES), "Repartitioning is judged below half of the machines, and at half.")

# --- FX-E9, E10 ------------------------------------------------------------------------------------------------------

MEMORY_WORST = Statement(
    "memory-based policy",
    (
        "its steady rate is the lowest by more than 1 %",
        lambda memory, load, hybrid: memory < 0.99 * min(load, hybrid),
    ),
    ("within 1 % of the lowest", lambda memory, load, hybrid: memory <= 1.01 * min(memory, load, hybrid)),
)
HYBRID_AS_LOAD = Statement(
    "hybrid against load-balancing",
    ("at least 97 % of it", lambda hybrid, load: hybrid >= 0.97 * load),
    ("90 %", lambda hybrid, load: hybrid >= 0.9 * load),
)
HYBRID_FIRST = Statement(
    "which is steady first",
    (
        (
            "both come within 5 % of their final rates for good before the last 20 s, of which those are the means, "
            "and hybrid earlier"
        ),
        lambda hybrid_s, load_s: math.isfinite(load_s) and hybrid_s < load_s,
    ),
    (
        "hybrid is so at most 10 s later, or load-balancing is not in the run",
        lambda hybrid_s, load_s: math.isfinite(hybrid_s) and hybrid_s <= load_s + 10,
    ),
)
NEVER_WORSE = Statement(
    "FX-M16: hybrid never worse than either",
    ("at least 99 % of the better one", lambda hybrid, better: hybrid >= 0.99 * better),
)
E9 = Rule((MEMORY_WORST, HYBRID_AS_LOAD, HYBRID_FIRST, NEVER_WORSE))
SAME_THROUGHPUT = Statement(
    "throughput",
    ("hybrid and load-balancing are within 10 %", lambda ratio: abs(ratio - 1) <= 0.1),
    ("25 %", lambda ratio: abs(ratio - 1) <= 0.25),
)
HALVED = Statement(
    "latency",
    ("the hybrid's is 1/1.5 to 1/3 of load-balancing's ('a factor of two')", lambda factor: 1.5 <= factor <= 3),
    ("it is lower", lambda factor: factor > 1),
)
E10 = Rule((SAME_THROUGHPUT, HALVED))

# --- FX-E11, E12 -----------------------------------------------------------------------------------------------------

FIGURE_6 = {"5": 4, "8": 3}
MOVES = Statement(
    "moves of the round",
    (
        "exactly partition 5 goes to site 4 and partition 8 to site 3",
        lambda moves: {str(slot): site for slot, site in moves.items()} == FIGURE_6,
    ),
)
E11 = Rule((MOVES,))


def _larger_gap(what: str) -> Statement:
    return Statement(
        f"larger t_gap: more {what}",
        (
            "it never falls by more than 2 % and the last is above the first",
            lambda values: values[-1] > values[0] and all(b >= 0.98 * a for a, b in pairwise(values)),
        ),
        ("the last is above the first", lambda values: values[-1] > values[0]),
    )


GAP_THROUGHPUT, GAP_LATENCY = _larger_gap("throughput"), _larger_gap("latency")
E12 = Rule((GAP_THROUGHPUT, GAP_LATENCY))


def _never_falls(values: list[float], slack: float) -> bool:
    return all(later >= earlier - slack for earlier, later in pairwise(values))


def _never_rises(values: list[float], slack: float) -> bool:
    return all(later <= earlier + slack for earlier, later in pairwise(values))


def _all_near(values: list[float], number: float, slack: float) -> bool:
    return all(abs(value - number) <= slack for value in values)


def _ahead(flux: list[float], exchange: list[float], done: float) -> list[bool]:
    return [one > other or min(one, other) >= done for one, other in zip(flux, exchange, strict=True)]
