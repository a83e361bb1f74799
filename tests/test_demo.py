"""`evenflow demo`: what its figures are made of, what it refuses, and one short real run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenflow.demo.options import LANE_ROWS_PER_SECOND, DemoOptions
from evenflow.demo.plot import draw
from evenflow.demo.run import run_demo
from evenflow.demo.summary import Course, EpochFigures, lane_rates, summarise
from evenflow.demo.view import Snapshot, line, picture
from evenflow.errors import EvenflowError, InputError
from evenflow.workloads.bids import Auctions, BidFeed

EXECUTABLE = str(Path(sys.executable).with_name("evenflow"))


def epoch(number: int, began_s: float, lanes: tuple[int, ...], seconds: float = 1.0) -> EpochFigures:
    busy = tuple(rows / LANE_ROWS_PER_SECOND for rows in lanes)
    return EpochFigures(number, began_s, began_s + seconds, sum(lanes), lanes, busy, 0, 1.0, 2.0)


def latency(first: int, last: int) -> Mapping[str, float]:
    return {"p50_s": float(first), "p99_s": float(last)}


COURSE = Course(switch_s=10.0, after_s=14.0, rows_per_second=4000.0, moves=7)
RUN = [
    *(epoch(number, float(number), (3000, 500, 500, 0)) for number in range(10)),
    *(epoch(number, float(number), (1000, 1000, 1000, 1000)) for number in range(10, 20)),
]


def test_before_leaves_out_the_first_epochs_and_after_takes_the_last_part() -> None:
    summary = summarise(RUN, latency, COURSE)
    assert summary.before.imbalance == pytest.approx(3.0)
    assert summary.after.imbalance == pytest.approx(1.0)
    assert summary.before.rows_per_s == pytest.approx(4000)
    assert (summary.before.latency_p50_s, summary.before.latency_p99_s) == (2, 9)  # epochs 2 to 9
    assert (summary.after.latency_p50_s, summary.after.latency_p99_s) == (14, 19)
    assert summary.moves == 7
    assert summary.drained


def test_throughput_counts_the_waiting_between_epochs() -> None:
    epochs = [epoch(number, 2.0 * number, (1000, 1000)) for number in range(10)]
    assert summarise(epochs, latency, COURSE).before.rows_per_s == pytest.approx(1000)
    assert lane_rates(epochs, 3) == pytest.approx([500, 500])


def test_a_backlog_that_is_still_there_is_told() -> None:
    slow = [epoch(number, float(number), (500, 500)) for number in range(20)]
    assert not summarise(slow, latency, COURSE).drained


def test_few_epochs_are_enough_but_none_is_a_plain_error() -> None:
    few = [epoch(0, 0.1, (900, 100), 9.0), epoch(1, 10.5, (500, 500), 3.0)]
    assert summarise(few, latency, COURSE).after.imbalance == pytest.approx(1.0)
    with pytest.raises(EvenflowError, match="too slow or too busy"):
        summarise(few[:1], latency, COURSE)


def test_the_json_has_the_promised_names() -> None:
    told = summarise(RUN, latency, COURSE).as_dict()
    assert set(told) == {"before", "after", "moves"}
    for part in ("before", "after"):
        assert set(told[part]) == {"rows_per_s", "imbalance", "latency_p50_s", "latency_p99_s"}


def test_progress_is_read_as_the_query_tells_it() -> None:
    progress: dict[str, Any] = {
        "epoch": 3,
        "timestamp": "2026-01-01T00:00:10+00:00",
        "durationMs": {"route": 200.0, "work": 700.0, "commit": 100.0, "publish": 5000.0},
        "numInputRows": 30,
        "lanes": [{"lane": 1, "rows": 10, "busy_s": 0.1}, {"lane": 0, "rows": 20, "busy_s": 0.2}],
        "moves": 2,
        "latency": {"p50_s": 0.5, "p99_s": 0.9},
    }
    figures = EpochFigures.of(progress, zero_s=1767225600.0)
    assert figures.began_s == pytest.approx(10)
    assert figures.committed_s == pytest.approx(11)  # publishing comes after the commit
    assert figures.lane_rows == (20, 10)


@pytest.mark.parametrize("lanes", [2, 4, 8, 32])
@pytest.mark.parametrize("skew", [0.5, 0.8, 1.0])
def test_the_input_fits_all_lanes_together(lanes: int, skew: float) -> None:
    options = DemoOptions(lanes=lanes, skew=skew)
    assert options.rows_per_second < 0.7 * lanes * LANE_ROWS_PER_SECOND
    assert 0 < options.switch_s < options.after_s < options.seconds


def test_the_default_input_is_too_much_for_the_hot_lane() -> None:
    options = DemoOptions()
    assert options.skew * options.rows_per_second > LANE_ROWS_PER_SECOND


def test_a_slow_start_shortens_the_run_only_if_its_length_was_not_asked_for() -> None:
    assert DemoOptions(seconds=50).after_start(60).seconds == 50
    assert DemoOptions(seconds=50, whole_s=85).after_start(15).seconds == 50
    assert DemoOptions(seconds=50, whole_s=85).after_start(40).seconds == 40
    assert DemoOptions(seconds=50, whole_s=85).after_start(500).seconds == 20


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"seconds": 1}, "--seconds"),
        ({"seconds": float("nan")}, "--seconds"),
        ({"lanes": 1}, "--lanes"),
        ({"lanes": 1000}, "--lanes"),
        ({"skew": 0}, "--skew"),
        ({"skew": 1.2}, "--skew"),
        ({"seed": -1}, "--seed"),
        ({"policy": "evne"}, "Did you mean 'even'"),
        ({"png": Path("/no/such/folder/x.png")}, "--png"),
        ({"json": Path("/")}, "--json"),
    ],
)
def test_values_that_cannot_be_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        DemoOptions(**wrong)


def test_a_bad_option_is_one_line_and_status_2() -> None:
    done = subprocess.run([EXECUTABLE, "demo", "--skew", "7"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("evenflow: demo: --skew")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_help_tells_the_default_length_and_when_the_policy_takes_over() -> None:
    done = subprocess.run(
        [EXECUTABLE, "demo", "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"}
    )
    assert "[default: (50, less if Spark starts slowly)]" in done.stdout
    assert "two fifths of the time" in done.stdout
    assert DemoOptions(seconds=50).switch_s == 20


def test_a_file_that_cannot_be_written_is_refused_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"demo: cannot write --json /proc/x\.json: .*; give another file"):
        run_demo(DemoOptions(png=tmp_path / "x.png", json=Path("/proc/x.json")))
    assert not list(tmp_path.iterdir())


def test_bids_are_the_same_for_the_same_seed_and_as_skewed_as_asked(tmp_path: Path) -> None:
    auctions = Auctions(np.arange(10), np.arange(10, 100))
    feeds = [BidFeed(tmp_path, auctions, 0.8, 10_000.0, seed) for seed in (1, 1, 2)]
    first, again, other = (feed.bids(5) for feed in feeds)
    assert (first == again).all()
    assert (first != other).any()
    assert first.size == 2500
    assert (first < 10).mean() == pytest.approx(0.8, abs=0.05)


def test_the_screen_says_that_lanes_are_rate_limited() -> None:
    from rich.console import Console

    now = Snapshot(3.0, "static", 4, [5000.0, 100.0], 12_345, 1.0, 2.0, ["epoch 4: slot 1, lane 0 to lane 1"])
    console = Console(record=True, width=120, quiet=False, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - closed with the test
    with console.file:
        console.print(picture(DemoOptions(lanes=2), now))
    shown = console.export_text()
    assert "rate limited" in shown
    assert "12,345" in shown
    assert "slot 1, lane 0 to lane 1" in shown
    assert "12,345" in line(now)


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    file = tmp_path / "demo.png"
    draw(RUN, DemoOptions(), 10.0, file)
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.spark
def test_a_short_run_balances(tmp_path: Path) -> None:
    figures, png = tmp_path / "demo.json", tmp_path / "demo.png"
    command = [EXECUTABLE, "demo", "--seconds", "16", "--no-live", "--json", str(figures), "--png", str(png)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    told = json.loads(figures.read_text())
    assert told["moves"] > 0
    assert told["after"]["imbalance"] < told["before"]["imbalance"]
    for part in ("before", "after"):
        assert set(told[part]) == {"rows_per_s", "imbalance", "latency_p50_s", "latency_p99_s"}
        assert all(value > 0 for value in told[part].values())
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "rate limited" in done.stdout
