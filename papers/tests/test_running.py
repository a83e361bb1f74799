"""Running: what is written, what is returned, and what happens when an experiment fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
import pytest

from evenflow.errors import InputError
from evenflow.plot.picture import Heat, Panel, Picture, Series
from papers import running
from papers.experiment import Experiment, Outcome, Settings, Verdict
from papers.results import Result, command_of, read_results, to_json
from papers.rules import Rule, Statement
from papers.running import Failure, run_many, run_one

PROMISED = {
    "id", "figure", "title", "rule", "engine", "quick", "seed", "seconds", "verdict", "checks", "data", "picture",
    "command",
}  # fmt: skip


def picture() -> Picture:
    """One of everything that can be drawn."""
    return Picture(
        [
            Panel(
                "lines", "time (s)", "load", [Series("a", [1, 2, 3], [1.0, 2.0, 4.0], low=[0, 1, 2], high=[2, 3, 6])]
            ),
            Panel("steps", "time (s)", "lanes", [Series("b", [1, 2], [1.0, 2.0], "steps")], marks=[(1.5, "a move")]),
            Panel("points", "x", "y", [Series("c", [1.0], [2.0], "points", [1.5], [2.5])], log_x=True, log_y=True),
            Panel("bars", "policy", "bytes", [Series(n, ["even", "static-ish"], [1.0, 2.0], "bars") for n in "de"]),
            Panel("table", "load", "policy", heat=Heat(["r"], ["s", "t"], [[1.0, float("nan")]], "ms")),
        ]
    )


def experiment(outcome: Outcome | Exception, id_: str = "GZ-E1") -> Experiment:
    def run(settings: Settings) -> Outcome:
        settings.progress(0.5)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return Experiment(id_, "Fig. 0", "a title", RULE, run)


EQUAL = Statement("x", ("as published", lambda ours, published: ours == published), ("near", lambda ours, _: ours > 1))
RULE = Rule((EQUAL,), "Written before the run.")
CHECKS = (EQUAL.check((1, 1), "1", "1", ""), EQUAL.check((3, 2), "2", "3", "noise", "y"))


def run_fake(outcome: Outcome | Exception, out: Path, settings: Settings | None = None) -> Result | Failure:
    out.mkdir(exist_ok=True)
    with mock.patch.object(running, "experiment_with", lambda id_: experiment(outcome, id_)):
        return run_one("GZ-E1", settings or Settings(), out)


def test_a_run_leaves_a_picture_and_the_promised_json(tmp_path: Path) -> None:
    data = {"array": np.arange(3), "number": np.float64(2.5), "none": float("inf")}
    result = run_fake(Outcome(CHECKS, picture(), data, "a note", (7, 8)), tmp_path, Settings(quick=True, seed=7))
    assert isinstance(result, Result)
    assert result.verdict is Verdict.SHAPE  # the worst of its checks
    assert Path(str(result.picture)).read_bytes().startswith(b"\x89PNG")
    stored = json.loads((tmp_path / "GZ-E1.json").read_text())
    assert set(stored) >= PROMISED
    assert stored["checks"][1] == {
        "what": "y", "published": "2", "ours": "3", "verdict": "shape holds", "why": "noise",
        "statement": "x", "values": [3, 2],
    }  # fmt: skip
    assert stored["data"] == {"array": [0, 1, 2], "number": 2.5, "none": None}
    assert stored["command"] == "python -m papers run GZ-E1 --seed 7 --quick"
    assert stored["seeds"] == [7, 8]
    [again] = read_results(tmp_path)
    assert msgspec.json.decode(to_json(again)) == stored


def test_without_a_picture_there_is_none(tmp_path: Path) -> None:
    result = run_fake(Outcome(CHECKS), tmp_path)
    assert isinstance(result, Result)
    assert result.picture is None


def test_a_failure_is_told_apart_from_a_verdict(tmp_path: Path) -> None:
    failed = run_fake(ZeroDivisionError("by zero"), tmp_path)
    assert isinstance(failed, Failure)
    assert failed.error.startswith("ZeroDivisionError: by zero (test_running.py, line ")
    refused = run_fake(InputError("not like this"), tmp_path)
    assert refused == Failure("GZ-E1", "not like this")
    assert not list(tmp_path.iterdir())


def test_spark_runs_have_files_and_commands_of_their_own(tmp_path: Path) -> None:
    result = run_fake(Outcome(CHECKS), tmp_path, Settings(engine="spark"))
    assert isinstance(result, Result)
    assert (tmp_path / "GZ-E1.spark.json").exists()
    assert command_of(experiment(Outcome(CHECKS)), Settings(engine="spark")).endswith("--seed 1 --engine spark")


def test_several_processes_give_the_same_in_the_same_order(tmp_path: Path) -> None:
    from papers.catalogue import select

    chosen = select(["GZ-E9", "GZ-E1"], "sim").experiments
    results = [list(run_many(chosen, Settings(quick=True), tmp_path / str(n), n)) for n in (1, 2)]
    ids = [[one.id for one in run] for run in results]
    assert ids == [["GZ-E9", "GZ-E1"]] * 2
    data = [[one.data for one in run if isinstance(one, Result)] for run in results]
    assert to_json(data[0]) == to_json(data[1])


def test_folders_that_cannot_be_written_and_no_processes_are_refused(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(InputError, match="give another folder with --out"):
        next(run_many([], Settings(), blocked / "below", 1))
    with pytest.raises(InputError, match="at least 1 process"):
        next(run_many([], Settings(), tmp_path, 0))


@pytest.mark.parametrize("file", ["GZ-E1.json", "GZ-E1.png"])
def test_a_folder_where_a_file_shall_be_is_refused_before_the_run(tmp_path: Path, file: str) -> None:
    (tmp_path / file).mkdir()
    with pytest.raises(InputError, match=rf"{file}: it is a folder"):
        next(run_many([experiment(AssertionError("it was run"))], Settings(), tmp_path, 1))


def test_a_folder_that_is_there_but_takes_no_files_is_refused_before_the_run(tmp_path: Path) -> None:
    with (
        mock.patch.object(running, "TemporaryFile", side_effect=PermissionError(13, "Permission denied")),
        pytest.raises(InputError, match=r"cannot write to .*: Permission denied; give another folder with --out"),
    ):
        next(run_many([experiment(AssertionError("it was run"))], Settings(), tmp_path, 1))


@pytest.mark.parametrize("file", ["GZ-E1.json", "GZ-E1.png"])
def test_what_cannot_be_written_in_the_end_is_a_failure_of_this_one_alone(tmp_path: Path, file: str) -> None:
    (tmp_path / file).mkdir()
    failed = run_fake(Outcome(CHECKS, picture()), tmp_path)
    assert failed == Failure(
        "GZ-E1", f"cannot write to {tmp_path / file}: Is a directory; give another folder with --out"
    )


def test_results_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results in"):
        read_results(tmp_path)
    (tmp_path / "GZ-E1.json").write_text('{"id": 3}')
    with pytest.raises(InputError, match=r"GZ-E1.json is no result"):
        read_results(tmp_path)


def test_experiments_must_give_plain_values() -> None:
    with pytest.raises(TypeError, match="plain values, got object"):
        to_json({"x": object()})


def test_checks_that_do_not_follow_the_rule_are_a_defect_and_no_verdict(tmp_path: Path) -> None:
    flattered = replace(CHECKS[1], verdict=Verdict.MATCH)
    failure = run_fake(Outcome((CHECKS[0], flattered)), tmp_path)
    assert failure == Failure(
        "GZ-E1", "the checks do not follow the rule: 'y' is 'match' but its rule says 'shape holds'"
    )
    assert not list(tmp_path.iterdir())
