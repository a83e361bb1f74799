"""GZ-E5 to E7: latency and speed-up while the rate grows from 1000 to 15,000 tuples per second, a lane at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenflow.model import RoutingTable
from evenflow.model.slots import FloatArray, IntArray
from evenflow.reproduce.experiment import Check, Experiment, Outcome, Panel, Picture, Series, Settings
from evenflow.reproduce.guo_zhou.histograms import policy_with_seed, run_policy
from evenflow.reproduce.guo_zhou.streams import SUBSTREAMS, Words
from evenflow.reproduce.guo_zhou.tuple_runs import SERVICE_S, Handover, Stage, StageResult, TupleRun
from evenflow.reproduce.verdicts import checked, holds
from evenflow.sim.tuples import PauseCost

FOUR = ("clb", "elb", "pkg", "uhlb")
COMPARED = (*FOUR, "clb-moment", "even", "static")
MAX_LANES = 15

_LOAD = 0.8  # the paper offers as much as the lanes can serve, where every queue grows without end
_STOP_WORDS = 25  # with them one substream alone is more than a lane serves, from 13 lanes on
_STAGE_WINDOWS = 8  # 120 windows over 15 stages
_WINDOW_S = 6.0  # a tenth of the paper's minute
_DAY = 240.0  # windows

_TABLE_2 = {
    "clb": (1103.13, 0.76, 0.30, 1.12),
    "elb": (1109.51, 0.73, 0.33, 0.68),
    "pkg": (1551.30, 0.92, 0.38, 1.70),
    "uhlb": (1505.13, 1.01, 0.38, 1.89),
}
_NOTE = (
    "Stand-in stream (Zipf 1.0 words without the 25 most frequent), windows of 6 s instead of 60 s, offered load 80 % "
    "of the lanes' rate, pause-configure-resume with 50 ms + 0.1 ms per tuple of state: none of these is given. A "
    "lane serves 1000 tuples/s, so no latency is below 1 ms; the published medians of 0.3 ms are."
)


@dataclass(frozen=True, slots=True)
class Ramp:
    """One run over all stages: statistics per number of lanes, and over all tuples."""

    mean_s: FloatArray
    served_per_s: FloatArray
    latency_s: FloatArray
    moved: FloatArray
    in_order: bool

    @property
    def statistics_ms(self) -> tuple[float, float, float, float]:
        """Maximum, mean, median and 95th percentile, as in Table 2."""
        latency = 1e3 * self.latency_s
        middle, high = np.percentile(latency, [50, 95])
        return float(latency.max()), float(latency.mean()), float(middle), float(high)


def ramp(policy: str, seed: int, window_s: float, handover: Handover = "pause-all", most: int = MAX_LANES) -> Ramp:
    """Run `policy` from 1 lane to `most`."""
    random = np.random.default_rng((seed, 5))
    rates = Words(_STOP_WORDS).rates(most * _STAGE_WINDOWS, random, _DAY)
    table = RoutingTable.even(SUBSTREAMS, 1)
    run = TupleRun(policy_with_seed(policy, seed), table, random, pause_cost(window_s), handover)
    results: list[StageResult] = []
    for lanes in range(1, most + 1):
        rows = rates[(lanes - 1) * _STAGE_WINDOWS : lanes * _STAGE_WINDOWS]
        results.append(run.stage(Stage(lanes, rows, _LOAD * lanes / SERVICE_S, window_s)))
    return Ramp(
        np.array([one.latency_s.mean() for one in results]),
        _served_per_s(results),
        np.concatenate([one.latency_s for one in results]),
        np.concatenate([one.moved_share for one in results]),
        all(one.in_order for one in results),
    )


def pause_cost(window_s: float) -> PauseCost:
    """Return what a pause costs where a window lasts `window_s`: the fixed part shrinks with it, as the state does."""
    return PauseCost(base_s=0.05 * window_s / _WINDOW_S, per_state_s=1e-4)


def _served_per_s(results: list[StageResult]) -> FloatArray:
    """Return the tuples done in each stage, whenever they came, per second of it."""
    ends = np.array([0.0, *(one.end_s for one in results)])
    counts, _ = np.histogram(np.concatenate([one.done_s for one in results]), ends)
    served: FloatArray = counts / np.diff(ends)
    return served


def _ramps(settings: Settings) -> dict[str, list[Ramp]]:
    """Run all algorithms with all seeds."""
    window_s = 0.5 if settings.quick else _WINDOW_S
    seeds = settings.seeds(full=3, quick=1)
    found: dict[str, list[Ramp]] = {}
    for at, name in enumerate(COMPARED):
        found[name] = [ramp(name, seed, window_s) for seed in seeds]
        settings.progress((at + 1) / len(COMPARED))
    return found


def _median(values: list[float]) -> float:
    return float(np.median(values))


def run_e5(settings: Settings) -> Outcome:
    """Table 2."""
    found = _ramps(settings)
    table = {name: [one.statistics_ms for one in runs] for name, runs in found.items()}
    mean, longest = (
        {name: _median([row[column] for row in rows]) for name, rows in table.items()} for column in (1, 0)
    )
    ratio = {name: longest[name] / mean[name] for name in FOUR}
    checks = [
        _below_check("mean latency (ms)", 1, mean),
        _below_check("maximum latency (ms)", 0, longest),
        checked(
            "maximum over mean",
            ", ".join(f"{name} {_TABLE_2[name][0] / _TABLE_2[name][1]:.0f}" for name in FOUR),
            ", ".join(f"{name} {ratio[name]:.0f}" for name in FOUR),
            holds(min(ratio.values()) >= 300, weaker=ratio["elb"] >= 30),  # noqa: PLR2004 - about 1000
            "service alone takes 1 ms here, more than the published mean; an algorithm that overloads a lane has a "
            "large mean as well, which lowers the ratio",
        ),
        checked(
            "pause and replay: nothing lost, order of each substream kept",
            "buffered and then replayed",
            "kept" if all(one.in_order for runs in found.values() for one in runs) else "broken",
            holds(all(one.in_order for runs in found.values() for one in runs)),
            "the replay is wrong",
        ),
    ]
    picture = Picture([_distribution(found)])
    data = {name: {"max_mean_median_p95_ms": rows} for name, rows in table.items()}
    return Outcome(tuple(checks), picture, data, _NOTE)


def _below_check(what: str, column: int, ours: dict[str, float]) -> Check:
    """CLB and ELB lie below PKG and UHLB; if only ELB does, the shape holds."""
    others = min(ours["pkg"], ours["uhlb"])
    return checked(
        f"{what}: CLB and ELB below PKG and UHLB",
        ", ".join(f"{name} {_TABLE_2[name][column]:g}" for name in FOUR),
        ", ".join(f"{name} {ours[name]:.3g}" for name in (*FOUR, "clb-moment", "even")),
        holds(max(ours["clb"], ours["elb"]) < others, weaker=ours["elb"] < others),
        "ELB holds. CLB as printed parts what is correlated and is blind to mean load (GZ-A18, A19): lanes are "
        "overloaded and tuples queue; `clb-moment`, with the objective that the paper states, does not have this fault",
    )


def _distribution(found: dict[str, list[Ramp]]) -> Panel:
    """The distribution of latency, as the share of tuples above it."""
    shares = np.concatenate([np.linspace(0, 0.9, 19), 1 - np.logspace(-1.2, -5, 20)])
    return Panel(
        "Tuples that wait longer (first seed)",
        "latency (ms)",
        "share of the tuples",
        [
            Series(name, np.quantile(1e3 * runs[0].latency_s, shares).tolist(), (1 - shares).tolist())
            for name, runs in found.items()
        ],
        log_x=True,
        log_y=True,
    )


def run_e6(settings: Settings) -> Outcome:
    """The ratio of mean latencies, mu_1 of CLB over mu_i of each algorithm."""
    found = _ramps(settings)
    base = _median([float(one.mean_s[0]) for one in found["clb"]])
    ratios = {name: _over_seeds(runs, lambda one: base / one.mean_s) for name, runs in found.items()}
    spread = {name: float(np.std(np.log(values[1:]))) for name, values in ratios.items()}
    calm, restless = max(spread["clb"], spread["elb"]), min(spread["pkg"], spread["uhlb"])
    checks = (
        checked(
            "PKG and UHLB fluctuate more than CLB and ELB (sd of log ratio over n)",
            "apparent in Fig. 5",
            ", ".join(f"{name} {spread[name]:.2f}" for name in (*FOUR, "clb-moment", "even")),
            holds(restless > calm, weaker=restless > spread["elb"]),
            "ELB holds; CLB as printed overloads lanes, the more of them the longer it keeps an assignment",
        ),
    )
    picture = Picture([_by_lanes("Ratio of mean latencies", "mu_1 (CLB) / mu_i", ratios, log_y=True)])
    return Outcome(checks, picture, {"ratio": ratios, "spread": spread}, _NOTE)


def run_e7(settings: Settings) -> Outcome:
    """Speed-up of throughput, measured both ways, and ELB's own number of lanes."""
    found = _ramps(settings)
    served = {
        name: _over_seeds(runs, lambda one: one.served_per_s / one.served_per_s[0]) for name, runs in found.items()
    }
    inverse = {name: _over_seeds(runs, lambda one: one.mean_s[0] / one.mean_s) for name, runs in found.items()}
    ideal = np.arange(1, MAX_LANES + 1)
    behind = {name: float(np.abs(values / ideal - 1).max()) for name, values in served.items()}
    last = {name: float(values[-1]) for name, values in served.items()}
    checks = (
        checked(
            "ELB is nearly linear (tuples served per second, n = 1..15)",
            "approximately linear",
            f"at most {behind['elb']:.1%} off",
            holds(behind["elb"] <= 0.05, weaker=behind["elb"] <= 0.2),  # noqa: PLR2004 - nearly
            "a lane is overloaded",
        ),
        checked(
            "PKG and UHLB are further from linear than ELB",
            "in stages, with jumps",
            f"PKG {behind['pkg']:.1%}, UHLB {behind['uhlb']:.1%}, ELB {behind['elb']:.1%}",
            holds(min(behind["pkg"], behind["uhlb"]) > behind["elb"], weaker=behind["uhlb"] > behind["elb"]),
            "two candidates per substream are enough to keep every lane below its rate at 80 % load",
        ),
        checked(
            "at n = 15 ELB, PKG and UHLB beat CLB (a negative result, GZ 6.2)",
            "yes",
            ", ".join(f"{name} {last[name]:.3g}" for name in FOUR),
            holds(last["clb"] < min(last["elb"], last["pkg"], last["uhlb"]), weaker=last["clb"] < last["elb"]),
            "CLB falls behind ELB, but so does universal hashing",
        ),
        _elastic_check(settings),
    )
    elastic = elastic_ramp(settings.seed)
    picture = Picture(
        [
            _by_lanes("Tuples served per second", "speed-up", {"ideal": ideal.astype(np.float64), **served}),
            _by_lanes("1 / mean latency, as the paper has it (GZ-A30)", "ratio to n = 1", inverse, log_y=True),
            Panel(
                "ELB's own number of lanes, load up and down",
                "statistic window",
                "lanes",
                [
                    Series("lanes", list(range(len(elastic.lanes))), elastic.lanes.tolist(), "steps"),
                    Series("needed: load / ((u+v)/2)", list(range(len(elastic.needed))), elastic.needed.tolist()),
                ],
            ),
        ],
    )
    data = {"served": served, "inverse_latency": inverse, "lanes": elastic.lanes, "needed": elastic.needed}
    return Outcome(checks, picture, data, _NOTE)


@dataclass(frozen=True, slots=True)
class Elastic:
    """ELB's number of lanes in each window, what the load of the window before needed, and the load lost."""

    lanes: IntArray
    needed: FloatArray
    lost: float


def elastic_ramp(seed: int) -> Elastic:
    """Let the load rise from 1 to 15 lanes' worth and fall again; ELB alone says how many lanes there are (GZ-M4)."""
    random = np.random.default_rng((seed, 7))
    worth = np.concatenate([np.linspace(1, MAX_LANES, 30), np.linspace(MAX_LANES, 1, 30)])
    middle = 60_000.0  # tuples per lane and window
    shares = Words(_STOP_WORDS).rates(1, random)[0]
    rows = random.poisson(worth[:, None] * middle * _LOAD * shares / shares.sum())
    policy = policy_with_seed("elb", seed, lower=0.8 * middle, upper=1.2 * middle)
    trace = run_policy(policy, rows, RoutingTable.even(SUBSTREAMS, 1), 1)
    lost = float(np.abs(trace.served - rows[1:].sum(axis=1)).max())
    return Elastic(trace.lanes, rows[:-1].sum(axis=1) / middle, lost)


def _elastic_check(settings: Settings) -> Check:
    runs = [elastic_ramp(seed) for seed in settings.seeds()]
    right = all((one.lanes == np.ceil(one.needed)).all() for one in runs)
    lost = max(one.lost for one in runs)
    return checked(
        "ELB adds and retires lanes as the load rises and falls: pi = ceil(2w / (u+v)), no load lost",
        "pi rule of Algorithm 1",
        f"{runs[0].lanes.min()} to {runs[0].lanes.max()} to {runs[0].lanes[-1]} lanes, {lost:g} tuples lost",
        holds(right and lost == 0),
        "the number of lanes does not follow the rule",
    )


def _over_seeds(runs: list[Ramp], column: Callable[[Ramp], FloatArray]) -> FloatArray:
    """Return the median over the seeds, per number of lanes."""
    middle: FloatArray = np.median([column(one) for one in runs], axis=0)
    return middle


def _by_lanes(title: str, y_label: str, values: dict[str, FloatArray], *, log_y: bool = False) -> Panel:
    lanes = list(range(1, MAX_LANES + 1))
    series = [Series(name, lanes, row.tolist()) for name, row in values.items()]
    return Panel(title, "number of lanes n", y_label, series, log_y=log_y)


E5 = Experiment(
    "GZ-E5",
    "Table 2",
    "Latency while the rate grows and lanes are added",
    "Mean and maximum: match if CLB and ELB lie below PKG and UHLB, shape if ELB does. Maximum over mean: match from "
    "300 on for all four, shape from 30 on for ELB. Order must be kept.",
    run_e5,
)
E6 = Experiment(
    "GZ-E6",
    "Fig. 5",
    "Ratio of mean latencies by number of lanes",
    "Match if PKG and UHLB fluctuate more than both CLB and ELB, shape if more than ELB.",
    run_e6,
)
E7 = Experiment(
    "GZ-E7",
    "Fig. 6",
    "Speed-up with lanes added at run time; ELB's elastic ramp",
    "ELB: match within 5 % of linear, shape within 20 %. PKG and UHLB further from linear than ELB: match both, shape "
    "UHLB. CLB last at n = 15: match behind all three, shape behind ELB. ELB's number of lanes: by the rule, always.",
    run_e7,
)
