"""`evenflow demo`: what its figures are made of, what it refuses, and one short real run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.demo.lanes import Backlog, Work
from evenflow.demo.options import LANE_ROWS_PER_SECOND, DemoOptions
from evenflow.demo.plot import draw
from evenflow.demo.record import Arrivals, EpochFigures, Moved, Piece, Record, Taken
from evenflow.demo.run import run_demo
from evenflow.demo.summary import Course, summarise
from evenflow.demo.view import Snapshot, line, picture
from evenflow.errors import EvenflowError, InputError
from evenflow.model import RoutingTable
from evenflow.workloads.bids import Auctions, BidFeed

EXECUTABLE = str(Path(sys.executable).with_name("evenflow"))


TABLE = RoutingTable.even(8, 4)


def record_of(*epochs: tuple[float, float, tuple[int, ...]], file_s: float = 1.0) -> Record:
    """A run on four lanes with two slots each: every epoch (began, committed, rows by lane) takes one file."""
    record = Record(TABLE, Arrivals(8, file_s))
    for number, (began_s, committed_s, lanes) in enumerate(epochs):
        record.arrivals.add(np.array(lanes)[TABLE.owners] // 2)
        record.taken[number] = Taken(began_s, sum(lanes))
        record.epochs.append(EpochFigures(number, began_s, committed_s, 1.0, 2.0))
        for lane, rows in enumerate(lanes):
            slots = tuple(TABLE.slots_of(lane))
            record.pieces.append(Piece(lane, committed_s, rows, rows / LANE_ROWS_PER_SECOND, ((number, slots),)))
    return record


def even_run(changes_at: int = 10, until: int = 20) -> Record:
    hot, level = (3000, 500, 500, 0), (1000, 1000, 1000, 1000)
    lanes = [hot if number < changes_at else level for number in range(until)]
    return record_of(*((float(number), number + 1.0, rows) for number, rows in enumerate(lanes)))


def latency(first: int, last: int) -> Mapping[str, float]:
    return {"p50_s": float(first), "p99_s": float(last)}


COURSE = Course(switch_s=10.0, after_s=14.0, rows_per_second=4000.0)


# --- what lanes did ----------------------------------------------------------------------------------------------


def test_two_commits_at_the_same_moment_give_no_rate_above_what_the_lane_did() -> None:
    pieces = [
        Piece(0, 5.0, 1500, 0.5),
        Piece(0, 5.0 + 1e-6, 1500, 0.5),
        Piece(1, 5.0, 300, 0.1),
        Piece(0, 9.0, 900, 0.3),
    ]
    edges_s = np.arange(0.0, 11.0, 0.25)
    rates = Work.of(pieces, lanes=2).rates(edges_s)
    assert rates.max() <= 3000 * (1 + 1e-6)  # rows of a piece per second of its work
    assert (rates * 0.25).sum(axis=0) == pytest.approx([3900, 300])  # no row is lost, none is counted twice


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.floats(0, 50), st.integers(0, 5000), st.floats(0.001, 3)),
        max_size=30,
        unique_by=lambda piece: piece[:2],
    ),
    st.sampled_from([0.5, 1.0, 7.0]),
)
def test_rates_are_bounded_by_the_work_and_rows_are_conserved(
    pieces: list[tuple[int, float, int, float]], span_s: float
) -> None:
    edges_s = np.arange(-100.0, 60.0, span_s)
    rates = Work.of([Piece(*piece) for piece in pieces], lanes=3).rates(edges_s)
    for lane in range(3):
        own = [(rows, busy_s) for at, _, rows, busy_s in pieces if at == lane]
        fastest = max((rows / busy_s for rows, busy_s in own), default=0.0)
        assert rates[:, lane].max() <= fastest * (1 + 1e-6) + 1e-6
        assert (rates[:, lane] * span_s).sum() == pytest.approx(sum(rows for rows, _ in own), rel=1e-6)


def test_the_backlog_of_a_lane_is_what_arrived_for_it_and_is_not_done() -> None:
    record = record_of((1.0, 3.0, (800, 80, 80, 80)), (2.0, 3.0, (800, 80, 80, 80)), (4.0, 6.0, (800, 80, 80, 80)))
    backlog = Backlog(record)
    assert backlog.at(0.5) == pytest.approx([400, 40, 40, 40])  # half of the first file
    assert backlog.at(2.5) == pytest.approx([2000, 200, 200, 200])
    assert backlog.at(3.0) == pytest.approx([800, 80, 80, 80])  # two epochs were committed at this moment
    assert backlog.at(7.0) == pytest.approx([0, 0, 0, 0])


def test_what_waits_for_a_slot_goes_along_when_it_moves() -> None:
    record = record_of((1.0, 9.0, (800, 80, 80, 80)), (2.0, 9.5, (800, 80, 80, 80)))
    moved = int(TABLE.slots_of(0)[0])
    record.moves.append(Moved(epoch=1, slot=moved, source=0, target=2))
    backlog = Backlog(record)
    assert backlog.at(1.5) == pytest.approx([1200, 120, 120, 120])
    assert backlog.at(2.0) == pytest.approx([800, 160, 960, 160])
    assert record.moved_s() == [2.0]


# --- what that comes to ------------------------------------------------------------------------------------------


def test_before_leaves_out_the_beginning_and_after_takes_the_last_part() -> None:
    record = even_run()
    record.moves += [Moved(10, slot, 0, 3) for slot in range(7)]
    summary = summarise(record, latency, COURSE)
    assert summary.before.imbalance == pytest.approx(3.0, rel=1e-4)
    assert summary.after.imbalance == pytest.approx(1.0, rel=1e-4)
    assert summary.before.rows_per_s == pytest.approx(4000, rel=0.1)
    assert (summary.before.latency_p50_s, summary.before.latency_p99_s) == (2, 9)  # epochs 2 to 9
    assert (summary.after.latency_p50_s, summary.after.latency_p99_s) == (14, 19)
    assert summary.moves == 7
    assert summary.drained


def test_throughput_counts_the_waiting_between_epochs() -> None:
    record = record_of(*((2.0 * number, 2.0 * number + 1, (500, 500, 500, 500)) for number in range(10)))
    assert summarise(record, latency, COURSE).before.rows_per_s == pytest.approx(1000, rel=0.1)


def test_epochs_that_end_at_the_same_moment_are_no_high_throughput() -> None:
    record = record_of((0.1, 9.0, (900, 30, 30, 40)), (10.5, 14.0, (500,) * 4), (10.6, 14.0 + 1e-6, (500,) * 4))
    after = summarise(record, latency, COURSE).after
    assert after.rows_per_s <= 4 * LANE_ROWS_PER_SECOND
    assert after.rows_per_s == pytest.approx(4000 / 3.5, rel=0.01)


def test_a_backlog_that_is_still_there_is_told() -> None:
    slow = record_of(*((float(number), number + 8.0, (4000, 500, 500, 500)) for number in range(20)))
    summary = summarise(slow, latency, COURSE)
    assert not summary.drained
    assert summary.before.backlog_rows == pytest.approx(10 * 5500 - 3 * 5500)
    assert summary.after.backlog_rows == 0  # the last epoch is over then


def test_few_epochs_are_enough_but_none_is_a_plain_error() -> None:
    few = [(0.1, 9.1, (900, 100, 0, 0)), (10.5, 13.5, (500, 500, 500, 500))]
    assert summarise(record_of(*few), latency, COURSE).after.imbalance == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(EvenflowError, match="too slow or too busy"):
        summarise(record_of(few[0]), latency, COURSE)


FIGURES = {"rows_per_s", "imbalance", "latency_p50_s", "latency_p99_s", "backlog_rows"}


def test_the_json_has_the_promised_names() -> None:
    told = summarise(even_run(), latency, COURSE).as_dict()
    assert set(told) == {"before", "after", "moves"}
    for part in ("before", "after"):
        assert set(told[part]) == FIGURES


def test_progress_is_read_as_the_query_tells_it() -> None:
    progress: dict[str, Any] = {
        "epoch": 3,
        "timestamp": "2026-01-01T00:00:10+00:00",
        "durationMs": {"route": 200.0, "work": 700.0, "commit": 100.0, "publish": 5000.0},
        "numInputRows": 30,
        "latency": {"p50_s": 0.5, "p99_s": 0.9},
    }
    figures = EpochFigures.of(progress, zero_s=1767225600.0)
    assert figures.began_s == pytest.approx(10)
    assert figures.committed_s == pytest.approx(11)  # publishing comes after the commit
    assert Taken.of(progress, zero_s=1767225600.0) == Taken(figures.began_s, 30)


# --- what can be asked for ---------------------------------------------------------------------------------------


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

    now = Snapshot(3.0, "static", 4, [5000.0, 100.0], [12_300, 45], 1.0, 2.0, [str(Moved(4, 1, 0, 1))])
    console = Console(record=True, width=120, quiet=False, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - closed with the test
    with console.file:
        console.print(picture(DemoOptions(lanes=2), now))
    shown = console.export_text()
    assert "rate limited" in shown
    assert "12,345" in shown
    assert "slot 1, lane 0 to lane 1" in shown
    assert "12,300     45 rows" in line(now)


@pytest.mark.parametrize("lanes", [4, 8])
def test_the_picture_is_a_png(tmp_path: Path, lanes: int) -> None:
    record = even_run()
    if lanes > record.lanes:
        record.table = RoutingTable.even(8, lanes)
    record.moves.append(Moved(10, 0, 0, 3))
    file = tmp_path / "demo.png"
    draw(record, DemoOptions(lanes=lanes), 10.0, file)
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
        assert set(told[part]) == FIGURES
        assert all(value > 0 for value in told[part].values())
        assert told[part]["rows_per_s"] <= 4 * LANE_ROWS_PER_SECOND
    rates = [
        float(rate.replace(",", ""))
        for line in re.findall(r"lanes(.*)rows/s  waiting", done.stdout)
        for rate in line.split()
    ]
    assert 0 < max(rates) <= LANE_ROWS_PER_SECOND * 1.01
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "rate limited" in done.stdout
