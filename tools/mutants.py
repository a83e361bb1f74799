"""Mutation testing with cosmic-ray: a sample of a package's mutants, and which of them no test notices.

    python -m tools.mutants engine --sample 150 --seed 1     150 mutants of the package, drawn by the seed
    python -m tools.mutants state                            all mutants of a package: hours
    python -m tools.mutants engine --again                   those that survived the last run: do they still?

cosmic-ray makes the mutants, in a copy of the tree (`.mutants/`). On each run the tests that execute the changed line,
the quick ones first, until one fails. `TESTS` says which tests a package has: those without Spark. `mutable` says what
is not changed: annotations, texts, and the like.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tools.mutable import Places
from tools.mutant_tests import Outcome, Seen, judged, prepare, seen

ROOT = Path(__file__).parent.parent
KEPT = ROOT / ".mutants"
SOURCE = Path("src/evenflow")
TESTS = {
    "engine": ("tests/engine", "tests/scenarios/test_random_lives.py"),
    "state": ("tests/state", "tests/engine/test_stages.py", "tests/engine/test_machine.py"),
    "lane": ("tests/lane", "tests/engine", "tests/scenarios/test_cut.py", "tests/spark/test_lane_links.py"),
    "control": ("tests/control", "tests/migration", "tests/engine/test_machine.py", "tests/engine/test_elastic.py"),
}
# The seeds of tests that are drawn anew with every run: all mutants get the same tests.
_SEEDS = ("EVENFLOW_TICKS", "EVENFLOW_LIFE", "EVENFLOW_TAKEOVERS", "EVENFLOW_CUTS", "EVENFLOW_CHANGES")
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")  # a process with threads is not to be forked


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of the source."""

    module: str
    line: int
    operator: str
    occurrence: int

    @property
    def name(self) -> str:
        """What is changed into what, and which place of the module where that is possible."""
        return f"{self.module}:{self.line} {self.operator.removeprefix('core/')} {self.occurrence}"


def mutants_of(path: Path) -> list[Mutant]:
    """Return all mutants of a module that are worth a try."""
    source = path.read_text()
    places, tree = Places(source), get_ast(source)
    found = []
    for operator in operator_names():
        maker = get_operator(operator)
        if maker.arguments():
            continue
        starts = (start for node in ast_nodes(tree) for start, _ in maker().mutation_positions(node))
        found += [
            Mutant(path.name, start[0], operator, occurrence)
            for occurrence, start in enumerate(starts)
            if places.tried(start, operator)
        ]
    return found


def drawn(found: Iterable[Mutant], sample: int | None, seed: int) -> list[Mutant]:
    """Return so many of the mutants, always the same for a seed."""
    known = sorted(found)
    if sample is None or sample >= len(known):
        return known
    return sorted(random.Random(seed).sample(known, sample))


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


def tried(mutant: Mutant, folder: Path, known: Seen) -> tuple[Outcome, list[str]]:
    """Return what became of a mutant of a module in `folder`, and the lines that it changes."""
    path = folder / mutant.module
    source = path.read_text()
    tests = known.concerned(mutant.module, Places(source).lines(mutant.line))
    changed = mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)
    try:
        path.write_text(changed)
        outcome = judged(tests, known.seconds)
    finally:
        path.write_text(source)
    diff = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
    return outcome, [line for line in diff if not line.startswith(("---", "+++", "@@"))]


def interval(killed: int, tries: int) -> tuple[float, float]:
    """Return between which shares the killed ones of all mutants lie, 19 times out of 20 (Wilson's interval)."""
    share, z = killed / tries, 1.96
    middle, spread = share + z * z / (2 * tries), z * math.sqrt(share * (1 - share) / tries + z * z / (4 * tries**2))
    return (middle - spread) / (1 + z * z / tries), (middle + spread) / (1 + z * z / tries)


def chosen_of(found: list[Mutant], options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants to try."""
    if options.module:
        found = [mutant for mutant in found if mutant.module == f"{options.module}.py"]
    if options.again:
        lived = [Mutant(**each) for each in json.loads((KEPT / f"{options.package}.json").read_text())]
        places = {(mutant.module, mutant.operator, mutant.occurrence) for mutant in lived}
        return [each for each in found if (each.module, each.operator, each.occurrence) in places]
    return drawn(found, options.sample, options.seed)


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
    os.environ |= {"PYTHONPATH": f"{place / 'src'}:{place}", **dict.fromkeys((*_SEEDS, *_THREADS), "1")}
    prepare(place)
    folder = place / SOURCE / options.package
    found = [mutant for path in sorted(folder.glob("*.py")) for mutant in mutants_of(path)]
    chosen = chosen_of(found, options)
    print(f"{options.package}: {len(chosen)} of {len(found)} mutants are tried", flush=True)
    began = time.monotonic()
    known = seen(TESTS[options.package], folder)
    print(f"{len(known.seconds)} tests, {time.monotonic() - began:.0f} s", flush=True)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)  # compiled before the changes
    outcomes: Counter[Outcome] = Counter()
    lived = []
    for mutant in chosen:
        outcome, lines = tried(mutant, folder, known)
        outcomes[outcome] += 1
        if outcome is Outcome.SURVIVED:
            lived.append(mutant)
            print(f"\nsurvived: {mutant.name}", *lines, sep="\n  ", flush=True)
        (KEPT / f"{options.package}.json").write_text(json.dumps([asdict(each) for each in lived]))
    noticed = len(chosen) - len(lived)
    low, high = interval(noticed, len(chosen))
    print(
        f"\n{options.package}: {len(found)} mutants, {len(chosen)} tried (seed {options.seed}): "
        f"{outcomes[Outcome.KILLED]} killed, {outcomes[Outcome.TIMEOUT]} timed out, {len(lived)} survived: "
        f"{noticed / len(chosen):.1%}, 95 % interval {low:.1%} to {high:.1%}; {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
