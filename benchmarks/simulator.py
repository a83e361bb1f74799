"""How fast the quantum level is: `python -m benchmarks.simulator [--quick] [--json FILE]`.

Two tables: a large cluster (1,000 lanes, 100,000 slots, 100 windows; target: under 60 s on one core) under a policy
that never moves and under `even`; and the 32 machines of the Flux paper (60 s of it; target: under 30 s on one core).
Times are processor seconds of the machine that ran it; where they go is shown beside the total.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evenflow.policies import policy_named
from evenflow.sim.quantum import Handover, Network, Scenario, Steady, Timeline, Way, simulate
from evenflow.workloads.skew import zipf_shares
from papers.flux.cluster import Setup, external, load_run, run

LARGE_TARGET_S, FLUX_TARGET_S = 60.0, 30.0


def large(lanes: int, slots: int, windows: int) -> Scenario:
    """Return a cluster that is nine tenths busy on the whole, with Zipf 0.6 keys: some lanes are overloaded."""
    shares = zipf_shares(slots, 0.6, np.random.default_rng(1), keys=10 * slots)
    per_lane = 50_000  # records per second that a lane can serve
    return Scenario(
        lanes=lanes,
        slots=slots,
        arrivals=Steady(shares * 0.9 * per_lane * lanes),
        seconds_per_record=1 / per_lane,
        state_bytes=1e5,
        duration_s=windows,
        step_s=0.5,
        epoch_steps=2,
        handover=Handover(Way.AT_ONCE, 1e-9, 1e-9),
        network=Network(1.25e8, 1e10),
    )


def timed(what: str, target_s: float, simulated_s: float, go: Any) -> dict[str, Any]:
    """Run once; return the processor time with what came out."""
    started = time.process_time()
    timeline: Timeline = go()
    return {
        "run": what,
        "cpu_s": time.process_time() - started,
        "target_s": target_s,
        "simulated_s": simulated_s,
        "records": float(timeline.served.sum()),
        "moves": int(timeline.moves.sum()),
        "imbalance_first": float(timeline.imbalance[0]),
        "imbalance_last": float(timeline.imbalance[-1]),
    }


def main() -> None:
    """Run both and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the slots, lanes and seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()

    lanes, slots, windows = (100, 10_000, 20) if options.quick else (1_000, 100_000, 100)
    scenario = large(lanes, slots, windows)
    rows = [
        timed(
            f"{lanes:,} lanes x {slots:,} slots, {windows} windows, {name}",
            LARGE_TARGET_S,
            float(windows),
            lambda name=name: simulate(scenario, policy_named(name)),
        )
        for name in ("static", "even")
    ]
    seconds = 6 if options.quick else 60
    stage = load_run(replace(Setup(), duration_s=seconds), speeds=external([0], 1.0))
    rows += [
        timed(
            f"32 machines of the Flux paper, {seconds} s, {name}",
            FLUX_TARGET_S,
            float(seconds),
            lambda name=name: run(stage, name),
        )
        for name in ("static", "flux-load")
    ]
    for row in rows:
        kept = "" if options.quick else ("  target kept" if row["cpu_s"] < row["target_s"] else "  TARGET MISSED")
        print(
            f"{row['run']:<60} {row['cpu_s']:7.1f} s  (target {row['target_s']:.0f} s){kept}  "
            f"{row['records']:.3g} records, {row['moves']:,} moves, "
            f"max/mean {row['imbalance_first']:.3f} to {row['imbalance_last']:.3f}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
