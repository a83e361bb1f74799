"""The reconfiguration paper's mechanisms as its experiments use them, at small sizes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from evenflow.control.journal import PhaseChanged
from evenflow.migration import Phase
from evenflow.model import RoutingTable
from evenflow.sim.quantum import Way, uniform
from papers.engines import with_engines
from papers.experiment import Settings, Verdict
from papers.reconfiguration import EXPERIMENTS
from papers.reconfiguration.example import run_e4
from papers.reconfiguration.horizon import run_e5, run_horizon
from papers.reconfiguration.migrations import Migration, MigrationRun, spread_out
from papers.reconfiguration.protocol import Advance, Arrival, Datum, Reconfigurable, Reconfiguration
from papers.reconfiguration.rules import NO_EARLIER
from papers.reconfiguration.timelines import e1_migration, e2_migration, e3_migration
from papers.spark_runs.rules import SPARK_RULES


def small(bins: int = 16, before: int = 2, keys: float = 200_000) -> Migration:
    """Return a migration with a sudden pause of some 40 ms per 100,000 keys."""
    tables = spread_out(bins, before, 2 * before)
    return Migration(keys, tables, uniform(bins, 1e5), 1e6, 0.5, 3.0, step_s=2e-3, epoch_steps=2)


@pytest.fixture(scope="module")
def runs() -> dict[str, MigrationRun]:
    return {name: small().run(name) for name in ("sudden", "fluid", "batched")}


def test_the_ids_are_those_of_the_paper() -> None:
    assert [experiment.id for experiment in EXPERIMENTS] == [f"LR-E{number}" for number in range(1, 8)]


def test_the_sizes_are_those_of_the_paper() -> None:
    e1, e2, e3 = e1_migration(), e2_migration(), e3_migration()
    assert [one.keys for one in (e1, e2, e3)] == [10e6, 40e6, 10e6]
    assert {one.start_s for one in (e1, e2, e3)} == {10.0}
    assert [len(e2.steps(name)) for name in ("sudden", "fluid", "batched")] == [1, 128, 32]
    assert float(e1.arrivals.rates(0.0).sum()) == pytest.approx(1e6)
    assert np.mean([e3.arrivals.rates(at).sum() for at in (0.5, 1.5)]) == pytest.approx(2.6e6)


def test_all_strategies_end_with_the_same_map_and_lose_nothing(runs: dict[str, MigrationRun]) -> None:
    assert all(run.complete for run in runs.values())
    assert [run.steps for run in runs.values()] == [1, 8, 4]
    assert {run.timeline.lost for run in runs.values()} == {0.0}


def test_sudden_has_the_higher_peak_and_fluid_the_longer_duration(runs: dict[str, MigrationRun]) -> None:
    assert runs["sudden"].peak_s > 2 * runs["fluid"].peak_s
    assert runs["sudden"].duration_s <= runs["batched"].duration_s < runs["fluid"].duration_s


def test_a_pause_is_as_long_as_its_keys_say(runs: dict[str, MigrationRun]) -> None:
    """Each of two workers gives 4 of 16 bins of 12,500 keys: 40 ms and 4 times 0.1 ms."""
    assert runs["sudden"].duration_s == pytest.approx(0.0404, abs=2 * runs["sudden"].migration.epoch_s)
    assert runs["fluid"].peak_s == pytest.approx(0.0101, abs=2 * runs["fluid"].migration.epoch_s)


def test_a_step_ends_before_the_next_begins(runs: dict[str, MigrationRun]) -> None:
    for run in runs.values():
        under_way: set[int] = set()
        begun: dict[int, set[int]] = defaultdict(set)
        for entry in run.timeline.journal.of(PhaseChanged):
            if entry.after is Phase.ANNOUNCED:
                assert under_way <= begun[entry.epoch], "only moves of the same step may be under way"
                begun[entry.epoch].add(entry.move.slot)
                under_way.add(entry.move.slot)
            elif entry.after is Phase.SETTLED:
                under_way.discard(entry.move.slot)
        assert not under_way


def test_stable_is_back_under_twice_the_normal_for_a_second(runs: dict[str, MigrationRun]) -> None:
    sudden = runs["sudden"]
    assert 0 < sudden.stable_after_s() <= 0.5
    assert np.isnan(replace(small(), duration_s=0.75).run("fluid").stable_after_s()), "less than a second is left"


@pytest.mark.parametrize(
    ("batched", "sudden", "verdict"),
    [
        (9.0, 5.0, Verdict.MATCH),
        (5.0, 9.0, Verdict.DIFFERS),
        (np.nan, 5.0, Verdict.MATCH),
        (5.0, np.nan, Verdict.DIFFERS),
        (np.nan, np.nan, Verdict.SHAPE),
    ],
)
def test_the_negative_result_stays_negative(batched: float, sudden: float, verdict: Verdict) -> None:
    assert NO_EARLIER.verdict(batched, sudden) is verdict


def test_more_bins_give_a_lower_peak() -> None:
    peaks = [small(bins, 1).run("fluid").peak_s for bins in (4, 16, 64)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] > 3 * peaks[-1]


def test_halting_all_stops_workers_that_move_nothing() -> None:
    owners = np.where(np.arange(16) % 4 == 3, 2, 0)
    before, after = (RoutingTable(one, (0, 1, 2)) for one in (owners, np.where(np.arange(16) % 4 == 1, 1, owners)))
    served = []
    for way in (Way.AT_TIMESTAMP, Way.PAUSE_ALL):
        migration = replace(small(), tables=(before, after), way=way, keys=4e6, step_s=1e-2, epoch_steps=1)
        line = migration.run("sudden").timeline
        served.append(float(line.served[line.rows(0.5, 1.0), 2].sum()))
    assert served[0] > 3 * served[1]


def test_the_example_is_exact() -> None:
    outcome = run_e4(Settings(seed=2))
    assert outcome.verdict is Verdict.MATCH
    assert outcome.seeds == (2,)


def test_data_wait_less_and_reconfigurations_more_the_further_ahead() -> None:
    near, far = run_horizon(0, 1), run_horizon(40, 1)
    assert far.added_ms < 0.5 < near.added_ms
    assert far.reaction_ms > near.reaction_ms + 20
    outcome = run_e5(Settings(quick=True))
    assert outcome.verdict is Verdict.MATCH
    assert outcome.seeds == (1, 2)


MOVES: list[Arrival] = [Reconfiguration(10, ("a", "b"), 1), Reconfiguration(20, ("b",), 0)]


def stream(times: range) -> list[Arrival]:
    return [Datum(time, key, 1) for time in times for key in "ab"]


def test_m10_two_operators_with_one_reconfiguration_stream_stay_together() -> None:
    left, right = Reconfigurable(2), Reconfigurable(2)
    for side, data in ((left, stream(range(0, 30, 2))), (right, stream(range(30)))):
        for arrival in [*MOVES, *data]:
            side.take(arrival)
        side.finish()
    for datum, worker in left.routed.items():
        assert right.routed[Datum(datum.time, datum.key, 1)] == worker
    assert [set(one) for one in left.states] == [set(one) for one in right.states]


def test_m11_downstream_must_shuffle_again_after_a_migration() -> None:
    upstream = Reconfigurable(2)
    for arrival in [*MOVES, *stream(range(30)), Advance("control", 30)]:
        upstream.take(arrival)
    upstream.finish()
    stays: list[dict[object, int]] = [defaultdict(int), defaultdict(int)]
    shuffled: list[dict[object, int]] = [defaultdict(int), defaultdict(int)]
    for one in upstream.applied:
        stays[one.worker][one.datum.key] += 1
        shuffled["ab".index(str(one.datum.key))][one.datum.key] += 1
    assert any("a" in one and one["a"] != 30 for one in stays), "where it was left alone, a key is in two places"
    assert shuffled == [{"a": 30}, {"b": 30}]


class TestEngines:
    def test_those_with_a_rule_run_on_spark_too_and_say_the_rule(self) -> None:
        found = {experiment.id: with_engines(experiment) for experiment in EXPERIMENTS}
        assert [id_ for id_, one in found.items() if "spark" in one.engines] == ["LR-E1", "LR-E2", "LR-E3"]
        assert found["LR-E1"].rule_on("spark") is SPARK_RULES["LR-E1"]
        assert found["LR-E1"].rule_on("sim") is EXPERIMENTS[0].rule
        assert found["LR-E4"].run(Settings()).verdict is Verdict.MATCH

    def test_the_simulator_is_not_replaced(self) -> None:
        once = with_engines(EXPERIMENTS[0])
        assert once.engines == ("sim", "spark")
