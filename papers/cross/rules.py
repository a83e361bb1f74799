"""By what rule the cross table is judged."""

from __future__ import annotations

from papers.cross.misses import CLOSE, LEAST_S
from papers.rules import Rule, Statement

_NEAR = 2.0
_BEST = (f"within {CLOSE - 1:.0%} of the best policy's", lambda times: times <= CLOSE)
_GOOD = (f"within a factor of {_NEAR:g}", lambda times: times <= _NEAR)

NONE_LOST = Statement("records lost, in every run", ("none is", lambda lost: lost == 0))
NEAR_THE_BEST = Statement("p99 latency of `even` on each load, handed over at once and paced", _BEST, _GOOD)
NEAR_THE_BEST_BY_WAY = Statement(
    "p99 latency of `even` by each way to hand over, the worst of all strategies and loads", _BEST, _GOOD
)
RULE = Rule(
    (NONE_LOST, NEAR_THE_BEST, NEAR_THE_BEST_BY_WAY),
    f"At once and paced are the defaults. What is below {LEAST_S:g} s counts as {LEAST_S:g} s. By way, loads and "
    "strategies count for which all policies were run.",
)
