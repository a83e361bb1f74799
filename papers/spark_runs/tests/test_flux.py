"""FX-E1 to E4 on Spark, the parts that need no Spark: slow lanes, the pair rule without chance, and the verdicts."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.operators import Aggregate
from evenflow.operators import functions as aggregates
from papers.experiment import Check, Verdict
from papers.flux.rounds import Rounds
from papers.spark_runs.flux import (
    Reaction,
    buffer_checks,
    by_second,
    crossing,
    degradation_checks,
    reaction_checks,
    thrashing_checks,
)
from papers.spark_runs.run import SparkRun, SparkScenario, limited
from papers.spark_runs.slow import SlowLanes, SlowSpan, done_at, tell


def verdicts(checks: tuple[Check, ...]) -> list[str]:
    return [check.verdict.value for check in checks]


def run_of(epoch_s: list[float], moves: int = 0) -> SparkRun:
    """Return a run of 400 rows an epoch on four lanes, each of which takes so long for all of them."""
    done = np.repeat(np.cumsum(epoch_s)[:, None], 4, axis=1)
    count = len(epoch_s)
    nothing = np.zeros(count)
    return SparkRun(
        SparkScenario(4, 32, 100, 100, float(count)),
        tuple(range(count)),
        done[:, 0],
        np.full((count, 4), 100.0),
        np.ones((count, 4)),
        done,
        nothing,
        nothing,
        nothing,
        nothing,
        tuple({"epoch": at, "slot": at, "source": 0, "target": 1} for at in range(moves)),
        400 * count,
    )


class TestSlowLanes:
    def test_work_goes_on_slowly_within_a_span_and_fully_outside(self) -> None:
        spans = [(12.0, 14.0), (10.0, 11.0)]
        assert done_at(0.0, 5.0, spans, 0.5) == 5.0
        assert done_at(10.0, 0.25, spans, 0.5) == 10.5
        assert done_at(10.0, 1.0, spans, 0.5) == 11.5
        assert done_at(10.0, 4.0, spans, 0.5) == pytest.approx(10 + 1 + 1 + 2 + 1.5)
        assert done_at(20.0, 1.0, spans, 0.5) == 21.0

    @given(st.floats(0, 10), st.floats(0, 10), st.floats(0.1, 1.0), st.floats(0, 10), st.floats(0, 10))
    def test_it_is_never_sooner_than_at_full_speed_nor_later_than_all_slow(
        self, start: float, work: float, speed: float, begin: float, length: float
    ) -> None:
        end = done_at(start, work, [(begin, begin + length)], speed)
        assert start + work - 1e-9 <= end <= start + work / speed + 1e-9

    def test_only_the_processes_named_are_slow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        slept: list[float] = []
        monkeypatch.setattr("papers.spark_runs.slow.time.sleep", slept.append)
        monkeypatch.setattr("papers.spark_runs.slow.time.time", lambda: 1_000.0)
        plain = Aggregate({"total": aggregates.sum("price")})
        file = tmp_path / "slow.json"
        slow = pickle.loads(pickle.dumps(SlowLanes(plain, 100.0, 0.5, str(file))))  # noqa: S301 - as it goes to lanes
        schema = pa.schema([("auction", pa.int64()), ("price", pa.int64())])
        assert slow.contents(schema, ("auction",)) == plain.contents(schema, ("auction",))
        state = slow.open(schema, ("auction",), 4)
        rows = pa.table({"auction": [1, 2], "price": [5, 6]}, schema)
        state.fold(rows, np.array([0, 1]))
        tell(file, {0: os.getpid(), 1: -1}, [SlowSpan(0, 0.0, 5.0), SlowSpan(1)], 999.0)
        state.fold(rows, np.array([0, 1]))
        tell(file, {0: -1}, [SlowSpan(0)], 999.0)
        state.fold(rows, np.array([0, 1]))
        assert slept == pytest.approx([0.02, 0.04, 0.02])
        assert json.loads(file.read_text()) == {"-1": [[999.0, 999.0 + SlowSpan(0).end_s]]}
        assert state.slot_rows().tolist() == [1, 1, 0, 0]

    def test_results_say_how_slow(self) -> None:
        scenario = SparkScenario(4, 32, 100, 100, 5.0, slow=[SlowSpan(0)], slow_speed=0.43)
        assert "RATE LIMITED to 100 rows/s (43% of that where it is slow)" in limited(scenario)


class TestReadings:
    def test_rates_go_by_what_all_lanes_have_finished(self) -> None:
        found = run_of([1.0] * 4 + [2.0] * 4)
        assert found.rate(4.0) == 200
        assert found.rate() == pytest.approx(400 * 7 / 11)
        assert run_of([1.0] * 4 + [3.0] + [1.0] * 4).pace() == 400, "one epoch that the machine held up does not count"
        assert found.served(np.array([0.0, 2.0, 6.0])).tolist() == pytest.approx([400, 300])

    def test_seconds_are_as_many_as_all_lanes_have_served(self) -> None:
        times, rows = by_second(run_of([1.0] * 3 + [2.0]))
        assert times.tolist() == [1, 2, 3, 4, 5]
        assert rows.tolist() == pytest.approx([400, 400, 400, 200, 200])

    def test_what_a_reaction_is(self) -> None:
        static = run_of([1.0] * 6 + [2.5] * 4)
        balancing = run_of([1.0] * 6 + [2.0] * 4 + [1.25] * 20, moves=4)
        found = Reaction.of(static, balancing, last_s=10.0)
        assert found.static == pytest.approx(0.4)
        assert found.balanced == pytest.approx(0.8)
        assert (found.felt_s, found.left, found.moves) == (7.0, 4, 4)
        assert 13 <= found.steady_s <= 16

    def test_what_is_steady_only_at_the_end_that_it_is_compared_with_is_not(self) -> None:
        static = run_of([1.0] * 6 + [2.5] * 4)
        balancing = run_of([1.0] * 6 + [1.25] * 16 + [2.0] + [1.25] * 4)
        assert Reaction.of(static, balancing, last_s=10.0).steady_s == float("inf")
        assert Reaction.of(static, balancing, last_s=2.0).steady_s < float("inf")

    def test_shares_are_of_what_the_lanes_limits_add_up_to_not_of_a_run_that_was_held_up(self) -> None:
        """Four lanes of 100 rows/s each: 328 rows/s are 82 %, also if a run without load got no more than 364."""
        balancing = run_of([400 / 328] * 30)
        assert Reaction.of(run_of([2.5] * 10), balancing, last_s=10.0).balanced == pytest.approx(0.82)

    def test_a_crossing_is_from_then_on(self) -> None:
        assert crossing([1, 2, 3], [5, 9, 9], 6) == 2
        assert crossing([1, 2, 3], [9, 5, 9], 6) == 3
        assert crossing([1, 2, 3], [9, 9, 9], 6) == 1
        assert crossing([1, 2, 3], [9, 9, 5], 6) == float("inf")


class TestVerdicts:
    def test_a_buffer_that_helps(self) -> None:
        checks = buffer_checks([0, 1, 4], [0.45, 0.6, 0.84], [1], [0.45, 0.5])
        assert verdicts(checks) == ["match"] * 3

    def test_a_buffer_that_does_not(self) -> None:
        checks = buffer_checks([0, 1, 4], [0.8, 0.7, 0.6], [1], [0.8, 0.75])
        assert verdicts(checks) == ["differs"] * 3
        assert verdicts(buffer_checks([0, 1], [0.6, 0.7], [1], [0.6, 0.8])) == ["shape holds", "shape holds", "differs"]

    def test_more_than_the_lanes_can_do_is_no_match(self) -> None:
        checks = buffer_checks([0, 1, 8], [0.51, 0.80, 0.89], [1], [0.51, 0.59])
        assert verdicts(checks) == ["match", "differs", "match"]
        assert "not measured right" in checks[1].why
        _, _, with_balancing, *_ = reaction_checks(Reaction(0.43, 0.9, 6.5, 20.0, 7, 9), Rounds(0.76, 7, 7))
        assert with_balancing.verdict is Verdict.DIFFERS
        assert "not measured right" in with_balancing.why

    def test_a_reaction_as_published_and_one_that_fails(self) -> None:
        model = Rounds(0.8, 4, 4)
        good = reaction_checks(Reaction(0.43, 0.8, 6.5, 20.0, 4, 6), model)
        assert verdicts(good) == ["match"] * 5
        assert good[3].ours == "4, with 6 moves in all (4 there)"
        middling = reaction_checks(Reaction(0.55, 0.7, 14.5, 60.0, 2, 2), model)
        assert verdicts(middling) == ["shape holds"] * 5
        bad = reaction_checks(Reaction(0.9, 0.9, 4.0, float("inf"), 0, 0), Rounds(1.0, 4, 4))
        assert bad[4].ours == "not within the run"
        assert [check.verdict for check in bad] == [Verdict.DIFFERS] * 5

    def test_degradation(self) -> None:
        counts, model = [0, 1, 2, 4], [1.0, 0.8, 0.7, 0.43]
        assert verdicts(degradation_checks(counts, [1, 0.43, 0.42, 0.44], [1, 0.82, 0.7, 0.44], model)) == ["match"] * 3
        worse = degradation_checks(counts, [1, 0.53, 0.42, 0.44], [1, 0.7, 0.69, 0.4], model)
        assert verdicts(worse) == ["shape holds", "match", "shape holds"]
        assert verdicts(degradation_checks(counts, [1, 1, 1, 1], [0.5, 0.9, 0.5, 1.0], model)) == ["differs"] * 3

    def test_thrashing_must_be_worse_than_doing_nothing(self) -> None:
        static = {"unloaded": 100.0, "loaded": 40.0}
        deltas = [0.01, 4.0]
        as_told = thrashing_checks(deltas, static, {"unloaded": [60, 110], "loaded": [50, 105]})
        assert verdicts(as_told) == ["match"] * 3
        weaker = thrashing_checks(deltas, static, {"unloaded": [101, 110], "loaded": [50, 90]})
        assert verdicts(weaker) == ["differs", "shape holds", "shape holds"]
        nothing = thrashing_checks(deltas, static, {"unloaded": [90, 95], "loaded": [45, 50]})
        assert verdicts(nothing) == ["shape holds", "differs", "differs"]
