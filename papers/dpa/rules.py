"""By what rules the experiments on the DPA load balancer are judged."""

from __future__ import annotations

from papers.rules import Rule, Statement

_NEAR = 0.05 + 1e-9  # values have two digits

FIRM_CELL = Statement(
    "a cell whose value does not depend on the order of ties",
    ("it is the published value to two digits in every order", lambda values, published: list(values) == [published]),
    ("a value is within 0.05 of it", lambda values, published: _nearest(values, published) <= _NEAR),
)
FREE_CELL = Statement(
    "a cell whose value depends on the order of ties",
    (
        "the published value is among those that some order gives, one round per reducer or in all",
        lambda values, published: published in values,
    ),
    ("one of them is within 0.05 of it", lambda values, published: _nearest(values, published) <= _NEAR),
)
E1 = Rule((FIRM_CELL,))
E2 = Rule((FIRM_CELL, FREE_CELL), "The first kind are six cells: WL1 doubling, WL2 both, WL3 both, WL4 halving.")
E3 = Rule((FIRM_CELL, FREE_CELL), "As DP-E2, on the difference to DP-E1.")

MORE_ROUNDS_HELP = Statement(
    "more than one round helps at least one method",
    ("on all workloads", lambda helped, workloads: helped == workloads),
    ("on three of five", lambda helped, workloads: helped >= 3),
)
NEVER_HURT_HALVING = Statement(
    "more rounds never hurt halving",
    ("S rises after round 1 on no workload", lambda hurt, worse: not hurt),
    ("five rounds never end worse than one", lambda hurt, worse: not worse),
)
CAN_HURT_DOUBLING = Statement(
    "more rounds can hurt doubling",
    ("S rises after round 1 on some workload", lambda hurt: bool(hurt)),  # noqa: PLW0108 - a list
)
E4 = Rule((MORE_ROUNDS_HELP, NEVER_HURT_HALVING, CAN_HURT_DOUBLING), "Three statements of 6.4, each on all workloads.")

CORRELATED = Statement(
    "wall time against S",
    ("the coefficient of correlation is at least +0.8", lambda coefficient: coefficient >= 0.8),
    ("+0.5", lambda coefficient: coefficient >= 0.5),
)
E5 = Rule((CORRELATED,))

SMALL_VARIANCE = Statement(
    "variance of S over 3 repetitions",
    ("no cell varies by more than 0.01", lambda worst: worst <= 0.01),
    ("0.03", lambda worst: worst <= 0.03),
)
E6 = Rule((SMALL_VARIANCE,), "Repetitions differ in the order of ties and in 0 to 20 ms on the way of each item.")

MERGED = Statement(
    "merged counts equal the plain counts of the input",
    ("for every workload, method and number of rounds", lambda wrong: not wrong),
)
MERGED_AT_SCALE = Statement(
    "the same with many items",
    ("for both methods", lambda right: all(right)),  # noqa: PLW0108 - as above
)
E7 = Rule((MERGED, MERGED_AT_SCALE))

LOOK_UP = Statement(
    "look-up of 26 keys on 3 nodes with 2 tokens each",
    ("binary search finds for each the node that a walk clockwise finds", lambda agree, keys: agree == keys),
)
E8 = Rule((LOOK_UP,))


def _nearest(values: list[float], published: float) -> float:
    return min(abs(value - published) for value in values)
