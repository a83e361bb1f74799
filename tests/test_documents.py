"""What the documents show works: every Python block runs, and a text block right after one is what it prints."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from evenflow.policies import POLICIES

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\s*```text\n(?P<output>.*?)```)?", re.DOTALL)
BLOCKS = [(path, match) for path in DOCUMENTS for match in BLOCK.finditer(path.read_text())]


@pytest.mark.parametrize(("path", "block"), BLOCKS, ids=[f"{path.name}@{match.start()}" for path, match in BLOCKS])
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


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(path: Path) -> None:
    with redirect_stdout(io.StringIO()):
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})  # noqa: S102 - it is our own text
