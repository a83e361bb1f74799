"""By what rules AutoFlow's experiments are judged in the simulator."""

from __future__ import annotations

from papers.rules import Rule, Statement, close

GREATLY = 0.5
LAST_S = 10.0

# --- skew that stays, off (E1, E3, E5, E7) ---------------------------------------------------------------------------

BACKLOG = Statement("backlog of a hot reducer", *close(0.05, 1.5, " of share * rate - capacity"))
LATENCY_RISES = Statement("latency on a hot reducer", ("it rises in every run", lambda slowest: slowest > 0))
HOT_THROUGHPUT = Statement(
    "throughput of hot and other reducers",
    ("each hot one is at 98 % of its capacity", lambda hot, others, capacity: hot >= 0.98 * capacity),
    ("each hot one is above all others", lambda hot, others, capacity: hot > others),
)
OTHERS_FLAT = Statement(
    "backlog of the others",
    ("it grows by at most 1 % of a capacity", lambda most, capacity: most <= 0.01 * capacity),
)
OFF = Rule((BACKLOG, LATENCY_RISES, HOT_THROUGHPUT, OTHERS_FLAT))

# --- the same, on (E2, E4, E6, E8) -----------------------------------------------------------------------------------

SHARES = Statement(
    "shares of the load after each migration",
    (
        "in all runs they are those that Algorithm 3 gives for equally loaded slots, within half a percentage point",
        lambda right, spreads, factor: all(right),
    ),
    ("all end with (max - min)/max below the factor", lambda right, spreads, factor: max(spreads) < factor),
)
ENDS_EVEN = Statement(
    "(max - min)/max in the end", ("below the factor in all runs", lambda spreads, factor: max(spreads) < factor)
)
FIRST_MIGRATION = Statement(
    "the first migration",
    (
        "it is announced by the end of the second window, and a second",
        lambda firsts, window_s: bool(firsts) and max(firsts) <= 2 * window_s + 1,
    ),
    ("there is one", lambda firsts, window_s: bool(firsts)),
)
SOLVED = Statement(
    f"99 % latency of the last {LAST_S:.0f} s",
    (
        "at most twice that of an even load, or 0.1 s above it",
        lambda last, even, without: last <= max(2 * even, even + 0.1),
    ),
    ("less than half of that without balancing", lambda last, even, without: last < 0.5 * without),
)
SLIGHT_SPIKES = Statement(
    "migrations seen in the latency",
    ("at each some record waits for its state, none longer than 2 s", lambda least, most: least > 0 and most <= 2),
    ("at each some record waits", lambda least, most: least > 0),
)
ON = Rule((SHARES, ENDS_EVEN, FIRST_MIGRATION, SOLVED, SLIGHT_SPIKES))

# --- spikes (E9, E10) ------------------------------------------------------------------------------------------------

AREA_REDUCED = Statement(
    "area under the latency",
    ("the small window takes away half of it in every run", lambda least: least >= GREATLY),
    ("it takes away some", lambda least: least > 0),
)
PEAK_REDUCED = Statement(
    "peak of the latency",
    ("the small window takes away half of it in every run", lambda least: least >= GREATLY),
    ("it takes away some", lambda least: least > 0),
)
SMALL_BEATS_LARGE = Statement(
    "small against large window",
    (
        "the small one takes away more of the area in every run",
        lambda small, large: all(one > other for one, other in zip(small, large, strict=True)),
    ),
)
E9 = Rule(
    (AREA_REDUCED, PEAK_REDUCED, SMALL_BEATS_LARGE), "Three arms on the same records: off, window 5 s, window 2 s."
)
SHORT_IMPROVED = Statement("improvement on a spike of 10 s", ("there is one in every run", lambda least: least > 0))
SHORT_LESS = Statement(
    "against the spike of 20 s, though the window is smaller still",
    (
        "the improvement is smaller in every run: a short spike that is cured as well as a long one differs",
        lambda short, long: max(short) < min(long),
    ),
)
E10 = Rule((SHORT_IMPROVED, SHORT_LESS), "With a window of 1 s; the spike of 20 s is that of AF-E9.")

# --- hotspots that wander (E11, E12) ---------------------------------------------------------------------------------

HOTSPOTS = "hotspots relieved: latency at most half of that off"
MOST_RELIEVED = Statement(
    HOTSPOTS,
    ("all but one per run at least", lambda relieved, episodes, runs: episodes - relieved <= runs),
    ("more than half of the episodes", lambda relieved, episodes, runs: relieved > GREATLY * episodes),
)
SOME_RELIEVED = Statement(
    HOTSPOTS,
    (
        "some episodes are and some are not: the paper's partial success must stay partial",
        lambda relieved, episodes: 0 < relieved < episodes,
    ),
)
TOTAL_LESS = Statement(
    "area under the latency in total", ("it is less than off in every run", lambda least_gain: least_gain > 0)
)
WORSE_THAN_HALF = Statement(
    "against a hotspot of 50 %", ("the mean latency off is higher", lambda mean, half: mean > half)
)
_EPISODE = "An episode is relieved if the mean latency of its records is at most half of that off."
E11 = Rule((MOST_RELIEVED, TOTAL_LESS), _EPISODE)
E12 = Rule((SOME_RELIEVED, TOTAL_LESS, WORSE_THAN_HALF), _EPISODE)

# --- alternatives, costs, who waits (E13 to E15) ----------------------------------------------------------------------

TRAFFIC = Statement(
    "traffic to the reducers",
    ("both techniques send fewer messages than there are records", lambda shares: max(shares) < 1),
)
BATCH_LATENCY = Statement(
    "latency", ("both have a median of at least half a batch", lambda medians, batch_s: min(medians) >= batch_s / 2)
)
HOTSPOT_EASED = Statement(
    "the hotspot", ("the highest latency is below half of that without", lambda most, without: most < 0.5 * without)
)
REFUSED = Statement(
    "operators other than reduce",
    ("both techniques refuse join and event-time window", lambda refused, techniques: set(refused) == {techniques}),
)
E13 = Rule((TRAFFIC, BATCH_LATENCY, HOTSPOT_EASED, REFUSED))
SAME_RATE = Statement(
    "throughput with empty control messages",
    ("at most 2 % less, also if each costs a lane as much as a record", lambda most_lost: most_lost <= 0.02),
)
SAME_LATENCY = Statement(
    "mean latency with empty control messages",
    ("at most 2 % more, also if each costs a lane as much as a record", lambda free, dear: max(free, dear) <= 0.02),
    ("at most 2 % more if they cost nothing", lambda free, dear: free <= 0.02),
)
NONE_HELD = Statement("records held up", ("none is", lambda held: held == 0))
E14 = Rule((SAME_RATE, SAME_LATENCY, NONE_HELD), "Against a run without control messages.")
ONLY_MIGRATED_WAIT = Statement(
    "records that wait in AutoFlow",
    ("some wait, and only of migrated slots", lambda waiting, strangers: strangers == 0 < waiting),
)
FEWER_WAIT = Statement(
    "against halting and blocking",
    ("fewer wait than with blocked channels and than with a halted graph", lambda ours, others: ours < others),
    ("no more wait", lambda ours, others: ours <= others),
)
E15 = Rule((ONLY_MIGRATED_WAIT, FEWER_WAIT), "The same migrations by every protocol.")
