"""`evenflow simulate` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evenflow.control.window_json import write_journal_json
from tests.sim.test_replay import recorded
from tests.sim.test_scenario_file import LEAST
from tests.test_cli import answer, run


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "s.toml"
    file.write_text(LEAST)
    return str(file)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("journal") / "j.json"
    file.write_bytes(write_journal_json(recorded().journal))
    return str(file)


def test_it_prints_the_timeline_and_a_summary(scenario: str) -> None:
    done = run("simulate", scenario)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert "policy even" in lines[0]
    assert "busy, lane by lane" in lines[1]
    assert len(lines) == 2 + 4 + 1
    assert "moves" in lines[-1]


def test_json_has_rows_moves_and_a_summary(scenario: str) -> None:
    found = answer("simulate", scenario, "--policy", "static", "--seed", "3")
    assert (found["policy"], found["seed"], found["moves"]) == ("static", 3, [])
    assert len(found["rows"]) == 4
    assert found["summary"]["lost"] == 0


def test_it_draws(scenario: str, tmp_path: Path) -> None:
    assert run("simulate", scenario, "--png", str(tmp_path / "s.png")).returncode == 0
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_a_journal_is_replayed_and_planned_on(journal: str) -> None:
    found = answer("simulate", "--replay", journal, "--policy", "flux-load")
    assert found["policy"] == "flux-load"
    assert found["rows"][0]["recorded_imbalance"] is not None
    assert "as recorded" in run("simulate", "--replay", journal).stdout
    assert answer("plan", journal)["moves"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "either a SCENARIO.toml or --replay"),
        (("no.toml",), "cannot read no.toml"),
        (("{scenario}", "--policy", "evn"), "there is no policy named 'evn'"),
        (("{scenario}", "--png", "/no/such/folder/x.png"), "--png expects a file in a folder that exists"),
        (("--replay", "{scenario}"), "is not JSON"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], words: str, scenario: str) -> None:
    done = run("simulate", *(argument.replace("{scenario}", scenario) for argument in arguments))
    assert done.returncode == 2
    assert words in done.stderr
    assert json.dumps(done.stderr).count("\\n") == 1
