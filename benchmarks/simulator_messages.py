"""How fast the message simulator is: `python -m benchmarks.simulator_messages [--quick] [--json FILE]`.

One run per protocol with every invariant checked; records per second of wall time, on one core. A million records
should take less than a minute.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from evenflow.control import Balancer, BalancerOptions
from evenflow.migration.strategies import Sudden
from evenflow.model import RoutingTable
from evenflow.policies.autoflow import AutoFlow
from papers.autoflow.protocol.run import autoflow_run
from papers.flux.protocol import flux_run
from papers.messages.own_engine import engine_run
from papers.messages.plant import Plant
from papers.messages.stream import RecordStream

LANES, SLOTS_PER_LANE, KEYS_PER_SLOT, RATE = 4, 16, 50, 3_600
MILLION, QUICK = 1_000_000, 50_000


def stream_of(records: int, seed: int = 1) -> RecordStream:
    """Return records of which 40 % go to the slots of the first of 4 lanes: slots will move."""
    rng = np.random.default_rng(seed)
    slots = LANES * SLOTS_PER_LANE
    shares = np.where(np.arange(slots) < SLOTS_PER_LANE, 0.4 / SLOTS_PER_LANE, 0.6 / (slots - SLOTS_PER_LANE))
    slot = rng.choice(slots, records, p=shares)
    key = slot * KEYS_PER_SLOT + rng.integers(0, KEYS_PER_SLOT, records)
    source, mapper = rng.integers(0, LANES, (2, records))
    due = np.arange(records) * 1_000_000 // RATE
    slot_of_key = np.repeat(np.arange(slots), KEYS_PER_SLOT)
    return RecordStream(due, source, mapper, key, rng.integers(1, 100, records), slot_of_key, slots)


def timed(name: str, wire: Callable[..., Any], stream: RecordStream) -> dict[str, Any]:
    """Run one protocol and time it, checks included."""
    table = RoutingTable(np.repeat(np.arange(LANES), SLOTS_PER_LANE), tuple(range(LANES)))
    balancer = Balancer(table, AutoFlow(), Sudden(), BalancerOptions(window_epochs=5))
    started = time.perf_counter()
    result = wire(stream, Plant(table), balancer).run()
    seconds = time.perf_counter() - started
    return {
        "protocol": name,
        "records": len(stream),
        "events": result.events,
        "moves": len(result.trace.moves),
        "seconds": seconds,
        "records_per_s": len(stream) / seconds,
    }


def main() -> None:
    """Run all and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} records instead of {MILLION:,}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    stream = stream_of(QUICK if options.quick else MILLION)
    rows = []
    for name, wire in (("autoflow", autoflow_run), ("flux", flux_run), ("evenflow, at once", engine_run)):
        row = timed(name, wire, stream)
        rows.append(row)
        print(
            f"{name:<20} {row['records']:>9,} records {row['events']:>9,} events {row['moves']:>4} moves"
            f" {row['seconds']:7.1f} s {row['records_per_s']:>9,.0f} records/s"
        )
    slowest = max(MILLION / row["records_per_s"] for row in rows)
    print(f"a million records take at most {slowest:.0f} s")
    if options.json:
        options.json.write_text(json.dumps({"runs": rows, "seconds_per_million": slowest}, indent=1))


if __name__ == "__main__":
    main()
