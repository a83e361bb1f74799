"""By what rules Guo's and Zhou's experiments are judged in the simulator. Values are medians over the seeds."""

from __future__ import annotations

from papers.rules import Rule, Statement, close
from papers.verdicts import MARGIN, ascending

# --- GZ-E1, E2 -------------------------------------------------------------------------------------------------------

MEAN_ON_STREAM = Statement("mean of var(L)", *close(0.05, 1.25, " of the published one, on S1 and on S2"))
DEVIATION_ON_STREAM = Statement(
    "standard deviation of var(L)", *close(0.25, 10.0, " of the published one, on S1 and on S2")
)
ZIPF_FLUCTUATES = Statement(
    "Zipf fluctuates more than Gaussian (GZ-A23)", ("its deviation is larger", lambda zipf, gaussian: zipf > gaussian)
)
EXTREMES = Statement(
    "highest and lowest point are on Zipf",
    ("in all seeds", lambda inside: all(inside)),  # noqa: PLW0108 - each condition is a lambda
    ("in half of them", lambda inside: 2 * sum(inside) >= len(inside)),
)
E1 = Rule((MEAN_ON_STREAM, DEVIATION_ON_STREAM, ZIPF_FLUCTUATES, EXTREMES))
FLUCTUATES_BY_EACH = Statement(
    "Zipf fluctuates more for n = 5, 10, 15",
    ("for all three n, by each of the paper's four", lambda ratios: min(ratios) > 1),
    ("for two", lambda ratios: sum(ratio > 1 for ratio in ratios) >= 2),
)
MEANS_EQUAL = Statement(
    "clb: the means of S1 and S2 are about equal for n = 5, 10, 15",
    ("within 10 %", lambda ratios: max(abs(ratio - 1) for ratio in ratios) <= 0.1),
    ("50 %", lambda ratios: max(abs(ratio - 1) for ratio in ratios) <= 0.5),
)
E2 = Rule((FLUCTUATES_BY_EACH, MEANS_EQUAL))

# --- GZ-E3, E4 -------------------------------------------------------------------------------------------------------

ORDER = Statement(
    "order of the mean and of the standard deviation of var(L)",
    ("UHLB <= PKG <= ELB <= CLB, by each", lambda uhlb, pkg, elb, clb: ascending([uhlb, pkg, elb, clb])),
)
SIZE = Statement(
    "mean and standard deviation of var(L)", *close(0.25, 10.0, " of the published ones, each of each algorithm")
)
RANGE_EXISTS = Statement(
    "a range [v, u] exists with which ELB lies between PKG, UHLB and CLB",
    ("there is one among those tried", lambda fits: bool(fits)),  # noqa: PLW0108 - as above
)
E3 = Rule((ORDER, SIZE, RANGE_EXISTS))
MOVED = Statement("state moved per balancing (%)", *close(0.25, 2.0, " of the published share, of each algorithm"))
AMORTISED = Statement("CLB amortised over all windows (%)", *close(0.25, 2.0, " of the published share"))
MOVEMENT_ORDER = Statement(
    "order of movement",
    (
        "CLB amortised <= ELB <= PKG <= UHLB",
        lambda amortised, elb, pkg, uhlb: ascending([amortised, elb, pkg, uhlb]),
    ),
    ("the last three are in order", lambda amortised, elb, pkg, uhlb: ascending([elb, pkg, uhlb])),
)
FRONT = Statement(
    "no policy is better in both objectives than all others: the front",
    ("more than one policy is on it", lambda front: len(front) > 1),
)
E4 = Rule((MOVED, AMORTISED, MOVEMENT_ORDER, FRONT))

# --- GZ-E5, E6 -------------------------------------------------------------------------------------------------------

BELOW = Statement(
    "latency: CLB and ELB below PKG and UHLB",
    (
        "so it is in maximum, mean, median and 95th percentile, each",
        lambda clb, elb, pkg, uhlb: max(clb, elb) < min(pkg, uhlb),
    ),
    ("ELB is", lambda clb, elb, pkg, uhlb: elb < min(pkg, uhlb)),
)
MAXIMUM_OVER_MEAN = Statement(
    "maximum over mean",
    ("300 or more for all four", lambda clb, elb, pkg, uhlb: min(clb, elb, pkg, uhlb) >= 300),
    ("30 or more for ELB", lambda clb, elb, pkg, uhlb: elb >= 30),
)
ORDER_KEPT = Statement(
    "pause and replay: nothing lost, order of each substream kept",
    ("in every run", lambda kept: bool(kept)),  # noqa: PLW0108
)
E5 = Rule((BELOW, MAXIMUM_OVER_MEAN, ORDER_KEPT))
FLUCTUATION = Statement(
    "PKG and UHLB fluctuate more than CLB and ELB (sd of log ratio over n)",
    ("more than both", lambda clb, elb, pkg, uhlb: max(clb, elb) < min(pkg, uhlb)),
    ("more than ELB", lambda clb, elb, pkg, uhlb: elb < min(pkg, uhlb)),
)
E6 = Rule((FLUCTUATION,))

# --- GZ-E7 to E9 -----------------------------------------------------------------------------------------------------

LINEAR = Statement(
    "ELB, and CLB, are nearly linear",
    ("tuples served per second are within 5 % of linear, of each", lambda off: off <= 0.05),
    ("20 %", lambda off: off <= 0.2),
)
HASHING_FURTHER = Statement(
    f"PKG and UHLB are further from linear than ELB, by {MARGIN:.0%} at least",
    ("both are", lambda pkg, uhlb, elb: min(pkg, uhlb) - elb >= MARGIN),
    ("UHLB is", lambda pkg, uhlb, elb: uhlb - elb >= MARGIN),
)
CLB_LAST = Statement(
    f"with the most lanes ELB, PKG and UHLB beat CLB by {MARGIN:.0%} of linear at least (a negative result)",
    (
        "all three do",
        lambda clb, elb, pkg, uhlb, lanes: (min(elb, pkg, uhlb) - clb) / lanes >= MARGIN,
    ),
    ("ELB does", lambda clb, elb, pkg, uhlb, lanes: (elb - clb) / lanes >= MARGIN),
)
ELASTIC = Statement(
    "ELB adds and retires lanes as the load rises and falls: pi = ceil(2w / (u+v)), no load lost",
    ("in every window of every run", lambda right, lost: right and lost <= 0),
)
E7 = Rule((LINEAR, HASHING_FURTHER, CLB_LAST, ELASTIC))
INTERIOR = Statement(
    "throughput (1 / mean latency) is best at an interior 1/f",
    (
        "the best is neither the smallest nor the largest tried, for CLB and for clb-moment",
        lambda rates: 0 < rates.index(max(rates)) < len(rates) - 1,
    ),
)
MOVEMENT_FALLS = Statement(
    "state moved per window falls as 1/f grows (GZ-M6)",
    ("at every step, of both", lambda clb, moment: all(ascending(values[::-1]) for values in (clb, moment))),
    ("to a quarter in all", lambda clb, moment: all(values[-1] < values[0] / 4 for values in (clb, moment))),
)
ONE_BALANCING = Statement(
    "GZ-F1: one change, one balancing, in the first window that can know of it",
    ("in all seeds", lambda prompt: all(prompt)),  # noqa: PLW0108 - as above
    ("in nine of ten", lambda prompt: sum(prompt) >= 0.9 * len(prompt)),
)
FEWER_MOVES = Statement(
    "GZ-F1: state moved and imbalance, on change over every window",
    ("less moves and imbalance is at most 10 % more", lambda moved, imbalance: moved < 1 and imbalance <= 1.1),
    ("less moves", lambda moved, imbalance: moved < 1),
)
E8 = Rule((INTERIOR, MOVEMENT_FALLS, ONE_BALANCING, FEWER_MOVES))
WORKED_EXAMPLE = Statement(
    "Y = (1, 2, 3, 6) on 2 lanes: var before, var after, psi; psi of no state",
    ("4, 25, 3, 0", lambda values: list(values) == [4.0, 25.0, 3.0, 0.0]),
)
FORMULA = Statement("the equations, written out", ("each agrees to 12 digits", lambda apart: apart <= 1e-12))
E9 = Rule((WORKED_EXAMPLE, FORMULA))
