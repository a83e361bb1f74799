"""How fast a lane folds and how much memory its state takes: `python -m benchmarks.fold [--quick] [--json FILE]`.

One core, blocks of 200,000 rows sorted by slot, sum and count over 1 million resident keys. A figure is for all that
a lane does in memory: fold, the changed state rows and the output rows. Data is made before the clock starts, which
counts CPU seconds, so that a busy machine disturbs less. Memory is the growth of the resident set of a fresh process
that does nothing but build the state from files on disk.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.model.slots import IntArray, slots_of_hashes
from evenflow.operators import HASH, SLOT, Aggregate, Resident, functions

SLOTS = 256
BLOCK = 200_000
SKEW = 1.2
SUM_AND_COUNT = Aggregate({"total": functions.sum("price"), "bids": functions.count()})
ALL = Aggregate({name: functions.Agg(name, "price") for name in functions.FUNCTIONS})
TARGETS = {"int64": 5.0, "string": 2.0}  # million rows/s per core
TARGET_BYTES = 100

Bids = tuple[pa.Table, IntArray]


def scrambled(ids: IntArray) -> IntArray:
    """Return a 64-bit hash of each id."""
    mixed = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    hashes: IntArray = (mixed ^ (mixed >> np.uint64(31))).view(np.int64)
    return hashes


def int64_key(ids: IntArray) -> dict[str, Any]:
    """Return ids that are all over the place."""
    return {"auction": scrambled(ids + 1_000_000_007)}


def string_key(ids: IntArray) -> dict[str, Any]:
    """Return strings of about 14 characters."""
    return {"auction": pa.array(np.char.add("auction-", ids.astype("U8")))}


def composite_key(ids: IntArray) -> dict[str, Any]:
    """Return a short string and a number."""
    return {"seller": pa.array(np.char.add("u", (ids % 1000).astype("U4"))), "auction": ids // 1000}


@dataclass(frozen=True)
class Kind:
    """A kind of key."""

    name: str
    keys: tuple[str, ...]
    columns: Callable[[IntArray], dict[str, Any]]

    def bids(self, ids: IntArray, rng: np.random.Generator) -> Bids:
        """Return one block of rows for these keys, sorted by slot as a lane gets it."""
        hashes = scrambled(ids)
        slots = slots_of_hashes(hashes, SLOTS)
        order = np.argsort(slots, kind="stable")
        columns = self.columns(ids[order])
        rows = pa.table({**columns, "price": rng.integers(1, 1000, len(ids)), HASH: hashes[order]})
        if not SUM_AND_COUNT.needs_hash(rows.schema, self.keys):
            rows = rows.drop_columns([HASH])
        return rows, slots[order]

    def empty(self, operator: Aggregate = SUM_AND_COUNT) -> Resident:
        """Return a state without keys."""
        return operator.open(self.bids(np.arange(1), np.random.default_rng(0))[0].schema, self.keys, SLOTS)


KINDS = (
    Kind("int64", ("auction",), int64_key),
    Kind("string", ("auction",), string_key),
    Kind("composite", ("seller", "auction"), composite_key),
)


def zipf(count: int, keys: int, rng: np.random.Generator) -> IntArray:
    """Draw keys by Zipf's law."""
    weights = np.cumsum(1 / np.arange(1, keys + 1) ** SKEW)
    drawn: npt.NDArray[np.intp] = np.searchsorted(weights, rng.random(count) * weights[-1])
    return np.minimum(drawn, keys - 1).astype(np.int64)


def rates(resident: Resident, blocks: list[Bids]) -> npt.NDArray[np.float64]:
    """Return million rows/s for each block."""
    seconds = []
    for rows, slots in blocks:
        started = time.process_time()
        resident.fold(rows, slots)
        seconds.append(time.process_time() - started)
    each: npt.NDArray[np.float64] = np.array([len(slots) for _, slots in blocks]) / np.array(seconds) / 1e6
    return each


def speed(kind: Kind, operator: Aggregate, keys: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Insert all keys, then fold rows of known keys."""
    rng = np.random.default_rng(7)
    aggregates = "sum, count" if operator is SUM_AND_COUNT else "all seven"
    resident = kind.empty(operator)
    inserts = [kind.bids(part, rng) for part in np.split(rng.permutation(keys), keys // BLOCK)]
    cases = {
        "new keys": inserts,
        "uniform": [kind.bids(rng.integers(0, keys, BLOCK), rng) for _ in range(rounds)],
        f"Zipf {SKEW}": [kind.bids(zipf(BLOCK, keys, rng), rng) for _ in range(rounds)],
    }
    for case, blocks in cases.items():
        each = rates(resident, blocks)
        rows = sum(len(slots) for _, slots in blocks)
        whole = rows / (np.array([len(slots) for _, slots in blocks]) / each).sum()
        # Inserting has pauses in which the table grows: they belong to the figure. Elsewhere the median is steadier.
        figure = float(whole if case == "new keys" else np.median(each))
        yield {
            "keys": kind.name,
            "aggregates": aggregates,
            "case": case,
            "million_rows_per_s": figure,
            "target": TARGETS.get(kind.name) if aggregates == "sum, count" and case != "new keys" else None,
        }


def resident_bytes() -> int:
    """Return the resident set of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def write_blocks(folder: Path, kind: Kind, keys: int) -> None:
    """Write all keys once, in blocks."""
    rng = np.random.default_rng(7)
    for at, ids in enumerate(np.array_split(rng.permutation(keys), max(1, keys // BLOCK))):
        rows, slots = kind.bids(ids, rng)
        table = rows.append_column(SLOT, pa.array(slots))
        with pa.OSFile(str(folder / f"{at:04}.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write(table)


def build(folder: Path, kind: Kind) -> dict[str, Any]:
    """Build the state from blocks on disk, and measure; runs in a process of its own."""
    resident = kind.empty()
    paths = sorted(folder.glob("*.arrow"))
    read_block(paths[0])  # what reading itself needs is there from now on
    before, seconds, longest = resident_bytes(), 0.0, 0.0
    for path in paths:
        rows, slots = read_block(path)
        started = time.perf_counter()
        resident.fold(rows, slots)
        took = time.perf_counter() - started
        seconds, longest = seconds + took, max(longest, took)
        del rows, slots
    pa.default_memory_pool().release_unused()
    keys = int(resident.slot_rows().sum())
    grown = resident_bytes() - before
    started = time.perf_counter()
    state = resident.snapshot(range(SLOTS))
    read_s = time.perf_counter() - started
    target = kind.empty()
    started = time.perf_counter()
    target.install(state)
    return {
        "keys": kind.name,
        "count": keys,
        "bytes_per_key": grown / keys,
        "accounted_bytes_per_key": int(resident.slot_bytes().sum()) / keys,
        "build_s": seconds,
        "longest_block_s": longest,
        "snapshot_s": read_s,
        "install_s": time.perf_counter() - started,
        "installed": int(target.slot_rows().sum()),
    }


def read_block(path: Path) -> Bids:
    """Read a block into memory of its own."""
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    return table.drop_columns([SLOT]), table[SLOT].to_numpy()


def memory(kind: Kind, keys: int) -> dict[str, Any]:
    """Measure a build in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        write_blocks(Path(folder), kind, keys)
        command = [sys.executable, "-m", "benchmarks.fold", "--build", folder, kind.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - this very file
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Run and print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, up to 1 million keys")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--build", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    if options.build:
        folder, name = options.build
        print(json.dumps(build(Path(folder), next(kind for kind in KINDS if kind.name == name))))
        return

    rounds = 5 if options.quick else 15
    print(f"million rows per CPU second: blocks of {BLOCK:,} rows, 1,000,000 keys, changed and output rows included")
    speeds = []
    for kind in KINDS:
        for operator in (SUM_AND_COUNT, ALL):
            for row in speed(kind, operator, 1_000_000, rounds):
                speeds.append(row)
                target = f"  target {row['target']:g}" if row["target"] else ""
                print(
                    f"  {row['keys']:<10} {row['aggregates']:<11} {row['case']:<9}"
                    f" {row['million_rows_per_s']:6.2f}{target}"
                )

    print(f"\nmemory and recovery, each in a fresh process; target {TARGET_BYTES} bytes per int64 key")
    sizes = [(KINDS[0], 1_000_000), (KINDS[1], 1_000_000)]
    if not options.quick:
        sizes += [(KINDS[0], 10_000_000), (KINDS[1], 10_000_000)]
    built = []
    for kind, keys in sizes:
        row = memory(kind, keys)
        built.append(row)
        print(
            f"  {row['keys']:<7} {row['count']:>10,} keys  {row['bytes_per_key']:6.1f} bytes/key measured"
            f" ({row['accounted_bytes_per_key']:.1f} accounted)  built in {row['build_s']:.2f} s,"
            f" longest block {row['longest_block_s']:.2f} s; snapshot {row['snapshot_s']:.2f} s,"
            f" install {row['install_s']:.2f} s"
        )
    if options.json:
        options.json.write_text(json.dumps({"speed": speeds, "memory": built}, indent=1))


if __name__ == "__main__":
    main()
