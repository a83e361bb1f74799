"""`evenflow simulate` on the command line."""

from __future__ import annotations

import errno
import json
import shlex
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


def test_the_timeline_in_the_documentation_is_what_the_command_prints() -> None:
    home = Path(__file__).parents[1]
    shown = (home / "docs" / "simulator.md").read_text().split("```text\n")[1].split("     ...\n")[0]
    assert "moves" in shown
    assert run("simulate", str(home / "examples" / "hot_lane.toml")).stdout.startswith(shown)


def test_json_has_rows_moves_and_a_summary(scenario: str) -> None:
    found = answer("simulate", scenario, "--policy", "static", "--seed", "3")
    assert (found["policy"], found["seed"], found["moves"]) == ("static", 3, [])
    assert len(found["rows"]) == 4
    assert found["summary"]["lost"] == 0


def test_the_real_engine_gives_the_same_kind_of_answer(scenario: str, journal: str) -> None:
    real, quantum = (answer("simulate", scenario, "--engine", engine) for engine in ("real", "quantum"))
    assert real["engine"] == "real"
    assert real["rows"][0].keys() == quantum["rows"][0].keys()
    assert real["summary"]["arrived"] == quantum["summary"]["arrived"]
    assert answer("simulate", "--replay", journal, "--engine", "real")["summary"]["records"] > 0


def test_a_lane_dies_and_comes_back_on_the_real_engine_only(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(LEAST + '[[event]]\nkind = "kill-lane"\nat_s = 1.5\nlanes = [0]\n')
    done = run("simulate", str(file))
    assert done.returncode == 2
    assert "or use 'real'" in done.stderr
    killed = answer("simulate", str(file), "--engine", "real", "--policy", "static")
    file.write_text(LEAST)
    alive = answer("simulate", str(file), "--engine", "real", "--policy", "static")
    assert max(row["waiting"] for row in killed["rows"]) > max(row["waiting"] for row in alive["rows"])
    assert killed["summary"]["lost"] == 0


def test_it_draws(scenario: str, tmp_path: Path) -> None:
    assert run("simulate", scenario, "--png", str(tmp_path / "s.png")).returncode == 0
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_a_title_is_printed_and_drawn_as_it_stands(tmp_path: Path) -> None:
    title = r"[slow] records [/s] at $5 and $\frac$"
    file = tmp_path / "s.toml"
    file.write_text(f"title = '{title}'\n{LEAST}")
    done = run("simulate", str(file), "--png", str(tmp_path / "s.png"))
    assert done.returncode == 0
    assert done.stdout.startswith(f"{title} (policy even")


@pytest.mark.parametrize("options", [[], ["--strategy", "fluid"], ["--policy", "even", "--seed", "3"]])
def test_the_command_below_the_figure_gives_the_same_run(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "with a space.toml"
    file.write_text(LEAST + 'start_s = 1\n[balance]\npolicy = "flux-load"\npolicy_options = { th_imb = 9.0 }\n')
    captions: list[str] = []
    monkeypatch.setattr("evenflow.plot.drawing.draw", lambda *given: captions.append(given[2]))
    done = answer("simulate", str(file), *options, "--png", str(tmp_path / "s.png"))
    assert answer(*shlex.split(captions[0])[1:]) == done


def test_what_was_found_is_told_even_if_the_figure_cannot_be_written(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("evenflow.plot.drawing.draw", full)
    done = run("simulate", scenario, "--png", str(tmp_path / "s.png"))
    assert done.returncode == 2
    assert "moves" in done.stdout
    assert done.stderr.startswith("evenflow: simulate: cannot write the figure to ")
    assert done.stderr.endswith("s.png: No space left on device\n")


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
        (("{scenario}", "--engine", "spark"), "--engine is one of quantum, real, got 'spark'"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], words: str, scenario: str) -> None:
    done = run("simulate", *(argument.replace("{scenario}", scenario) for argument in arguments))
    assert done.returncode == 2
    assert words in done.stderr
    assert json.dumps(done.stderr).count("\\n") == 1
