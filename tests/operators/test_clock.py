"""Time needed: what runs and sleeps counts, waiting for a core does not."""

from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path

import pytest

from evenflow.operators import clock
from evenflow.operators.clock import NeededTime


def test_time_asleep_counts() -> None:
    needed = NeededTime()
    before, began = needed(), time.perf_counter()
    time.sleep(0.02)
    took = time.perf_counter() - began
    assert 0 < needed() - before <= took + 1e-3


def test_never_more_than_by_the_wall_and_never_back() -> None:
    needed = NeededTime()
    began, first = time.perf_counter(), needed()
    readings = [needed() for _ in range(1_000)]
    assert readings == sorted(readings)
    assert readings[-1] - first <= time.perf_counter() - began


def test_time_without_a_core_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = tmp_path / "schedstat"
    monkeypatch.setattr(clock, "_SCHEDSTAT", str(counts))
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    counts.write_bytes(b"5000000000 2000000000 7\n")
    needed = NeededTime()
    assert needed() == 98.0
    monkeypatch.setattr(time, "perf_counter", lambda: 105.0)
    counts.write_bytes(b"5000000000 3500000000 8\n")
    assert needed() == 101.5
    counts.write_bytes(b"5000000000 9000000000 9\n")
    assert needed() == 101.5, "a clock does not go back"


def test_each_thread_has_its_own_wait_and_a_system_that_does_not_tell_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = NeededTime()
    needed()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(needed()))
    thread.start()
    thread.join()
    assert seen
    monkeypatch.setattr(clock, "_SCHEDSTAT", "/nowhere/schedstat")
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    assert NeededTime()() == 100.0


def test_travels_to_another_process() -> None:
    needed = NeededTime()
    needed()
    assert isinstance(pickle.loads(pickle.dumps(needed)), NeededTime)  # noqa: S301 - our own bytes
