"""The layers of the package, as a checked table: a module imports from its own package or from layers below."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "evenflow"

# Top first. Packages on one line are siblings and never import each other.
LAYERS: list[set[str]] = [
    {"cli", "dashboard", "testing"},
    {"demo"},
    {"sim", "spark"},
    {"engine"},
    {"control", "lane"},
    {"policies", "migration", "state", "operators", "workloads", "plot"},
    {"model"},
    {"errors", "log"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# Libraries that only some packages may import.
FENCED: dict[str, set[str]] = {
    "pyspark": {"spark", "workloads"},
    "py4j": {"spark"},
    "typer": {"cli"},
    "rich": {"cli", "demo"},
    "matplotlib": {"plot", "demo"},
    "PIL": {"plot"},
    "datasketches": {"operators"},
    "scipy": set(),
    "mmh3": set(),
}
# Beside the package in a checkout, and not in the wheel.
OUTSIDE = {"papers", "tests", "benchmarks", "tools", "examples"}
# The decision core must not reach for the world: no clock, no files, no network, no hidden randomness.
PURE = {"model", "policies", "migration", "control", "engine"}
WORLDLY = {"time", "datetime", "os", "pathlib", "socket", "subprocess", "threading", "random", "shutil", "tempfile"}

MOST_LINES = 400  # of a file in src


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports_of(path: Path) -> Iterator[str]:
    """Yield the full names of all modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down(path: Path) -> None:
    here = package_of(path)
    if here == "__init__":
        return  # the front door may show any public name
    assert here in LEVEL, f"{here} is in no layer: add it to LAYERS and to the design"
    for name in imports_of(path):
        root, *rest = name.split(".")
        assert root not in OUTSIDE, f"{path.name} imports {name}, which users do not install"
        if root in FENCED:
            assert here in FENCED[root], f"{path.name} imports {name}, which only {sorted(FENCED[root])} may"
        if here in PURE:
            assert root not in WORLDLY, f"{path.name} imports {name}: the decision core does no I/O"
        if root == "evenflow" and rest:
            there = rest[0]
            assert there in LEVEL, f"{path.name} imports evenflow.{there}, which is in no layer"
            assert there == here or LEVEL[there] > LEVEL[here], f"{here} may not import {there}: it is not below"


def test_papers_stand_on_the_package_alone() -> None:
    """The research uses what users install; it never leans on the product's tests or benchmarks."""
    files = sorted((ROOT / "papers").rglob("*.py"))
    assert files
    leaning = [
        (file.name, name) for file in files for name in imports_of(file) if name.split(".")[0] in OUTSIDE - {"papers"}
    ]
    assert leaning == []


def test_every_module_says_its_duty() -> None:
    silent = [path for path in modules() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_no_file_is_longer_than_one_duty_needs() -> None:
    long = {str(path.relative_to(ROOT)): lines for path in modules() if (lines := _lines(path)) > MOST_LINES}
    assert long == {}, "split by duty"


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_module_is_named_after_nothing() -> None:
    assert not {"utils", "common", "helpers", "misc"} & {path.stem for path in modules()}
