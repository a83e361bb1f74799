"""How close the simulator is to Spark: `python -m benchmarks.calibration [--quick] [--json FILE]`.

The same skewed stream of bids and the same policies on both engines: 4 lanes, rate limited, static and even. What the
simulator does not model is calibrated, on two runs of their own with an even load: how long a row waits for its epoch
and its epoch for the bookkeeping; and what a lane with too much to do serves of its limit, as it also writes and
commits. All else it is told: rates, limits, shares per slot, epoch length.
Rates are over the whole run, until the last row is finished.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from evenflow.control import BalancerOptions
from evenflow.control.window_json import read_window_json
from evenflow.model.slots import FloatArray
from evenflow.policies import policy_named
from evenflow.sim.quantum import During, Handover, Scenario, Steady, Timeline, Way, simulate
from papers.spark_runs.run import SparkRun, SparkScenario, local_spark, run_on_spark
from papers.spark_runs.workload import HotPhase

LANES, SLOTS, CAPACITY, RATE, SHARE = 4, 64, 2_000.0, 4_400.0, 0.6
BRAKES = BalancerOptions(settle_windows=1, warm_up_windows=2)  # what Spark has by default
STEP_S = 0.05


@dataclass(frozen=True)
class Figures:
    """What both engines tell of a run; latencies in seconds."""

    rows_per_s: float
    hot_lane_rows_per_s: float
    imbalance_first: float
    imbalance_last: float
    moves: int
    latency_p50_s: float
    latency_p99_s: float
    drained_after_s: float


def scenario(policy: str, share: float, seconds: float, rate: float = RATE) -> SparkScenario:
    """Return a run on Spark: lane 0 is hot, all that came is finished in the end."""
    return SparkScenario(
        LANES,
        SLOTS,
        CAPACITY,
        rate,
        seconds,
        (HotPhase(0.0, (0,), share),),
        policy,
        max_lag=1_000,
        keys=4_000,
        drain=True,
    )


def weighted_quantile(values: FloatArray, weights: FloatArray, quantile: float) -> float:
    """Return a quantile of values that stand for different numbers of rows."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, quantile)])


def of_spark(run: SparkRun) -> Figures:
    """Sum up a run on Spark."""
    latency, rows = run.lane_latency_s.ravel(), run.rows.ravel()
    seconds, some = run.scenario.seconds, max(2, len(run.epochs) // 5)
    came = run.began_s <= seconds
    imbalance = run.imbalance[came]
    ended = run.done_s.max(axis=0)
    return Figures(
        float(run.rows.sum() / ended.max()),
        float(run.rows[:, 0].sum() / ended[0]),
        float(imbalance[:some].mean()),
        float(imbalance[-some:].mean()),
        len(run.moves),
        weighted_quantile(latency, rows, 0.5),
        weighted_quantile(latency, rows, 0.99),
        max(0.0, float(run.finished_s.max()) - seconds),
    )


def served_by_a_full_lane(run: SparkRun) -> float:
    """Return the rows per second of a lane that always has something to do."""
    return float(np.mean(run.rows[1:].sum(axis=0) / (run.done_s[-1] - run.done_s[0])))


def simulated(run: SparkRun, policy: str, epoch_s: float, capacity: float = CAPACITY) -> Timeline:
    """Run the same in the simulator, with the shares per slot that the stream on Spark had."""
    windows = read_window_json(run.journal, "journal").windows
    records = np.sum([window.slots.records for window in windows], axis=0)
    seconds = run.scenario.seconds
    state = windows[-1].slots.state_bytes.astype(np.float64)
    twin = Scenario(
        LANES,
        SLOTS,
        During(Steady(RATE * records / records.sum()), Steady(np.zeros(SLOTS)), seconds),
        1.0 / capacity,
        state,
        duration_s=2.5 * seconds,
        step_s=STEP_S,
        epoch_steps=max(1, round(epoch_s / STEP_S)),
        handover=Handover(Way.AT_ONCE, 1e-8, 1e-8, 1e-3, 1e-3),
        table=run.scenario.table,
    )
    return simulate(twin, policy_named(policy), options=BRAKES)


def of_simulator(line: Timeline, seconds: float, delay_s: float) -> Figures:
    """Sum up a run in the simulator; `delay_s` is what was calibrated."""
    during = line.rows(0.0, seconds)
    some = max(2, during.size // 5)
    waiting = line.backlog.sum(axis=1)
    empty = np.flatnonzero((waiting < 1) & (line.time_s > seconds))
    last = [float(line.time_s[np.flatnonzero(lane > 0)[-1]]) + delay_s for lane in line.served.T]
    return Figures(
        float(line.served.sum() / max(last)),
        float(line.served[:, 0].sum() / last[0]),
        float(line.imbalance[during][:some].mean()),
        float(line.imbalance[during][-some:].mean()),
        int(line.moves.sum()),
        line.latency_s(0.5) + delay_s,
        line.latency_s(0.99) + delay_s,
        float(line.time_s[empty[0]]) - seconds + delay_s if empty.size else float("nan"),
    )


def main() -> None:
    """Run both engines and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="12 s each instead of 25 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    seconds = 12.0 if options.quick else 25.0
    with local_spark(LANES) as spark:
        even = run_on_spark(spark, scenario("static", 1.0 / LANES, seconds))
        full = run_on_spark(spark, scenario("static", 1.0 / LANES, seconds / 2, 1.3 * LANES * CAPACITY))
        runs = {policy: run_on_spark(spark, scenario(policy, SHARE, seconds)) for policy in ("static", "even")}
    capacity = min(CAPACITY, served_by_a_full_lane(full))
    epoch_s = float(np.median(np.diff(even.began_s)))
    alone = of_simulator(simulated(even, "static", epoch_s), seconds, 0.0)
    delay_s = max(0.0, of_spark(even).latency_p50_s - alone.latency_p50_s)
    print(
        f"{LANES} lanes, each RATE LIMITED to {CAPACITY:,.0f} rows/s; {RATE:,.0f} rows/s for {seconds:g} s, "
        f"{SHARE:.0%} of them for lane 0\ncalibrated with an even load: epochs of {epoch_s:.2f} s, a row waits "
        f"{delay_s:.2f} s for its epoch and the bookkeeping, a full lane serves {capacity:,.0f} rows/s"
    )
    found = {"epoch_s": epoch_s, "delay_s": delay_s, "capacity": capacity, "seconds": seconds}
    rows = []
    for policy, run in runs.items():
        real = asdict(of_spark(run))
        twin = asdict(of_simulator(simulated(run, policy, epoch_s, capacity), seconds, delay_s))
        print(f"\n{policy:<24}{'Spark':>12}{'simulator':>12}{'ratio':>8}")
        for name, value in real.items():
            ratio = twin[name] / value if value else float("nan")
            print(f"  {name:<22}{value:>12.2f}{twin[name]:>12.2f}{ratio:>8.2f}")
            rows.append({"policy": policy, "what": name, "spark": value, "simulator": twin[name]})
    if options.json:
        options.json.write_text(json.dumps({**found, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
