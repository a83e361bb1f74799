"""What the documents show works: every Python block runs, and a text block right after one is what it prints."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evenflow.control.window_json import LaneJson, SlotJson, WindowJson, read_window_json
from evenflow.policies import POLICIES

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "papers").glob("*.md"))]
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\s*```text\n(?P<output>.*?)```)?", re.DOTALL)
BLOCKS = [(path, match) for path in DOCUMENTS for match in BLOCK.finditer(path.read_text())]
PROGRAMS = {path.read_text(): path for path in sorted((ROOT / "examples").glob("*.py"))}
# Runs programs in one session, since starting Spark takes longest; prints what each has printed as one JSON object.
RUN_ALL = """
import contextlib, io, json, sys
printed = {}
for path in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(open(path).read(), path, "exec"), {"__name__": "__main__"})
    printed[path] = out.getvalue()
print(json.dumps(printed))
"""


SHORT = [(path, match) for path, match in BLOCKS if match["code"] not in PROGRAMS]


@pytest.mark.parametrize(("path", "block"), SHORT, ids=[f"{path.name}@{match.start()}" for path, match in SHORT])
def test_code_blocks_run_and_print_what_is_shown(path: Path, block: re.Match[str], tmp_path: Path) -> None:
    """In a process of its own: a block may start Spark, whose relative paths begin where its JVM was started."""
    done = subprocess.run(
        [sys.executable, "-c", block["code"]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{path}:\n{done.stderr}"
    if block["output"] is not None:
        assert done.stdout.strip() == block["output"].strip()


def test_the_readme_shows_code() -> None:
    assert any(path.name == "README.md" for path, _ in BLOCKS)
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_documented(name: str) -> None:
    assert f"`{name}`" in (ROOT / "README.md").read_text()
    assert f"`{name}`" in (ROOT / "docs" / "policies.md").read_text()


@pytest.mark.spark
def test_examples_print_what_the_page_shows(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *map(str, PROGRAMS.values())],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    shown = {str(PROGRAMS[match["code"]]): match["output"] for _, match in BLOCKS if match["code"] in PROGRAMS}
    assert {path: printed[path].strip() for path in shown} == {path: text.strip() for path, text in shown.items()}


def test_the_operators_page_shows_the_programs() -> None:
    shown = {
        PROGRAMS[match["code"]].stem for path, match in BLOCKS if path.stem == "operators" and match["code"] in PROGRAMS
    }
    assert shown == {"top_k", "dedup", "sessions", "enrichment", "upsert"}


def test_every_field_of_a_window_is_documented() -> None:
    page = (ROOT / "docs" / "window-json.md").read_text()
    fields = [f"`lanes[].{name}`" for name in LaneJson.__struct_fields__]
    fields += [f"`slots[].{name}`" for name in SlotJson.__struct_fields__]
    fields += [f"`{name}`" for name in WindowJson.__struct_fields__ if name not in ("lanes", "slots")]
    assert [field for field in fields if f"| {field} |" not in page] == []


def test_the_example_window_can_be_planned() -> None:
    """It is no Python, so no other test runs it."""
    page = (ROOT / "docs" / "window-json.md").read_text()
    found = re.search(r"```text\n(\{.*?\n\})\n```", page, re.DOTALL)
    assert found is not None
    assert read_window_json(found[1].encode()).labels == (0, 1, 2)


def test_where_even_stands_is_on_the_page_that_the_readme_links_to() -> None:
    claim = re.search(r"\d+ of \d+ combinations", (ROOT / "README.md").read_text())
    assert claim is not None
    assert claim[0] in (ROOT / "docs" / "choosing-a-policy.md").read_text()


def names_in(path: Path) -> set[str]:
    """Return what a module defines: its functions, classes and constants, and `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_name_in_the_code_that_a_page_refers_to_exists(path: Path) -> None:
    """Under `src/evenflow`, or from the top: `state/files.py::Folder`, `tests/test_documents.py::names_in`."""
    source = ROOT / "src" / "evenflow"
    references = re.findall(r"`([\w/]+\.py)::([\w.]+)`", path.read_text())
    missing = [
        f"{file}::{name}"
        for file, name in references
        if not any(place.exists() and name in names_in(place) for place in (source / file, ROOT / file))
    ]
    assert missing == []


def test_the_architecture_page_walks_through_the_code() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    packages = {file.split("/")[0] for file in re.findall(r"`([\w/]+\.py)::", page)}
    assert packages >= {"spark", "state", "engine", "lane", "control", "migration", "operators"}
