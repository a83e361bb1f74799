"""GZ-E7: speed-up of throughput while lanes are added, and ELB's own number of lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evenflow.model import RoutingTable
from evenflow.model.slots import FloatArray, IntArray
from evenflow.plot.picture import Panel, Picture, Series
from papers.experiment import Check, Experiment, Outcome, Settings
from papers.guo_zhou.histograms import policy_with_seed, run_policy
from papers.guo_zhou.latency import FOUR, LOAD, MAX_LANES, STOP_WORDS, by_lanes, note, ramps, seeds
from papers.guo_zhou.rules import CLB_LAST, ELASTIC, HASHING_FURTHER, LINEAR
from papers.guo_zhou.rules import E7 as RULE
from papers.guo_zhou.streams import SUBSTREAMS, Words
from papers.verdicts import MARGIN, median_range


def run_e7(settings: Settings) -> Outcome:
    """Speed-up of throughput, measured both ways, and ELB's own number of lanes."""
    found = ramps(settings)
    served = {name: np.array([one.served_per_s / one.served_per_s[0] for one in runs]) for name, runs in found.items()}
    inverse = {name: np.array([one.mean_s[0] / one.mean_s for one in runs]) for name, runs in found.items()}
    elastic = [elastic_ramp(seed) for seed in settings.seeds()]
    ideal = np.arange(1.0, MAX_LANES + 1)[None, :]
    windows = list(range(len(elastic[0].lanes)))
    picture = Picture(
        [
            by_lanes("Tuples served per second", "speed-up", {**served, "ideal": ideal}),
            by_lanes("1 / mean latency, as the paper has it (GZ-A30)", "ratio to n = 1", inverse, log_y=True),
            Panel(
                "ELB's own number of lanes, load up and down (first seed)",
                "statistic window",
                "lanes",
                [
                    Series("lanes", windows, elastic[0].lanes.tolist(), "steps"),
                    Series("needed: load / ((u+v)/2)", windows, elastic[0].needed.tolist()),
                ],
            ),
        ]
    )
    data = {
        "served": served,
        "inverse_latency": inverse,
        "lanes": [one.lanes for one in elastic],
        "needed": [one.needed for one in elastic],
    }
    seeds_used = f"Seeds: {len(seeds(settings))} for the speed-up, all for ELB's own number of lanes."
    checks = (*speed_up_checks(served, inverse), elastic_check(elastic))
    every = tuple(sorted({*seeds(settings), *settings.seeds()}))
    return Outcome(checks, picture, data, f"{note(settings)} {seeds_used}", seeds=every)


def off_linear(served: FloatArray) -> FloatArray:
    """Return how far the speed-up of each run (row) is off the number of lanes, as a share of it, where it is most."""
    off: FloatArray = np.abs(served / np.arange(1, served.shape[1] + 1) - 1).max(axis=1)
    return off


def speed_up_checks(served: Mapping[str, FloatArray], inverse: Mapping[str, FloatArray]) -> tuple[Check, ...]:
    """Compare the speed-up of each algorithm, a row for each seed, with the number of lanes."""
    off = {name: off_linear(values) for name, values in served.items()}
    return (
        _linear_check("elb", off, "a lane gets more than it serves"),
        _linear_check(
            "clb",
            off,
            "CLB as printed parts what is correlated and is blind to mean load (GZ-A18, A19): a lane gets more than it "
            "serves. `clb-moment`, with the objective that the paper states, is "
            f"at most {median_range(off['clb-moment'], '{:.1%}'.format)} off",
        ),
        _hashing_check(off, inverse),
        _last_check({name: values[:, -1] for name, values in served.items()}),
    )


def _linear_check(name: str, off: Mapping[str, FloatArray], why: str) -> Check:
    middle = float(np.median(off[name]))
    return LINEAR.check(
        (middle,),
        "approximately linear",
        f"at most {median_range(off[name], '{:.1%}'.format)} off",
        why,
        f"{name.upper()} is nearly linear (tuples served per second, n = 1..{MAX_LANES})",
    )


def _hashing_check(off: Mapping[str, FloatArray], inverse: Mapping[str, FloatArray]) -> Check:
    """PKG and UHLB are further from linear than ELB, by more than chance."""
    beyond = {name: float(np.median(off[name]) - np.median(off["elb"])) for name in ("pkg", "uhlb")}
    means = {"pkg": "two candidates per substream", "uhlb": "the best of some hash functions"}
    enough = " and ".join(means[name] for name, more in beyond.items() if more < MARGIN)
    ends = {name: float(np.median(inverse[name][:, -1])) for name in ("pkg", "uhlb", "elb")}
    return HASHING_FURTHER.check(
        (*(float(np.median(off[name])) for name in ("pkg", "uhlb", "elb")),),
        "cannot approach it; in stages, with jumps",
        ", ".join(f"{name.upper()} {median_range(off[name], '{:.2%}'.format)}" for name in ("pkg", "uhlb", "elb")),
        (
            f"at {LOAD:.0%} load hardly a lane gets more than it serves with {enough}, and what waits is served "
            f"later in the stage. By 1 / mean latency, n = {MAX_LANES} against n = 1: "
            + ", ".join(f"{name.upper()} {value:.2g}" for name, value in ends.items())
        ),
    )


def _last_check(last: Mapping[str, FloatArray]) -> Check:
    """CLB comes last with all lanes, by more than chance."""
    middle = {name: float(np.median(values)) for name, values in last.items()}
    ahead = {name: (middle[name] - middle["clb"]) / MAX_LANES >= MARGIN for name in ("elb", "pkg", "uhlb")}
    not_ahead = " and ".join(name.upper() for name, is_ahead in ahead.items() if not is_ahead)
    return CLB_LAST.check(
        (*(middle[name] for name in FOUR), MAX_LANES),
        "yes",
        ", ".join(f"{name} {median_range(last[name])}" for name in FOUR),
        f"{not_ahead} did not beat it",
        f"at n = {MAX_LANES} ELB, PKG and UHLB beat CLB by {MARGIN:.0%} of linear at least (a negative result)",
    )


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
    shares = Words(STOP_WORDS).rates(1, random)[0]
    rows = random.poisson(worth[:, None] * middle * LOAD * shares / shares.sum())
    policy = policy_with_seed("elb", seed, lower=0.8 * middle, upper=1.2 * middle)
    trace = run_policy(policy, rows, RoutingTable.even(SUBSTREAMS, 1), 1)
    lost = float(np.abs(trace.served - rows[1:].sum(axis=1)).max())
    return Elastic(trace.lanes, rows[:-1].sum(axis=1) / middle, lost)


def elastic_check(runs: Sequence[Elastic]) -> Check:
    """ELB's number of lanes follows its rule in every window of every run, and nothing is lost."""
    right = all((one.lanes == np.ceil(one.needed)).all() for one in runs)
    lost = max(one.lost for one in runs)
    return ELASTIC.check(
        (right, lost),
        "pi rule of Algorithm 1",
        f"{runs[0].lanes.min()} to {runs[0].lanes.max()} to {runs[0].lanes[-1]} lanes, {lost:g} tuples lost",
        "the number of lanes does not follow the rule",
    )


E7 = Experiment("GZ-E7", "Fig. 6", "Speed-up with lanes added at run time; ELB's elastic ramp", RULE, run_e7)
