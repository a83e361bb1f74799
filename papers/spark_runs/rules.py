"""By what rules runs on Spark are judged. No module here imports Spark: listing experiments starts none."""

from __future__ import annotations

import math
from itertools import pairwise

from papers.guo_zhou.rules import CLB_LAST, HASHING_FURTHER
from papers.reconfiguration.rules import BATCHED_LOWER, NO_EARLIER
from papers.rules import Rule, Statement, close
from papers.verdicts import ascending

# --- AF-E1 to E8 -----------------------------------------------------------------------------------------------------

HOT_LATENCY = Statement("latency on a hot lane", *close(0.25, 2.0, " of what share, rate and capacity say"))
OTHER_LATENCY = Statement(
    "latency on the other lanes",
    ("it rises by at most a fifth of that", lambda others, hot: others <= 0.2 * hot),
    ("by less", lambda others, hot: others < hot),
)
HOT_THROUGHPUT = Statement(
    "throughput of hot and other lanes",
    ("each hot one is at 85 % of its limit", lambda hot, others, limit: hot >= 0.85 * limit),
    ("each hot one is above all others", lambda hot, others, limit: hot > others),
)
OFF = Rule((HOT_LATENCY, OTHER_LATENCY, HOT_THROUGHPUT))
GAP_CLOSED = Statement(
    "(max - min)/max of the rows per lane, last quarter of the epochs",
    ("below the factor, 0.2", lambda last, first, factor: last < factor),
    ("below half of that of the first quarter", lambda last, first, factor: last < 0.5 * first),
)
MORE_FINISHED = Statement(
    "rows finished by all lanes in the same time, on against off",
    ("1.25 times as many", lambda on, off: on >= 1.25 * off),
    ("more", lambda on, off: on > off),
)
SLOWEST_EASED = Statement(
    "latency on the slowest lane in the end, on against off",
    ("at most half", lambda on_s, off_s: on_s <= 0.5 * off_s),
    ("less", lambda on_s, off_s: on_s < off_s),
)
ON = Rule((GAP_CLOSED, MORE_FINISHED, SLOWEST_EASED))

# --- AF-E9 to E12 ----------------------------------------------------------------------------------------------------

RELIEVED = 0.5
HOTSPOTS = "hotspots relieved: latency at most half of that off"
WHOLE_RUN = "latency over the whole run, on against off"
GREATLY_REDUCED = Statement(
    WHOLE_RUN,
    ("balancing takes half of it away", lambda gain: gain >= RELIEVED),
    ("it takes some away", lambda gain: gain > 0),
)
REDUCED = Statement(WHOLE_RUN, ("balancing takes some of it away", lambda gain: gain > 0))
SMALLER_GAIN = Statement(
    "gain on the short spike against that on the long one", ("it is smaller", lambda short, long: short < long)
)
MOST_RELIEVED = Statement(
    HOTSPOTS,
    ("all episodes but one at least", lambda relieved, episodes: relieved >= max(1, episodes - 1)),
    ("some", lambda relieved, episodes: relieved > 0),
)
SOME_RELIEVED = Statement(
    HOTSPOTS,
    ("some episodes are and some are not", lambda relieved, episodes: 0 < relieved < episodes),
    ("all are", lambda relieved, episodes: relieved == episodes > 0),
)

# --- LR-E1 to E3 -----------------------------------------------------------------------------------------------------

BINS_MOVED = Statement(
    "bins moved, sudden and fluid",
    ("each moves half of all bins", lambda sudden, fluid, half: sudden == fluid == half),
    ("sudden does", lambda sudden, fluid, half: sudden == half),
)
PEAK_FACTOR = Statement(
    "peak latency of sudden over that of fluid",
    ("at least twice", lambda factor: factor >= 2),
    ("higher", lambda factor: factor > 1),
)
STEPS = Statement(
    "steps of sudden, fluid and batched",
    ("one, one per bin, and bins by pairs", lambda steps, wanted: list(steps) == list(wanted)),
    ("sudden has the fewest and fluid the most", lambda steps, wanted: steps[0] < steps[2] < steps[1]),
)
BATCHED_BELOW = Statement(
    "peak latency, batched against sudden",
    ("batched's is lower by a factor of 1.25", lambda batched, sudden: 1.25 * batched <= sudden),
    ("lower", lambda batched, sudden: batched < sudden),
)

# --- GZ-E3, E4, E7 ---------------------------------------------------------------------------------------------------

ORDER = Statement(
    "order of the mean and of the standard deviation of var(L)",
    ("UHLB <= PKG <= ELB <= CLB, by each", lambda uhlb, pkg, elb, clb: ascending([uhlb, pkg, elb, clb])),
)
CLB_LEAST_EVEN = Statement(
    "CLB is the least even of the four",
    ("its mean is the highest", lambda clb, others: clb >= max(others)),
    ("it is in the worse half", lambda clb, others: sum(other >= clb for other in others) <= 1),
)
SIZE = Statement(
    "mean of var(L), against the same policy on the same histograms without an engine",
    *close(0.25, 2.0, " of it, of each algorithm"),
)
MOVEMENT_ORDER = Statement(
    "order of movement (% of the state per balancing)",
    ("CLB amortised <= ELB <= PKG <= UHLB", lambda amortised, elb, pkg, uhlb: ascending([amortised, elb, pkg, uhlb])),
    ("the last three are in order", lambda amortised, elb, pkg, uhlb: ascending([elb, pkg, uhlb])),
)
CLB_AMORTISED = Statement(
    "CLB moves most per balancing, and least once amortised over the windows between",
    (
        "both",
        lambda amortised, clb, others: clb >= max(others) and amortised <= min([clb, *others]),
    ),
    ("amortised it is below a quarter of its own", lambda amortised, clb, others: amortised < clb / 4),
)
MOVED = Statement(
    "% of the state moved per balancing, against the same policy on the same histograms",
    *close(0.25, 2.0, " of it, of each algorithm"),
)
LINEAR = Statement(
    "ELB, and CLB, are nearly linear",
    ("rows served per second are within 10 % of linear, of each", lambda off: off <= 0.1),
    ("20 %", lambda off: off <= 0.2),
)
ELASTIC = Statement(
    "ELB adds and retires lanes as the load rises and falls: pi = ceil(2w / (u+v)), no row lost",
    (
        "it has as many as the rule wants at the end of each stage, and no row is lost",
        lambda lanes, wanted, lost: list(lanes) == list(wanted) and lost == 0,
    ),
    (
        "they rise and fall, and no row is lost",
        lambda lanes, wanted, lost: _rises_and_falls(list(lanes)) and lost == 0,
    ),
)

# --- FX-E1 to E4 -----------------------------------------------------------------------------------------------------

ABOVE = 0.02  # how far above the lanes' limit a rate may be: what measuring errs by

NO_BUFFER = Statement(
    "no buffer, one lane slow at a time",
    ("lock-step gets 40 to 55 %", lambda share: 0.40 <= share <= 0.55),
    ("below 70 %", lambda share: share < 0.7),
)
GROWING_BUFFER = Statement(
    "with growing buffer the rate nears the unloaded one",
    (
        (
            "with max_lag it never falls by more than 5 points and ends at most 5 points below and 2 above the limit "
            "1 - 0.57/n"
        ),
        lambda shares, limit: (
            all(later >= earlier - 0.05 for earlier, later in pairwise(shares))
            and limit - 0.05 <= shares[-1] <= limit + ABOVE
        ),
    ),
    (
        "it ends above the first, and no further above the limit",
        lambda shares, limit: shares[0] < shares[-1] <= limit + ABOVE,
    ),
)
AGAINST_LOCK_STEP = Statement(
    "against lock-step with as many rows under way",
    (
        "ahead at each size until both are at most 5 points below the limit",
        lambda lags, steps, limit: all(_ahead(lags, steps, limit - 0.05)),
    ),
    ("at half of the sizes", lambda lags, steps, limit: 2 * sum(_ahead(lags, steps, limit - 0.05)) >= len(lags)),
)
FELT = Statement(
    "the load is felt only when the skew buffer is full",
    (
        "within a factor of 2 (and the second that is the grain) of when max_lag + 1 epochs are full",
        lambda after_s, full_s, epoch_s: full_s / 2 <= after_s <= 2 * full_s + 1,
    ),
    ("after an epoch", lambda after_s, full_s, epoch_s: epoch_s <= after_s < math.inf),
)
FALLS = Statement(
    "without balancing",
    ("at 43 % +- 6 points", lambda share: abs(share - 0.43) <= 0.06),
    ("below 60 %", lambda share: share < 0.6),
)
RECOVERS = Statement(
    "with balancing",
    (
        (
            "it ends at the rate of the pair rule on these lanes without chance, less 5 points at most, and no more "
            "than 2 above the limit 1 - 0.57/n"
        ),
        lambda share, model, static, limit: model - 0.05 <= share <= limit + ABOVE,
    ),
    (
        "10 points above static, and no further above the limit",
        lambda share, model, static, limit: static + 0.1 < share <= limit + ABOVE,
    ),
)
SLOTS_LEFT = Statement(
    "slots that left the slow lane",
    ("as many as there, +- 1", lambda left, model: abs(left - model) <= 1),
    ("+- 3", lambda left, model: abs(left - model) <= 3),
)
STEADY_AGAIN = Statement(
    "time from feeling the load to a steady rate",
    ("at most 2.5 times the paper's 9 s", lambda took_s: took_s <= 22.5),
    ("before what counts as the end of the run", math.isfinite),
)
STATIC_STAYS = Statement(
    "no balancing: drops at k = 1 and stays",
    ("at 43 % +- 6 points from k = 1 on", lambda shares: all(abs(share - 0.43) <= 0.06 for share in shares)),
    ("+- 12 points", lambda shares: all(abs(share - 0.43) <= 0.12 for share in shares)),
)
SMOOTH = Statement(
    "balancing: smooth, linear",
    (
        "it rises with no k by more than 5 points and a straight line explains 90 %",
        lambda shares, straight: _never_rises(shares) and straight >= 0.9,
    ),
    ("it rises with no k by more than 5 points", lambda shares, straight: _never_rises(shares)),
)
AS_THE_PAIR_RULE = Statement(
    "against the pair rule on these lanes without chance",
    ("within 10 %", lambda off: off <= 0.1),
    ("20 %", lambda off: off <= 0.2),
)
THRASHES = Statement(
    "shortest delta_min, no external load",
    ("at most 75 % of static", lambda share: share <= 0.75),
    ("below static", lambda share: share < 1),
)
CROSSING = Statement(
    "no external load: better than static",
    ("from a delta_min on that is not the shortest", lambda from_s, shortest_s: shortest_s < from_s < math.inf),
    ("from any", lambda from_s, shortest_s: math.isfinite(from_s)),
)
CROSSING_LOADED = Statement(
    "the hottest lane loaded: better than static without load",
    (
        "from no longer delta_min on than without load",
        lambda from_s, unloaded_s, best, static, loaded: from_s < math.inf and from_s <= unloaded_s,
    ),
    (
        "it comes nearer to static without load than to static with load",
        lambda from_s, unloaded_s, best, static, loaded: best > (static + loaded) / 2,
    ),
)

_SHARES = "Shares are of what the lanes' limits add up to."
SPARK_RULES: dict[str, Rule] = {
    "AF-E1": OFF,
    "AF-E2": ON,
    "AF-E3": OFF,
    "AF-E4": ON,
    "AF-E5": OFF,
    "AF-E6": ON,
    "AF-E7": OFF,
    "AF-E8": ON,
    "AF-E9": Rule((GREATLY_REDUCED,)),
    "AF-E10": Rule((REDUCED, SMALLER_GAIN), "The long spike is twice as long."),
    "AF-E11": Rule((MOST_RELIEVED, REDUCED)),
    "AF-E12": Rule((SOME_RELIEVED, REDUCED)),
    "LR-E1": Rule((BINS_MOVED, PEAK_FACTOR)),
    "LR-E2": Rule((BINS_MOVED, PEAK_FACTOR, STEPS, BATCHED_BELOW)),
    "LR-E3": Rule((BATCHED_LOWER, NO_EARLIER)),
    "GZ-E3": Rule((ORDER, CLB_LEAST_EVEN, SIZE)),
    "GZ-E4": Rule((MOVEMENT_ORDER, CLB_AMORTISED, MOVED)),
    "GZ-E7": Rule((LINEAR, HASHING_FURTHER, CLB_LAST, ELASTIC)),
    "FX-E1": Rule((NO_BUFFER, GROWING_BUFFER, AGAINST_LOCK_STEP), _SHARES),
    "FX-E2": Rule((FELT, FALLS, RECOVERS, SLOTS_LEFT, STEADY_AGAIN), _SHARES),
    "FX-E3": Rule((STATIC_STAYS, SMOOTH, AS_THE_PAIR_RULE), _SHARES),
    "FX-E4": Rule((THRASHES, CROSSING, CROSSING_LOADED)),
}


def _never_rises(shares: list[float]) -> bool:
    return all(later <= earlier + 0.05 for earlier, later in pairwise(shares))


def _rises_and_falls(lanes: list[int]) -> bool:
    top = lanes.index(max(lanes))
    return ascending(lanes[: top + 1]) and ascending(lanes[top:][::-1]) and lanes[0] < lanes[top] > lanes[-1]


def _ahead(ones: list[float], others: list[float], done: float) -> list[bool]:
    return [one > other or min(one, other) >= done for one, other in zip(ones, others, strict=True)]
