"""How the folders stand to each other: what is shared knows no paper, and every module says its duty."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PAPERS = Path(__file__).parents[1]
FOLDERS = ("autoflow", "reconfiguration", "guo_zhou", "flux", "dpa")
MODULES = [path for path in sorted(PAPERS.rglob("*.py")) if "tests" not in path.parts]


def papers_named_by(path: Path) -> set[str]:
    """Return the folders of papers that a file imports from, also within functions."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    names = [(node.module or "").split(".") for node in nodes]
    return {name[1] for name in names if name[0] == "papers" and len(name) > 1 and name[1] in FOLDERS}


@pytest.mark.parametrize("path", sorted((PAPERS / "messages").glob("*.py")), ids=lambda path: path.stem)
def test_what_protocols_are_built_on_knows_none_of_them(path: Path) -> None:
    assert papers_named_by(path) == set()


@pytest.mark.parametrize("paper", FOLDERS)
def test_a_paper_stands_alone_unless_it_compares_itself_with_another(paper: str) -> None:
    """AF-E15 has Flux's way of moving beside AutoFlow's."""
    files = [path for path in (PAPERS / paper).rglob("*.py") if "tests" not in path.parts]
    others = {other for path in files for other in papers_named_by(path)} - {paper}
    assert others <= ({"flux"} if paper == "autoflow" else set())


@pytest.mark.parametrize("paper", FOLDERS)
def test_every_paper_has_its_rules_its_mechanisms_and_its_tests(paper: str) -> None:
    folder = PAPERS / paper
    assert all((folder / part).exists() for part in ("__init__.py", "rules.py", "mechanisms.toml"))
    assert list((folder / "tests").glob("test_*.py"))


def test_every_module_says_its_duty() -> None:
    assert [path for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []
