"""The command line: the promised JSON, and one plain line for every mistake."""

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

import evenflow
from evenflow.cli import main
from evenflow.migration import STRATEGIES
from evenflow.policies import POLICIES
from evenflow.workloads import WORKLOADS

EXECUTABLE = str(Path(sys.executable).with_name("evenflow"))


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str, given: str = "") -> Done:
    """Run the command in this process; starting a new one each time would be most of the test's time."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
    with (
        mock.patch.object(sys, "argv", ["evenflow", *arguments]),
        mock.patch.object(sys, "stdin", stdin),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def answer(*arguments: str, given: str = "") -> Any:
    done = run(*arguments, "--json", given=given)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def window(slots: list[dict[str, Any]], lanes: int = 2) -> str:
    return json.dumps({"lanes": [{"lane": lane} for lane in range(lanes)], "slots": slots})


HOT = window(
    [
        {"slot": slot, "lane": 0 if slot < 6 else 1, "records": 100, "busy_s": 0.1, "state_bytes": 10}
        for slot in range(8)
    ]
)


def test_the_installed_command_works() -> None:
    done = subprocess.run([EXECUTABLE, "plan", "-", "--json"], input=HOT, capture_output=True, text=True, check=False)
    assert len(json.loads(done.stdout)["moves"]) == 2
    assert done.stderr == ""


def test_the_version_is_the_packages() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"evenflow {evenflow.__version__}\n", "")


def test_plan_prints_the_promised_json() -> None:
    plan = answer("plan", "-", given=HOT)
    promised = {"moves", "steps", "before", "after", "bytes_moved", "lanes_wanted", "not_curable", "decide_s"}
    assert promised <= plan.keys()
    assert [set(move) for move in plan["moves"]] == [{"slot", "source", "target", "reason"}] * 2
    assert sum(len(step) for step in plan["steps"]) == 2
    assert plan["bytes_moved"] == 20
    assert plan["lanes_wanted"] == 2
    assert plan["before"]["max_over_mean"] == pytest.approx(1.5)
    assert plan["after"]["max_over_mean"] == pytest.approx(1.0)
    assert {"spread", "variance", "skew", "utilisation_ratio", "max_load"} <= plan["after"].keys()


def test_plan_says_what_no_move_can_cure() -> None:
    """One key has nearly all rows; slots are numbered as the file has them."""
    hot = [
        {"slot": slot, "lane": slot % 4, "records": count, "busy_s": count * 1e-5, "state_bytes": 10}
        for slot, count in {slot: 90_000 if slot == 117 else 150 for slot in range(100, 164)}.items()
    ]
    given = json.dumps([json.loads(window(hot, lanes=4))] * 3)
    plan = answer("plan", "-", given=given)
    assert (plan["moves"], plan["not_curable"]) == ([], [117])
    assert plan["note"].endswith("no move helps")
    shown = run("plan", "-", given=given).stdout
    assert "slot 117 cannot be cured by moving: it has 90% of the load, an even lane 25%" in shown
    assert "no move helps" in shown
    assert "even, but for noise" not in shown


def test_plan_draws_the_largest_loads_there_may_be() -> None:
    most = [
        {"slot": slot, "lane": slot // 6, "records": 10**15, "busy_s": 1e15, "pending": 10**15} for slot in range(8)
    ]
    done = run("plan", "-", given=window(most))
    assert done.returncode == 0, done.stderr
    assert "max/mean 1.500" in done.stdout


def test_plan_reads_a_file_and_several_windows(tmp_path: Path) -> None:
    path = tmp_path / "window.json"
    path.write_text(f"[{HOT}, {HOT}, {HOT}]")
    assert len(answer("plan", str(path), "--policy", "autoflow", "--strategy", "fluid")["steps"]) == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_answers(policy: str) -> None:
    assert answer("plan", "-", "--policy", policy, given=HOT)["lanes_wanted"] >= 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_carries_out_the_same_moves(strategy: str) -> None:
    plan = answer("plan", "-", "--strategy", strategy, given=HOT)
    steps = sorted((move["slot"], move["target"]) for step in plan["steps"] for move in step)
    assert steps == sorted((move["slot"], move["target"]) for move in plan["moves"])


def test_slot_numbers_need_not_be_dense() -> None:
    slots = [{"slot": 1000 + slot, "lane": 7 if slot < 6 else 9, "records": 5} for slot in range(8)]
    given = json.dumps({"lanes": [{"lane": 7}, {"lane": 9}], "slots": slots})
    plan = answer("plan", "-", given=given)
    assert {move["slot"] for move in plan["moves"]} < {1000 + slot for slot in range(8)}
    assert {move["source"] for move in plan["moves"]} == {7}


def test_elb_asks_for_lanes() -> None:
    plan = answer("plan", "-", "--policy", "elb", "--set", "lower=80", "--set", "upper=120", given=HOT)
    assert plan["lanes_wanted"] == 8


def test_bars_are_drawn_without_json() -> None:
    done = run("plan", "--example", "hot-lane")
    assert done.returncode == 0
    assert done.stdout.count("lane    0") == 2
    assert "█" in done.stdout
    assert "max/mean 3." in done.stdout


@pytest.mark.parametrize(("command", "known"), [("policies", POLICIES), ("strategies", STRATEGIES)])
def test_lists_have_a_line_each(command: str, known: dict[str, object]) -> None:
    assert [row["name"] for row in answer(command)] == list(known)
    assert all(row["paper"] and row["summary"] for row in answer(command))
    assert len(run(command).stdout.splitlines()) == len(known)


@pytest.mark.parametrize("example", WORKLOADS)
def test_every_bundled_example_is_planned(example: str) -> None:
    answer("plan", "--example", example)


def slot_with(**fields: object) -> str:
    return window([{"slot": 0, "lane": 0, **fields}])


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        (["plan"], "", "give either a WINDOW.json or --example"),
        (["plan", "no-such-file.json"], "", "cannot read no-such-file.json: No such file"),
        (["plan", "--example", "hotlane"], "", "Did you mean 'hot-lane'?"),
        (["plan", "-", "--policy", "best"], HOT, "there is no policy named 'best'; known: autoflow"),
        (["plan", "-", "--strategy", "fast"], HOT, "there is no strategy named 'fast'; known: batched"),
        (["plan", "-", "--set", "speed=3"], HOT, "no option of policy even named 'speed'"),
        (["plan", "-", "--set", "speed"], HOT, "--set expects NAME=VALUE, got 'speed'"),
        (["plan", "-", "--set", "min_gain=7"], HOT, "min_gain is a share from 0 to below 1, got 7"),
        (["plan", "-", "--set", "min_gain=much"], HOT, "policy even cannot use min_gain = 'much': it expects float"),
        (["plan", "-", "--set", "calm=nan"], HOT, "policy even cannot use calm = 'nan': it expects float"),
        (["plan", "-"], "{", "standard input is not JSON"),
        (["plan", "-"], "[]", "expected at least one window, got an empty list"),
        (["plan", "-"], "3", "top level: expected"),
        (["plan", "-"], '{"lanes": [], "slots": []}', "at least 1 lane and 1 slot, got 0 lanes and 0 slots"),
        (["plan", "-"], '{"lanes": [{"lane": 0}]}', "missing required field `slots`"),
        (["plan", "-"], slot_with(recods=3), "slots[0]: object contains unknown field `recods`"),
        (["plan", "-"], slot_with(records="many"), "slots[0].records: expected `int`, got `str`"),
        (["plan", "-"], slot_with(records=-1), "slots[0].records: expected `int` >= 0"),
        (["plan", "-"], slot_with(busy_s=-0.5), "slots[0].busy_s: expected `float` >= 0"),
        (["plan", "-"], slot_with(busy_s=1e308), "slots[0].busy_s: expected `float` <= 1000000000000000.0"),
        (["plan", "-"], slot_with(records=2**63 - 1), "slots[0].records: expected `int` <= 1000000000000000"),
        (["plan", "-"], slot_with(lane=5), "slot 0 is on lane 5, but the lanes are [0, 1]"),
        (["plan", "-"], slot_with(spilled=1), "slots[0].spilled: expected `bool`, got `int`"),
        (["plan", "-"], slot_with(busy_s=1).replace("1}", "NaN}"), "is not JSON"),
        (["plan", "-"], window([{"slot": 3, "lane": 0}, {"slot": 3, "lane": 1}]), "slot 3 is listed 2 times"),
        (["plan", "-"], '{"lanes": [{"lane": 0}, {"lane": 0}], "slots": [{"slot": 0, "lane": 0}]}', "lane 0 is listed"),
        (
            ["plan", "-"],
            '{"lanes": [{"lane": 0, "window_s": 0}], "slots": []}',
            "lanes[0].window_s: expected `float` > 0",
        ),
    ],
)
def test_mistakes_get_one_plain_line(arguments: list[str], given: str, message: str) -> None:
    done = run(*arguments, given=given)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
