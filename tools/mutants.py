"""Mutation testing with cosmic-ray: a sample of a package's mutants, and which of them no test notices.

    python tools/mutants.py engine --sample 150 --seed 1     150 mutants of the package, drawn by the seed
    python tools/mutants.py state                            all mutants of a package: hours
    python tools/mutants.py engine --again                   those that survived the last run: do they still?

cosmic-ray makes the mutants and runs the tests on each, in a copy of the tree (`.mutants/`), until one fails. It draws
no samples, so they are drawn here. `TESTS` says which tests a package has: quick ones, without Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.commands import execute, init
from cosmic_ray.config import ConfigDict
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

ROOT = Path(__file__).parent.parent
KEPT = ROOT / ".mutants"
SOURCE = Path("src/evenflow")
_ENGINE = tuple(f"tests/engine/test_{name}.py" for name in ("parts", "stages", "elastic", "ticks", "machine", "away"))
TESTS = {  # the quick ones first: most mutants end there
    "engine": (*_ENGINE, "tests/engine/test_small_world.py", "tests/scenarios/test_random_lives.py"),
    "state": (
        *(f"tests/state/test_{name}.py" for name in ("snapshots", "outputs", "power_cut", "checkpoint", "requests")),
        "tests/state",
        "tests/engine/test_stages.py",
    ),
    "lane": (
        "tests/lane",
        "tests/engine/test_stages.py",
        "tests/scenarios/test_cut.py",
        "tests/spark/test_lane_links.py",
    ),
    "control": ("tests/control", "tests/migration", "tests/engine/test_machine.py", "tests/engine/test_elastic.py"),
}
# `X | None` in annotations, which nothing evaluates, is most of what this operator finds.
_LEFT_OUT = re.compile("core/ReplaceBinaryOperator_BitOr_")
# The seeds of tests that are drawn anew with every run: all mutants get the same tests.
_SEEDS = ("EVENFLOW_TICKS", "EVENFLOW_LIFE", "EVENFLOW_TAKEOVERS", "EVENFLOW_CUTS", "EVENFLOW_CHANGES")


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of the source."""

    module: str
    line: int
    operator: str
    occurrence: int

    @classmethod
    def of(cls, item: Any) -> Mutant:
        """Return the mutant that an item of cosmic-ray's work is about."""
        (change,) = item.mutations
        return cls(change.module_path.name, change.start_pos[0], change.operator_name, change.occurrence)


def drawn(found: Iterable[Mutant], sample: int | None, seed: int) -> set[Mutant]:
    """Return so many of the mutants, always the same for a seed."""
    known = sorted(found)
    if sample is None or sample >= len(known):
        return set(known)
    return set(random.Random(seed).sample(known, sample))


def copied(package: str) -> Path:
    """Return a fresh copy of what the tests need."""
    place = KEPT / package
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in ("src", "tests", "papers", "benchmarks", "conftest.py", "pyproject.toml"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place / name)
    return place


def command_of(tests: Sequence[str]) -> list[str]:
    """Return how the tests are run."""
    told = (
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not spark",
        "--timeout",
        "60",
        "--hypothesis-profile",
        "mutants",
    )
    return [sys.executable, "-m", "pytest", *told, *tests]


def chosen_of(database: WorkDB, options: argparse.Namespace) -> tuple[set[Mutant], int]:
    """Return the mutants to try, and how many there are."""
    found = {Mutant.of(item) for item in database.work_items if not _LEFT_OUT.match(item.mutations[0].operator_name)}
    if options.module:
        found = {mutant for mutant in found if mutant.module == f"{options.module}.py"}
    if options.again:
        lived = {Mutant(**each) for each in json.loads((KEPT / f"{options.package}.json").read_text())}
        places = {(mutant.module, mutant.operator, mutant.occurrence) for mutant in lived}
        return {each for each in found if (each.module, each.operator, each.occurrence) in places}, len(found)
    return drawn(found, options.sample, options.seed), len(found)


def tried(place: Path, command: list[str], options: argparse.Namespace) -> None:
    """Try mutants in the copy at `place`, where this process is; print those that survive, and how many do not."""
    began = time.monotonic()
    if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f"the tests fail before anything is changed: {' '.join(command)}, in {place}")
    config = ConfigDict(
        {
            "test-command": " ".join(f"'{part}'" for part in command),
            "timeout": 30 + 4 * (time.monotonic() - began),  # a test that a mutant hangs has noticed it
            "distributor": {"name": "local"},
        }
    )
    with use_db("session.sqlite", WorkDB.Mode.create) as database:
        init(sorted((SOURCE / options.package).glob("*.py")), database, {})
        chosen, known = chosen_of(database, options)
        others = [item.job_id for item in database.work_items if Mutant.of(item) not in chosen]
        database.set_multiple_results(others, WorkResult(worker_outcome=WorkerOutcome.SKIPPED))
        print(f"{options.package}: {len(chosen)} of {known} mutants are tried", flush=True)
        execute(database, config)
        results = [(Mutant.of(item), result) for item, result in database.completed_work_items]
    lived = {mutant: result for mutant, result in results if result.test_outcome is TestOutcome.SURVIVED}
    strange = [result.output for _, result in results if result.worker_outcome is WorkerOutcome.EXCEPTION]
    for mutant, result in sorted(lived.items()):
        changed = [line for line in result.diff.splitlines() if re.match(r"[-+](?!--|\+\+)", line)]
        print(f"\nsurvived: {mutant.module}:{mutant.line} {mutant.operator} {mutant.occurrence}", *changed, sep="\n  ")
    print("", *strange, sep="\n")
    count = len(chosen) - len(strange)
    print(f"{options.package}: {count - len(lived)} of {count} killed, of {known} mutants", flush=True)
    (KEPT / f"{options.package}.json").write_text(json.dumps([asdict(mutant) for mutant in sorted(lived)]))


def main() -> None:
    """Try the mutants of a package, or some of them."""
    parser = argparse.ArgumentParser(description="Mutation testing of a package, or of a sample of its mutants.")
    parser.add_argument("package", choices=sorted(TESTS))
    parser.add_argument("--module", help="this one only")
    parser.add_argument("--sample", type=int, help="so many mutants; all without")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--again", action="store_true", help="those that survived the last run of the package")
    options = parser.parse_args()
    place = copied(options.package)
    os.chdir(place)
    os.environ |= {"PYTHONPATH": f"{place / 'src'}:{place}", **dict.fromkeys(_SEEDS, "1")}
    tried(place, command_of(TESTS[options.package]), options)


if __name__ == "__main__":
    main()
