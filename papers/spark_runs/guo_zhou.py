"""GZ-E3, E4 and E7 on Spark, scaled: 4 and up to 8 lanes, windows of an epoch, the stand-in for the Twitter stream.

A window is one file of the stream, whatever the machine needs for it, so its histogram is known: the same policies on
the same histograms, without an engine, stand next to what lanes did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import methodcaller
from typing import Any

import numpy as np

from evenflow.model import RoutingTable
from evenflow.model.balance import variance
from evenflow.model.slots import FloatArray
from evenflow.plot.picture import Panel, Picture, Series
from evenflow.policies import Policy
from papers.experiment import Check, Outcome, Settings
from papers.guo_zhou.histograms import Trace, policy_with_seed, run_policy
from papers.guo_zhou.rules import CLB_LAST, HASHING_FURTHER
from papers.guo_zhou.streams import SUBSTREAMS, Words
from papers.guo_zhou.trade import why_out_of_order
from papers.spark_runs.rules import (
    CLB_AMORTISED,
    CLB_LEAST_EVEN,
    ELASTIC,
    LINEAR,
    MOVED,
    MOVEMENT_ORDER,
    ORDER,
    SIZE,
)
from papers.spark_runs.run import (
    WARM_UP_FILES,
    SparkRun,
    SparkScenario,
    decide_by,
    limited,
    local_spark,
    run_on_spark,
    warm_spark,
)
from papers.spark_runs.workload import HotPhase, SlotShares
from papers.verdicts import MARGIN, ascending

FOUR = ("clb", "elb", "pkg", "uhlb")
_ORDER = ("uhlb", "pkg", "elb", "clb")
_WINDOW_S = 0.5
_KEYS = 5_000
_STAND_IN = "The Twitter data is not available: words of a Zipf 1.0 vocabulary with a daily wave, in 100 slots."


def _words(settings: Settings, windows: int, stop_words: int = 0, day: float | None = None) -> SlotShares:
    """Return the stand-in: how much each substream gets, window by window."""
    random = np.random.default_rng((settings.seed, 3))
    rates = Words(stop_words).rates(windows, random, *(() if day is None else (day,)))
    return lambda number: np.asarray(rates[min(number, windows - 1)])


# --- E3 and E4: imbalance against movement ----------------------------------------------------------------------------

_TRADE_LANES = 4
_PER_WINDOW = 2_000.0


@dataclass(frozen=True)
class Traded:
    """A policy on Spark and on the same histograms: var(L) and the share of the state moved, window by window."""

    run: SparkRun
    history: int
    model: Trace

    @property
    def variance(self) -> FloatArray:
        """var(L) of each window after the first `history`, by the rows that lanes served."""
        return np.array([variance(row) for row in self.run.rows[self.history :]])

    @property
    def moved(self) -> FloatArray:
        """The share of the state moved with each window after the first `history`; state is in proportion to rows.

        Moves that are announced with a window weigh by that window's histogram (GZ-P7).
        """
        found = np.zeros(len(self.run.epochs))
        at = {epoch: index for index, epoch in enumerate(self.run.epochs)}
        for move in self.run.moves:
            if move["epoch"] in at:
                rows = self.run.histograms[at[move["epoch"]]]
                found[at[move["epoch"]]] += rows[move["slot"]] / max(1, int(rows.sum()))
        return found[self.history :]

    @property
    def moved_when_balanced(self) -> float:
        """The share moved per balancing, 0 if there was none."""
        moved = self.moved
        return float(moved[moved > 0].mean()) if moved.any() else 0.0


def _policy(name: str, seed: int, history: int) -> Policy:
    spans = {"history": history, "period": history} if name == "clb" else {}
    return policy_with_seed(name, seed, **spans)


def _traded(settings: Settings) -> dict[str, Traded]:
    """Run the four on Spark, and on the histograms of what they were given."""
    history, windows = (8, 24) if settings.quick else (24, 60)
    shares = _words(settings, history + windows)
    seen = WARM_UP_FILES + history  # windows before the first decision: those of the warm-up are not looked at
    found = {}
    with local_spark(_TRADE_LANES) as spark:
        for at, name in enumerate(FOUR):
            scenario = SparkScenario(
                lanes=_TRADE_LANES,
                slots=SUBSTREAMS,
                capacity=_PER_WINDOW / _WINDOW_S,  # one lane could serve all: what is measured is who does
                rate=_PER_WINDOW / _WINDOW_S,
                seconds=(history + windows) * _WINDOW_S,
                policy=_policy(name, settings.seed, history),
                strategy="sudden",
                keys=_KEYS,
                seed=settings.seed,
                balancer={"settle_windows": 0, "warm_up_windows": seen, "history": seen},
                drain=True,
                shares=shares,
                file_s=_WINDOW_S,
                files_per_epoch=1,
            )
            run = run_on_spark(spark, scenario)
            found[name] = Traded(run, history, _on_histograms(name, run, history, settings.seed))
            settings.progress((at + 1) / len(FOUR))
    return found


def _on_histograms(name: str, run: SparkRun, history: int, seed: int) -> Trace:
    table = RoutingTable.even(SUBSTREAMS, _TRADE_LANES)
    return run_policy(_policy(name, seed, history), run.histograms[: len(run.epochs)], table, history)


def _trade_note(found: dict[str, Traded]) -> str:
    one = found["clb"]
    return (
        f"{limited(one.run.scenario)} {_STAND_IN} {_TRADE_LANES} lanes, not 10; {_PER_WINDOW:,.0f} rows per window of "
        f"{_WINDOW_S:g} s, {one.history} windows to learn from and {len(one.variance)} to measure; CLB every "
        f"{one.history} windows. What is decided on a window takes effect some windows later, and windows in which "
        f"slots move are not decided on."
    )


def run_e3(settings: Settings) -> Outcome:
    """GZ-E3: mean and standard deviation of var(L)."""
    found = _traded(settings)
    panel = Panel(
        f"Load imbalance over time, n = {_TRADE_LANES}",
        f"statistic window ({_WINDOW_S:g} s each)",
        "var(L) (rows²)",
        [Series(name, list(range(1, one.variance.size + 1)), one.variance.tolist()) for name, one in found.items()],
        log_y=True,
    )
    data = {
        name: {
            **one.run.as_dict(),
            "variance": one.variance,
            "variance_on_histograms": one.model.variance,
            "mean": float(one.variance.mean()),
            "sd": float(one.variance.std()),
        }
        for name, one in found.items()
    }
    picture = Picture([panel], columns=1)
    return Outcome(imbalance_checks(found), picture, data, _trade_note(found), seeds=(settings.seed,))


def imbalance_checks(found: dict[str, Traded]) -> tuple[Check, ...]:
    """Compare the orders with the published ones, and the sizes with the histogram level."""
    mean = {name: float(found[name].variance.mean()) for name in FOUR}
    deviation = {name: float(found[name].variance.std()) for name in FOUR}
    return (
        _order_check("mean", "uhlb 2.9e4 <= pkg 3.1e4 <= elb 5.1e4 <= clb 6.1e4", mean),
        _order_check("standard deviation", "uhlb 770 <= pkg 1019 <= elb 1807 <= clb 5134", deviation),
        CLB_LEAST_EVEN.check(
            (mean["clb"], [mean[name] for name in FOUR[1:]]),
            "yes, by mean and deviation",
            f"mean {mean['clb']:.3g} against {max(mean[name] for name in FOUR[1:]):.3g} of the next",
            "its cut fits these few windows by chance",
        ),
        *(_size_check(name, mean[name], float(found[name].model.variance.mean())) for name in FOUR),
    )


def _order_check(what: str, published: str, ours: dict[str, float]) -> Check:
    return ORDER.check(
        (*(ours[name] for name in _ORDER),),
        published,
        " <= ".join(f"{name} {ours[name]:.3g}" for name in sorted(FOUR, key=ours.__getitem__)),
        why_out_of_order(ours),
        f"order of the {what} of var(L)",
    )


def _size_check(name: str, ours: float, model: float) -> Check:
    return SIZE.check(
        (ours, model),
        f"(computed: {model:.3g})",
        f"{ours:.3g}",
        (
            "on Spark a decision takes effect some windows after the one it was made on, so a policy is asked less "
            "often and learns from other windows"
        ),
        f"{name}: mean of var(L), against the same policy on the same histograms without an engine",
    )


def run_e4(settings: Settings) -> Outcome:
    """GZ-E4: state movement."""
    found = _traded(settings)
    picture = Picture(
        [
            Panel(
                f"State movements over time, n = {_TRADE_LANES}",
                f"statistic window ({_WINDOW_S:g} s each)",
                "state moved (%)",
                [
                    Series(name, list(range(1, len(one.moved) + 1)), (100 * one.moved).tolist())
                    for name, one in found.items()
                ],
            ),
            Panel(
                "Both objectives",
                "state moved per window (%)",
                "mean of var(L) (rows²)",
                [
                    Series(name, [100 * float(one.moved.mean())], [float(one.variance.mean())], "points")
                    for name, one in found.items()
                ],
                log_y=True,
            ),
        ]
    )
    data = {
        name: {
            **one.run.as_dict(),
            "moved": one.moved,
            "per_balancing": one.moved_when_balanced,
            "amortised": float(one.moved.mean()),
            "per_balancing_on_histograms": one.model.moved_when_balanced,
            "amortised_on_histograms": float(one.model.moved.mean()),
            "keys_moved": int(sum(one.run.slot_keys[move["slot"]] for move in one.run.moves)),
        }
        for name, one in found.items()
    }
    return Outcome(movement_checks(found), picture, data, _trade_note(found), seeds=(settings.seed,))


def movement_checks(found: dict[str, Traded]) -> tuple[Check, ...]:
    """Compare the order with the published one, and the sizes with the histogram level."""
    percent = {name: 100 * one.moved_when_balanced for name, one in found.items()}
    model = {name: 100 * one.model.moved_when_balanced for name, one in found.items()}
    clb = 100 * float(found["clb"].moved.mean())
    in_order = ascending([percent[name] for name in ("elb", "pkg", "uhlb")])
    return (
        MOVEMENT_ORDER.check(
            (clb, *(percent[name] for name in ("elb", "pkg", "uhlb"))),
            "CLB amortised 1.6 << ELB 14.5 < PKG 21.2 < UHLB 24.2",
            f"CLB amortised {clb:.3g}, ELB {percent['elb']:.3g}, PKG {percent['pkg']:.3g}, UHLB {percent['uhlb']:.3g}",
            (
                "CLB's cuts are amortised over few windows here, and ELB corrects only noise after its first windows"
                if in_order
                else "ELB, PKG and UHLB are not in this order: when UHLB replaces its function (GZ-A32) and how PKG's "
                "movement is counted (GZ-A33) is not given"
            ),
        ),
        CLB_AMORTISED.check(
            (clb, percent["clb"], [percent[name] for name in FOUR[1:]]),
            "48.4 % and 1.6 %",
            f"{percent['clb']:.3g} % and {clb:.3g} %",
            "universal hashing moves (n-1)/n of the state by construction; the amortisation is over few windows",
        ),
        *(
            MOVED.check(
                (percent[name], model[name]),
                f"(computed: {model[name]:.3g})",
                f"{percent[name]:.3g}",
                "on Spark a policy is asked less often while slots move, and each time has more to correct",
                f"{name}: % of the state moved per balancing, against the same policy on the same histograms",
            )
            for name in FOUR
        ),
    )


# --- E7: speed-up -----------------------------------------------------------------------------------------------------

_LOAD = 0.8
_LANE_ROWS = 1_000.0  # per second
_STOP_WORDS = 25
_DAY = 240.0  # windows
_STAGE_WINDOW_S = 1.0  # a lane works most of it: epochs cost the machine something too
_PERIOD = 4  # windows between CLB's balancings, where a stage has some more
_LEAD_S = 3.0  # before the first stage, at its rate: the first epochs fill the lanes
_AHEAD_S = 2.0  # a lane is asked for so long before the rate grows: it has to start
_STAGE_KEYS = 1_000  # every key gets its state by one lane, at its limited rate, before a run


@dataclass(frozen=True)
class Ramp:
    """A run over stages of growing rate, one more lane each; `delay_s` is from a row's coming to its being served."""

    run: SparkRun
    stages: int
    stage_s: float
    lead_s: float = _LEAD_S
    delay_s: float = 0.0

    @property
    def edges_s(self) -> FloatArray:
        """When stages begin, and the last one ends."""
        return self.lead_s + np.linspace(0.0, self.stages * self.stage_s, self.stages + 1)

    @property
    def served_per_s(self) -> FloatArray:
        """Rows that all lanes served per second of each stage, those that had waited since earlier ones among them.

        What comes is served later even if nothing waits: it comes by the window, and an epoch takes its time. That is
        a delay, not a rate. So what had come by the end of a stage is served in it if it is served by `delay_s` and a
        window later; what came after the end does not count, even if it is served by then.
        """
        run = self.run
        late_s = self.delay_s + run.scenario.file_s
        upto = [
            float(run.rows[(run.arrived_s < edge)[:, None] & (run.done_s <= edge + late_s)].sum())
            for edge in self.edges_s.tolist()
        ]
        per_second: FloatArray = np.diff(upto) / self.stage_s
        return per_second

    @property
    def mean_latency_s(self) -> FloatArray:
        """The mean latency of the rows that came in each stage."""
        return np.array([self.run.mean_latency_s(*stage) for stage in pairwise(self.edges_s.tolist())])


@dataclass(frozen=True)
class Elastic:
    """ELB's own number of lanes at the end of each stage, the number that its rule wants, and the rows lost."""

    lanes: tuple[int, ...]
    wanted: tuple[int, ...]
    lost: int


def usual_delay_s(runs: Sequence[SparkRun], since_s: float, until_s: float) -> float:
    """Return how long after the last row of an epoch had come the first lane had served it, in the middle of runs."""
    found = [
        run.lane_latency_s[(run.arrived_s >= since_s) & (run.arrived_s < until_s), 0] - run.scenario.file_s / 2
        for run in runs
    ]
    return float(np.median([np.median(one) for one in found]))


def run_e7(settings: Settings) -> Outcome:
    """GZ-E7: speed-up with lanes added at run time, and ELB's own number of lanes."""
    most, stage_s = (3, 6.0) if settings.quick else (8, 10.0)
    worth = (1, 2, 3, 1) if settings.quick else (1, 2, 3, 4, 2, 1)
    runs: dict[str, SparkRun] = {}
    # All lanes run for a moment at first: the process of one that joins later is then there already.
    with warm_spark(most, replace(_ramp(FOUR[0], most, stage_s, settings), first_lanes=None)) as spark:
        for at, name in enumerate(FOUR):
            runs[name] = run_on_spark(spark, _ramp(name, most, stage_s, settings))
            settings.progress((at + 1) / (len(FOUR) + 1))
        own = run_on_spark(spark, _elastic(worth, stage_s, settings))
    # With one lane there is nothing to balance: all runs begin alike.
    delay_s = usual_delay_s(list(runs.values()), _LEAD_S, _LEAD_S + stage_s - _AHEAD_S)
    found = {name: Ramp(run, most, stage_s, delay_s=delay_s) for name, run in runs.items()}
    elastic = elastic_of(own, worth, stage_s)
    served = {name: one.served_per_s / one.served_per_s[0] for name, one in found.items()}
    inverse = {name: one.mean_latency_s[0] / one.mean_latency_s for name, one in found.items()}
    ideal = list(range(1, most + 1))
    picture = Picture(
        [
            _by_lanes("Rows served per second", "speed-up", {"ideal": np.array(ideal, dtype=np.float64), **served}),
            _by_lanes("1 / mean latency, as the paper has it (GZ-A30)", "ratio to n = 1", inverse),
            Panel(
                "ELB's own number of lanes, load up and down",
                "time (s)",
                "lanes",
                [
                    Series("lanes", own.began_s.tolist(), list(own.lane_counts), "steps"),
                    Series(
                        "needed: load / ((u+v)/2)",
                        [at * stage_s for at in range(len(worth))],
                        [_LOAD * each for each in worth],
                        "steps",
                    ),
                ],
            ),
        ]
    )
    data: dict[str, Any] = {
        "served": served,
        "inverse_latency": inverse,
        "delay_s": delay_s,
        "mean_latency_s": {name: one.mean_latency_s for name, one in found.items()},
        "runs": {name: one.run.as_dict() for name, one in found.items()},
        "elastic": {"lanes": elastic.lanes, "wanted": elastic.wanted, "lost": elastic.lost, "run": own.as_dict()},
    }
    lost = {name: one.run.rows_lost or 0 for name, one in found.items()}
    note = (
        f"{limited(found['elb'].run.scenario)} {_STAND_IN} Without its {_STOP_WORDS} most frequent words; windows of "
        f"{_STAGE_WINDOW_S:g} s, offered load {_LOAD:.0%}, {stage_s:g} s per number of lanes, 1 to {most} (the paper: "
        f"15). Rows are served {delay_s:.1f} s after they came if nothing waits: what came in a stage counts in it if "
        f"it is served by so long and a window after its end. {_STAGE_KEYS:,} keys: a single lane gives them their "
        f"state before each run. A lane that joins gets its share of the slots by their cost from the engine itself; "
        f"then the policy goes on."
    )
    return Outcome(speed_up_checks(served, elastic, lost), picture, data, note, seeds=(settings.seed,))


def _ramp(name: str, most: int, stage_s: float, settings: Settings) -> SparkScenario:
    starts = [_LEAD_S + at * stage_s for at in range(most)]
    policy = _policy(name, settings.seed, _PERIOD)
    windows = round((_LEAD_S + most * stage_s) / _STAGE_WINDOW_S)
    return SparkScenario(
        lanes=most,
        slots=SUBSTREAMS,
        capacity=_LANE_ROWS,
        rate=_LOAD * _LANE_ROWS,
        seconds=_LEAD_S + most * stage_s,
        phases=[HotPhase(start if at else 0.0, rate=float(at + 1)) for at, start in enumerate(starts)],
        strategy="sudden",
        max_lag=8,
        keys=_STAGE_KEYS,
        seed=settings.seed,
        balancer={"settle_windows": 0, "warm_up_windows": 1, "history": _PERIOD},
        actions=[  # where lanes are added, the policy decides afresh, as in the simulator
            *(decide_by(policy, start) for start in starts),
            *((start - _AHEAD_S, methodcaller("resize", at + 2)) for at, start in enumerate(starts[1:])),
        ],
        drain=True,
        first_lanes=1,
        shares=_words(settings, windows, _STOP_WORDS, _DAY),
        file_s=_STAGE_WINDOW_S,
        files_per_epoch=1,
    )


def _elastic(worth: Sequence[int], stage_s: float, settings: Settings) -> SparkScenario:
    """Return a run whose number of lanes is ELB's own wish."""
    middle = _LANE_ROWS * _STAGE_WINDOW_S
    policy = policy_with_seed("elb", settings.seed, lower=0.8 * middle, upper=1.2 * middle, max_lanes=max(worth))
    return SparkScenario(
        lanes=max(worth),
        slots=SUBSTREAMS,
        capacity=_LANE_ROWS,
        rate=_LOAD * _LANE_ROWS,
        seconds=len(worth) * stage_s,
        phases=[HotPhase(at * stage_s, rate=float(each)) for at, each in enumerate(worth)],
        strategy="sudden",
        max_lag=8,
        keys=_STAGE_KEYS,
        seed=settings.seed,
        balancer={
            "settle_windows": 0,
            "warm_up_windows": 1,
            "cooldown_windows": 2,  # what waited for a slot that moved is counted with the next window, as if more came
            "min_lanes": 1,
            "max_lanes": max(worth),
        },
        actions=[decide_by(policy)],
        drain=True,
        first_lanes=1,
        shares=_words(settings, round(len(worth) * stage_s / _STAGE_WINDOW_S), _STOP_WORDS, _DAY),
        file_s=_STAGE_WINDOW_S,
        files_per_epoch=1,
    )


def elastic_of(run: SparkRun, worth: Sequence[int], stage_s: float) -> Elastic:
    """Read off how many lanes there were with the last rows of each stage."""
    lanes = []
    for at in range(len(worth)):
        inside = np.flatnonzero(run.arrived_s < (at + 1) * stage_s)
        lanes.append(run.lane_counts[inside[-1]])
    wanted = tuple(int(np.ceil(_LOAD * each)) for each in worth)
    return Elastic(tuple(lanes), wanted, run.rows_lost or 0)


def speed_up_checks(served: dict[str, FloatArray], elastic: Elastic, lost: dict[str, int]) -> tuple[Check, ...]:
    """Compare the speed-up of the rows served with the number of lanes."""
    most = served["elb"].size
    off = {name: np.abs(values / np.arange(1, most + 1) - 1) for name, values in served.items()}
    behind = {name: float(values.max()) for name, values in off.items()}
    last = {name: float(values[-1]) for name, values in served.items()}
    ahead = {name: (last[name] - last["clb"]) / most >= MARGIN for name in ("elb", "pkg", "uhlb")}
    return (
        _linear_check(
            "elb",
            off["elb"],
            "what waits while a lane joins is served in the next stage; other work on the machine makes joining, and "
            "epochs, longer",
        ),
        _linear_check(
            "clb",
            off["clb"],
            "CLB as printed is blind to mean load (GZ-A18): a lane gets more than it serves until the next cut, and "
            "what waits is served in the next stage",
        ),
        HASHING_FURTHER.check(
            (behind["pkg"], behind["uhlb"], behind["elb"]),
            "cannot approach it; in stages, with jumps",
            f"PKG {behind['pkg']:.2%}, UHLB {behind['uhlb']:.2%}, ELB {behind['elb']:.2%}",
            (
                "with few lanes the two candidates, or the best of 16 functions, keep every lane below its rate at "
                "80 % load; the paper offers as much as lanes serve, with up to 15 of them"
            ),
        ),
        CLB_LAST.check(
            (*(last[name] for name in FOUR), most),
            "yes, at n = 15",
            ", ".join(f"{name} {last[name]:.3g}" for name in FOUR),
            (
                f"{' and '.join(name.upper() for name in ahead if not ahead[name])} did not beat it. CLB is up to "
                f"{behind['clb']:.0%} off linear, at n = {int(off['clb'].argmax()) + 1}; it is chance which of its few "
                f"cuts overload a lane"
            ),
            f"at n = {most} ELB, PKG and UHLB beat CLB by {MARGIN:.0%} of linear at least (a negative result)",
        ),
        ELASTIC.check(
            (elastic.lanes, elastic.wanted, elastic.lost + sum(lost.values())),
            f"pi rule of Algorithm 1: {', '.join(map(str, elastic.wanted))}",
            f"{', '.join(map(str, elastic.lanes))} lanes as stages end; {elastic.lost + sum(lost.values())} rows lost",
            "the run has left a stage before lanes had started or given away their slots",
        ),
    )


def _linear_check(name: str, off: FloatArray, why: str) -> Check:
    worst = float(off.max())
    return LINEAR.check(
        (worst,),
        "approximately linear",
        f"at most {worst:.1%} off, at n = {int(off.argmax()) + 1}",
        why,
        f"{name.upper()} is nearly linear (rows served per second, n = 1..{off.size})",
    )


def _by_lanes(title: str, y_label: str, values: dict[str, FloatArray]) -> Panel:
    series = [Series(name, list(range(1, row.size + 1)), row.tolist()) for name, row in values.items()]
    return Panel(title, "number of lanes n", y_label, series)
