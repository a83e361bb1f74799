"""The commands of `python -m papers`: the promised JSON, and one plain line for every mistake."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from papers import running
from papers.commands import main

ROOT = Path(__file__).parents[2]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str) -> Done:
    """Run the command in this process; starting a new one each time would be most of the test's time."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with mock.patch.object(sys, "argv", ["papers", *arguments]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def answer(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_works_from_the_root_of_a_checkout() -> None:
    command = [sys.executable, "-m", "papers", "list", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)) == 52
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["GZ-E99"], "there is no experiment named 'GZ-E99'; near it:"),
        (["run", "GZ-E9", "--engine", "flink"], "--engine is sim or spark, got 'flink'"),
        (["run", "GZ-E9", "--engine", "spark"], "GZ-E9 has no run on spark: it runs on sim only"),
        (["report", "--from", "nowhere"], "there are no results in nowhere"),
    ],
)
def test_mistakes_get_one_plain_line(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"papers: {message}")
    assert len(done.stderr.strip().splitlines()) == 1


def test_every_experiment_is_listed() -> None:
    rows = answer("list")
    assert {"id", "figure", "title", "engines", "rule"} <= rows[0].keys()
    assert "GZ-E1" in {row["id"] for row in rows}
    assert len(run("list").stdout.splitlines()) == len(rows)


def test_a_run_prints_one_object_for_one_id_and_a_list_for_several(tmp_path: Path) -> None:
    one = answer("GZ-E9", "--quick", "--out", str(tmp_path))
    assert (one["id"], one["verdict"], one["quick"]) == ("GZ-E9", "match", True)
    assert (tmp_path / "GZ-E9.json").exists()
    several = answer("--quick", "GZ-E9", "gz-e9", "--out", str(tmp_path), "--processes", "1")
    assert [row["id"] for row in several] == ["GZ-E9"]


def test_a_run_prints_a_row_for_people(tmp_path: Path) -> None:
    done = run("GZ-E9", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0
    assert "published" in done.stdout
    assert done.stdout.startswith("GZ-E9 eq. 1 and 2")
    assert "(sim, quick; seed 1: one run; " in done.stdout
    report = run("report", "--from", str(tmp_path), "--to", str(tmp_path / "page.md"))
    assert report.stdout.startswith("1 results in")
    assert " ".join(report.stdout.split()).endswith(f"1 of them from {tmp_path}")
    assert "### GZ-E9" in (tmp_path / "page.md").read_text()
    page = str(tmp_path / "page.md")
    assert answer("report", "--from", str(tmp_path), "--to", page) == {
        "taken": 1,
        "quick": 0,
        "results": 1,
        "page": page,
    }


def test_it_tells_what_cannot_be_run(tmp_path: Path) -> None:
    def broken(id_: str, *_: object) -> running.Failure:
        return running.Failure(id_, "out of luck")

    with mock.patch.object(running, "run_one", broken):
        done = run("GZ-E9", "--out", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.strip() == "papers: GZ-E9 could not be run: out of luck"
