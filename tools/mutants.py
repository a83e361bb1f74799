"""Mutation testing: small changes of the source, one at a time, that some test should notice.

    python tools/mutants.py engine --sample 10 --seed 1     10 mutants of each module of the package, drawn by the seed
    python tools/mutants.py state --module ledger            all mutants of one module

A mutant turns a comparison or a logical operator round, moves a number by one, negates a condition, drops a statement
or a `return`'s value. The package's fast tests run on a copy of the tree and stop at the first that fails; a mutant
that no test notices has survived, and is printed with its line.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = "src/evenflow"
TESTS = {  # the quick ones first: most mutants end there
    "engine": ("tests/engine/test_parts.py", "tests/engine/test_machine.py", "tests/scenarios/test_random_lives.py"),
    "state": ("tests/state",),
    "lane": ("tests/lane", "tests/scenarios/test_cut.py", "tests/engine/test_machine.py"),
    "control": ("tests/control", "tests/machines"),
}
_TURNED: dict[type[ast.AST], ast.AST] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
    ast.And: ast.Or(),
    ast.Or: ast.And(),
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
}


def sites(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield where a mutant can be made, and which."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _TURNED:
            yield node, "comparison"
        elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in _TURNED:
            yield node, "operator"
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, "number"
        elif isinstance(node, ast.If | ast.IfExp):
            yield node, "condition"
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node, "statement"
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node, "return"


def mutate(node: ast.AST, kind: str) -> None:
    """Change a node in place."""
    if isinstance(node, ast.Compare):
        node.ops[0] = _TURNED[type(node.ops[0])]  # type: ignore[call-overload] # a comparison for a comparison
    elif isinstance(node, ast.BoolOp | ast.BinOp):
        node.op = _TURNED[type(node.op)]  # type: ignore[assignment] # of the same kind
    elif isinstance(node, ast.Constant):
        node.value = int(str(node.value)) + 1
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Expr | ast.Return):
        node.value = ast.Constant(None)
    else:
        raise TypeError(f"no {kind} in {ast.dump(node)}")


def mutants(text: str) -> list[tuple[int, str, str]]:
    """Return all mutants of a module: the line, what was changed, and the new text."""
    found = []
    for at in range(len(list(sites(ast.parse(text))))):
        tree = ast.parse(text)
        node, kind = list(sites(tree))[at]
        mutate(node, kind)
        found.append((getattr(node, "lineno", 0), kind, ast.unparse(ast.fix_missing_locations(tree))))
    return found


def is_killed(place: Path, tests: tuple[str, ...]) -> bool:
    """Tell whether a test fails on the tree at `place`; one that hangs does as well."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not spark", *tests]
    environment = os.environ | {"PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1", "EVENFLOW_LIFE": "1"}
    try:
        run = subprocess.run(command, cwd=place, env=environment, capture_output=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return True
    return run.returncode != 0


def main() -> None:
    """Go through the modules of a package."""
    parser = argparse.ArgumentParser(description="mutation testing")
    parser.add_argument("package", choices=sorted(TESTS))
    parser.add_argument("--module", help="this one only")
    parser.add_argument("--sample", type=int, help="so many mutants of each module; all without")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for name in ("src", "tests", "papers", "conftest.py", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, place / name)
        if is_killed(place, TESTS[options.package]):
            sys.exit("the tests fail before anything is changed")
        for path in sorted((place / SOURCE / options.package).glob(f"{options.module or '*'}.py")):
            text = path.read_text()
            found = mutants(text)
            if options.sample is not None:
                drawn = random.Random(f"{options.seed} {path.stem}")
                found = drawn.sample(found, min(options.sample, len(found)))
            survived = 0
            for line, kind, mutant in found:
                path.write_text(mutant)
                if not is_killed(place, TESTS[options.package]):
                    survived += 1
                    print(
                        f"  survived: {path.stem}.py:{line} {kind}: {text.splitlines()[line - 1].strip()}", flush=True
                    )
            path.write_text(text)
            if found:
                print(f"{options.package}/{path.name}: {len(found) - survived} of {len(found)} killed", flush=True)


if __name__ == "__main__":
    main()
