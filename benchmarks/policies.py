"""How good and how fast decisions are: `python -m benchmarks.policies [--quick] [--json FILE]`.

Three tables: `even` against the exact optimum on small problems; all policies on the bundled workloads; decision
times for 1,000 to 1,000,000 slots. Ratios are what counts; times are of the machine that ran it.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenflow.control import balance_of
from evenflow.model import LoadView, RoutingTable, SlotLoads, window_of
from evenflow.model.balance import moved_state
from evenflow.policies import POLICIES, policy_named, proposal_of
from evenflow.policies.even import Even
from evenflow.policies.packing import Problem, pack
from evenflow.workloads import WORKLOADS, Workload, workload_named
from tests.oracle import fewest_bytes, least_maximum, small_problem

ROUNDS = 100  # decisions in a row on a load that does not change
AS_EVEN = 1.003  # a maximum within this factor counts as equally even


def optimality(cases: int) -> dict[str, float]:
    """Compare `even` with mixed-integer programming."""
    above, times_bytes = [], []
    for seed in range(cases):
        problem = small_problem(seed)
        plan = pack(problem, Even().tolerance)
        above.append(plan.maximum / least_maximum(problem.work, problem.slowness) - 1)
        fewest = fewest_bytes(problem.work, problem.size, problem.home, problem.slowness, plan.maximum)
        if fewest > 0:
            times_bytes.append(plan.moved_bytes / fewest)
    return {
        "cases": cases,
        "max_load_above_optimum_mean": float(np.mean(above)),
        "max_load_above_optimum_p95": float(np.quantile(above, 0.95)),
        "bytes_over_fewest_mean": float(np.mean(times_bytes)),
        "bytes_over_fewest_p95": float(np.quantile(times_bytes, 0.95)),
    }


@dataclass
class Outcome:
    """Where a policy ends on a load that does not change, and what it moved on the way."""

    workload: str
    policy: str
    max_over_mean: float
    bytes_moved: float
    rounds: int
    rests: bool
    table: RoutingTable


def outcome(workload: Workload, name: str) -> Outcome:
    """Ask again and again until the policy rests or `ROUNDS` are over."""
    policy = policy_named(name)
    table, memory, moved, rounds = workload.table, None, 0.0, 0
    windows = list(workload.windows)
    for _ in range(ROUNDS):
        proposal = proposal_of(policy, LoadView(tuple(windows), table, memory))
        if not proposal.moves and rounds:
            break
        after = proposal.table_after(table)
        moved += moved_state(table, after, windows[-1].slots.state_bytes)
        memory, table, rounds = proposal.memory, after, rounds + bool(proposal.moves)
        windows = [*windows, workload.under(table)][-24:]
        if not proposal.moves:
            break
    balance = balance_of(workload.under(table), table)
    return Outcome(workload.name, name, balance.max_over_mean, moved, rounds, rounds < ROUNDS, table)


def bytes_at_equal_evenness(workload: Workload, other: Outcome) -> float | None:
    """Return the bytes `even` moves when it need not be more even than `other` ended, over those of `other`."""
    if other.bytes_moved == 0:
        return None
    newest, slow = workload.windows[-1].slots, np.array(workload.slowness)
    home = workload.table.lane_positions()
    problem = Problem(
        newest.busy_s / slow[home], newest.state_bytes.astype(float), home, slow, np.full(slow.size, np.inf)
    )
    goal = balance_of(workload.under(other.table), other.table).max_load
    return pack(problem, Even().tolerance, goal).moved_bytes / other.bytes_moved


def verdict(even: Outcome, other: Outcome) -> str:
    """Say how `even` compares with another policy."""
    as_even = even.max_over_mean <= other.max_over_mean * AS_EVEN
    no_more = even.bytes_moved <= other.bytes_moved
    if as_even:
        return "as even or more, no more bytes" if no_more else "more even, for more bytes"
    return "LESS EVEN, for fewer bytes" if no_more else "LESS EVEN, FOR MORE BYTES"


def speed(sizes: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Time one decision of `even` and `autoflow`: half of the lanes twice as loaded, sizes as (slots, lanes)."""
    rows = []
    for slots, lanes in sizes:
        rng = np.random.default_rng(1)
        table = RoutingTable.even(slots, lanes)
        records = rng.poisson(100 * np.where(table.owners % 2, 2, 1))
        window = window_of(table, SlotLoads.of(records, records * 1e-6, rng.integers(1, 10_000, slots)))
        for name in ("even", "autoflow"):
            best, moves = np.inf, 0
            for _ in range(3):
                started = time.perf_counter()
                moves = len(proposal_of(policy_named(name), LoadView((window,), table)).moves)
                best = min(best, time.perf_counter() - started)
            rows.append({"policy": name, "slots": slots, "lanes": lanes, "moves": moves, "decide_s": best})
    return rows


def main() -> None:
    """Run all three and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer cases, up to 100,000 slots")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()

    exact = optimality(40 if options.quick else 240)
    print("even against the exact optimum (at most 4 lanes, 14 slots)")
    for name, value in exact.items():
        print(f"  {name:<30} {value:10.4g}")

    comparison: list[dict[str, Any]] = []
    print(f"\nall policies, up to {ROUNDS} decisions on a load that does not change")
    for workload_name in WORKLOADS:
        workload = workload_named(workload_name)
        even = outcome(workload, "even")
        before = balance_of(workload.under(workload.table), workload.table).max_over_mean
        print(f"\n{workload_name}: max/mean {before:.3f} before")
        for name in POLICIES:
            other = even if name == "even" else outcome(workload, name)
            said = "" if name == "even" else verdict(even, other)
            rest = "" if other.rests else "still moving; "
            share = None if name == "even" else bytes_at_equal_evenness(workload, other)
            print(
                f"  {name:<13} max/mean {other.max_over_mean:6.3f}  {other.bytes_moved / 1e6:10.2f} MB"
                f"  {other.rounds:3d} rounds  {rest}{said and 'even is ' + said}"
                + ("" if share is None else f"; at equal evenness {share:.2f} of its bytes")
            )
            row = asdict(other)
            del row["table"]
            comparison.append({**row, "verdict": said, "bytes_ratio_at_equal_evenness": share})
    worse = [row for row in comparison if row["verdict"].startswith("LESS")]
    dearer = [row for row in comparison if row["verdict"].startswith("more even")]
    beaten = [row for row in comparison if (row["bytes_ratio_at_equal_evenness"] or 0) > 1]
    print(f"\nbrought to the other's evenness, even moves more bytes in {len(beaten)} rows:", end=" ")
    print(", ".join(f"{row['policy']} on {row['workload']}" for row in beaten) or "none")
    print(f"even is less even in {len(worse)} and dearer but more even in {len(dearer)} of {len(comparison)} rows")

    sizes = [(1_000, 10), (10_000, 100), (100_000, 1_000), (1_000_000, 1_000)]
    timing = speed(sizes[:3] if options.quick else sizes)
    print("\ntime of one decision (best of 3)")
    for row in timing:
        per_slot = row["decide_s"] / (row["slots"] * np.log2(row["slots"])) * 1e9
        print(
            f"  {row['policy']:<9} {row['slots']:>9,} slots {row['lanes']:>5,} lanes {row['moves']:>7,} moves"
            f" {row['decide_s'] * 1e3:9.1f} ms  {per_slot:6.1f} ns per n log2 n"
        )
    if options.json:
        options.json.write_text(json.dumps({"optimality": exact, "comparison": comparison, "speed": timing}, indent=1))


if __name__ == "__main__":
    main()
