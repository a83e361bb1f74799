"""By what rules the experiments on reconfiguration are judged in the simulator."""

from __future__ import annotations

import math

from papers.rules import Rule, Statement
from papers.verdicts import ascending

_STABLE = "Stable: highest latency per 250 ms under twice the normal one (or one epoch) for 1 s."

SAME_MAP = Statement(
    "all move the same bins and end with the same map (LR-M7)",
    ("every migration is complete", lambda complete: all(complete)),  # noqa: PLW0108 - each condition is a lambda
)

# --- LR-E1 to E3 -----------------------------------------------------------------------------------------------------

PEAK_FACTOR = Statement(
    "peak latency of sudden over that of fluid",
    ("at least 100 times", lambda factor: factor >= 100),
    ("10 times", lambda factor: factor >= 10),
)
FLUID_STABLE = Statement(
    "time to a stable latency, fluid against sudden",
    ("fluid is stable no later", lambda fluid_s, sudden_s: fluid_s <= sudden_s),
    ("within 25 %", lambda fluid_s, sudden_s: fluid_s <= 1.25 * sudden_s),
)
E1 = Rule((SAME_MAP, PEAK_FACTOR, FLUID_STABLE), _STABLE)

STEPS = Statement(
    "steps of sudden, fluid and batched", ("there are exactly 1, 128 and 32", lambda steps: list(steps) == [1, 128, 32])
)
SUDDEN_NO_LONGER = Statement(
    "sudden takes no longer than with a quarter of the keys (E1)",
    ("it is at most 25 % longer than E1's pause", lambda took_s, before_s: took_s <= 1.25 * before_s),
    ("50 %", lambda took_s, before_s: took_s <= 1.5 * before_s),
)
DURATIONS = Statement(
    "duration: batched as sudden, fluid far longer",
    (
        "batched takes at most 1.5 times as long as sudden and fluid at least twice as long as batched",
        lambda sudden, batched, fluid: batched <= 1.5 * sudden and fluid >= 2 * batched,
    ),
    ("that is their order", lambda sudden, batched, fluid: sudden < batched < fluid),
)
PEAKS = Statement(
    "peak latency: batched as fluid, both far below sudden",
    (
        "batched's is at most 1.5 times fluid's and a tenth of sudden's",
        lambda sudden, fluid, batched: batched <= 1.5 * fluid and sudden >= 10 * batched,
    ),
    ("batched's is below sudden's", lambda sudden, fluid, batched: batched < sudden),
)
E2 = Rule((SAME_MAP, STEPS, SUDDEN_NO_LONGER, DURATIONS, PEAKS))

BATCHED_LOWER = Statement(
    "peak latency, batched against sudden",
    ("batched's is below", lambda batched, sudden: batched < sudden),
    ("within 25 %", lambda batched, sudden: batched <= 1.25 * sudden),
)
NO_EARLIER = Statement(
    "time to a stable latency, batched against sudden",
    (
        "batched is stable NO earlier: the paper's negative result stays negative",
        lambda batched_s, sudden_s: not math.isnan(sudden_s) and not batched_s < sudden_s,
    ),
    (
        "neither is stable within the run, which shows nothing",
        lambda batched_s, sudden_s: math.isnan(batched_s) and math.isnan(sudden_s),
    ),
)
AT_ONCE = Statement(
    "LR-F2: batched, each bin leaves at once with what waits for it, a step every 0.2 s",
    (
        "peak and time to stable are no worse than batched's",
        lambda peak, batched, stable_s, batched_s: peak <= batched and not stable_s > batched_s,
    ),
    ("the peak is no worse", lambda peak, batched, stable_s, batched_s: peak <= batched),
)
E3 = Rule(
    (SAME_MAP, BATCHED_LOWER, NO_EARLIER, AT_ONCE), f"{_STABLE} Normal is what eight workers have under the same wave."
)

# --- LR-E4 to E7 -----------------------------------------------------------------------------------------------------

EXACTLY = Statement(
    "the example of the text",
    (
        "owners, moved states, places of application and final states are those of the text, each",
        lambda ours, published: ours == published,
    ),
)
E4 = Rule((EXACTLY,))

WAITING_FALLS = Statement(
    "latency added by the router falls with the horizon",
    (
        "it never rises with the horizon and ends at no more than 0.5 ms, from more",
        lambda added: ascending(added[::-1]) and added[-1] <= 0.5 < added[0],
    ),
    ("it falls", lambda added: added[-1] < added[0]),
)
REACTION_RISES = Statement(
    "reaction to a new reconfiguration rises by the same",
    (
        (
            "from where the horizon exceeds the interval and the delay of control messages, each ms of it costs a ms "
            "within 10 %"
        ),
        lambda slope, first, last: abs(slope - 1) <= 0.1,
    ),
    ("it rises", lambda slope, first, last: last > first),
)
E5 = Rule((WAITING_FALLS, REACTION_RISES))

PEAK_FALLS = Statement(
    "peak latency falls with the number of bins",
    ("at every step of the sweep", lambda peaks: ascending(peaks[::-1])),
    ("to a tenth in all", lambda peaks: peaks[-1] < peaks[0] / 10),
)
DURATION_RISES = Statement(
    "duration rises with the number of bins",
    ("at every step of the sweep", lambda spans: ascending(spans)),  # noqa: PLW0108 - as above
    ("in all", lambda spans: spans[-1] > spans[0]),
)
SAME_SHARES = Statement(
    "all end with the same share of keys on each worker",
    ("every migration is complete", lambda complete: all(complete)),  # noqa: PLW0108 - as above
)
E6 = Rule((PEAK_FALLS, DURATION_RISES, SAME_SHARES))

HALTING_PEAK = Statement(
    "peak latency, halting all against sudden", ("no lower", lambda halted, sudden: halted >= sudden)
)
OTHERS_SERVED = Statement(
    "records that workers without any moved bin serve in the first second, halting all against a part",
    ("less than a tenth", lambda halted, part: halted < 0.1 * part),
    ("less", lambda halted, part: halted < part),
)
EXTERNAL_STATE = Statement(
    "external state: no pause, but each record pays",
    (
        "the peak is below fluid's and a record costs more than 1.5 times as much",
        lambda peak, fluid, cost: peak < fluid and cost > 1.5,
    ),
    ("a record costs more", lambda peak, fluid, cost: cost > 1),
)
E7 = Rule((HALTING_PEAK, OTHERS_SERVED, EXTERNAL_STATE))
