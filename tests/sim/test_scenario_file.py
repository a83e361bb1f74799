"""SCENARIO.toml: what it means, and what is said of mistakes in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evenflow.errors import InputError
from evenflow.model import RoutingTable
from evenflow.policies import policy_named
from evenflow.sim.quantum import Way
from evenflow.sim.scenario_file import WhatIf, read_scenario
from evenflow.sim.what_if import answer, with_choice

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
LEAST = "lanes = 2\nslots = 8\nduration_s = 4\n[load]\nrecords_per_s = 100\n[lane]\nrecords_per_s = 100\n"


def read(more: str = "", text: str = LEAST) -> WhatIf:
    return read_scenario((text + more).encode(), "s.toml")


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_run_and_lose_nothing(file: Path) -> None:
    what_if = read_scenario(file.read_bytes(), file.name)
    found = answer(what_if)
    summary = found.summary()
    assert summary["lost"] == 0
    assert summary["records"] + summary["waiting"] == pytest.approx(summary["arrived"], rel=1e-6)
    assert summary["moves"] == len(found.moves()) > 0
    assert len(found.rows()) == found.timeline.time_s.size


def test_the_same_seed_gives_the_same_timeline_and_another_one_another() -> None:
    one, same, other = (answer(read_scenario(LEAST.encode(), "s", seed)).as_dict() for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_another_policy_can_be_chosen() -> None:
    found = with_choice(read(), "flux-load", "fluid")
    assert (found.policy.name, found.strategy.name) == ("flux-load", "fluid")  # type: ignore[attr-defined]
    assert found.names["policy"] == "flux-load"


class TestEvents:
    def test_a_hotspot_is_on_the_slots_of_its_lane_while_it_lasts(self) -> None:
        event = '[[event]]\nkind = "hotspot"\nat_s = 1\nuntil_s = 2\nlanes = [1]\nshare = 0.9\n'
        rates = read(event).scenario.arrivals.rates
        assert rates(0.5).tolist() == rates(2.0).tolist() == pytest.approx([12.5] * 8)
        assert rates(1.0)[1::2].sum() == pytest.approx(90)

    def test_a_moving_hotspot_visits_its_lanes_in_turn_from_its_start_on(self) -> None:
        event = '[[event]]\nkind = "moving-hotspot"\nat_s = 1\nevery_s = 1\nlanes = [0, 1]\nshare = 0.8\n'
        rates = read(event).scenario.arrivals.rates
        assert [round(float(rates(at)[::2].sum())) for at in (0.5, 1.5, 2.5, 3.5)] == [50, 80, 20, 80]

    def test_a_spike_multiplies_what_there_is(self) -> None:
        hot = '[[event]]\nkind = "hotspot"\nat_s = 0\nslots = [0]\nshare = 0.5\n'
        spike = '[[event]]\nkind = "spike"\nat_s = 1\nuntil_s = 2\nfactor = 3\n'
        rates = read(hot + spike).scenario.arrivals.rates
        assert rates(1.5) == pytest.approx(3 * rates(0.5))

    def test_a_spike_multiplies_a_hotspot_that_is_listed_after_it_too(self) -> None:
        spike = '[[event]]\nkind = "spike"\nat_s = 1\nuntil_s = 3\nfactor = 3\n'
        hot = '[[event]]\nkind = "hotspot"\nat_s = 2\nslots = [0]\nshare = 0.8\n'
        one, other = (read(events).scenario.arrivals.rates for events in (spike + hot, hot + spike))
        assert [one(at).tolist() for at in (0.5, 1.5, 2.5, 3.5)] == [other(at).tolist() for at in (0.5, 1.5, 2.5, 3.5)]
        assert one(2.5) == pytest.approx([240] + [60 / 7] * 7)

    def test_slow_lanes_multiply(self) -> None:
        event = '[[event]]\nkind = "slow-lane"\nat_s = 1\nlanes = [1]\nspeed = 0.5\n'
        assert read(event * 2).scenario.speeds.at(1.0, 2).tolist() == [1.0, 0.25]

    def test_memory_is_short_on_some_lanes_only(self) -> None:
        event = '[[event]]\nkind = "memory"\nat_s = 1\nlanes = [0]\nmemory_bytes = 10\n'
        memory = read(event).scenario.memory
        assert memory is not None
        assert memory.budgets.at(0.0, 2).tolist() == [np.inf, np.inf]
        assert memory.budgets.at(1.0, 2).tolist() == [10, np.inf]

    def test_added_lanes_get_work(self) -> None:
        load = LEAST.replace("duration_s = 4", "duration_s = 20").replace(
            "records_per_s = 100\n[lane]", "records_per_s = 400\n[lane]"
        )
        found = answer(read('start_s = 1.0\n[[event]]\nkind = "add-lanes"\nat_s = 4\ncount = 2\n', load))
        assert found.timeline.lanes[[0, -1]].tolist() == [2, 4]
        assert (found.timeline.served[-1] > 0).all()


class TestOwnTable:
    """Policies that route by a ring of their own start from it."""

    balance = '[balance]\npolicy = "dpa-halving"\npolicy_options = { tokens = 4 }\n'

    def test_a_policy_with_a_table_of_its_own_starts_from_it(self) -> None:
        what_if = read(self.balance)
        policy = policy_named("dpa-halving", tokens=4)
        assert what_if.scenario.first_table == policy.initial_table(8, range(2))  # type: ignore[attr-defined]
        assert read().scenario.first_table == RoutingTable.even(8, 2)

    def test_lanes_of_a_hotspot_are_those_of_its_table(self) -> None:
        event = '[[event]]\nkind = "hotspot"\nat_s = 0\nlanes = [1]\nshare = 0.9\n'
        scenario = read(self.balance + event).scenario
        hot = scenario.first_table.slots_of(1)
        assert hot.tolist() != RoutingTable.even(8, 2).slots_of(1).tolist()
        assert scenario.arrivals.rates(0.0)[hot].sum() == pytest.approx(90)

    @pytest.mark.parametrize("policy", ["dpa-halving", "dpa-doubling"])
    def test_it_relieves_a_hot_lane(self, policy: str) -> None:
        text = LEAST.replace("lanes = 2\nslots = 8\nduration_s = 4", "lanes = 8\nslots = 256\nduration_s = 30").replace(
            "= 100\n[lane]", '= 400\nskew = "hotspot"\nlanes = [0]\nshare = 0.9\n[lane]'
        )
        found, static = (answer(read(f'[balance]\npolicy = "{name}"\n', text)).summary() for name in (policy, "static"))
        assert found["waiting"] < 0.01 * static["waiting"]
        assert found["imbalance_last"] < 2 < static["imbalance_last"]


def test_the_other_tables() -> None:
    found = read(
        'memory_bytes = 5\nstart_s = 3\n[slot]\nstate_bytes = 7\n[balance]\nhandover = "pause all"\n'
        "balancer = { window_epochs = 3 }\n[move]\nnetwork_bytes_per_s = 9\nseconds_per_move = 0.5\n"
        "[time]\nstep_s = 0.5\nepoch_s = 1\nrow_s = 2\n"
    )
    scenario = found.scenario
    assert (scenario.handover.way, scenario.handover.extract_s) == (Way.PAUSE_ALL, 0.5)
    assert (scenario.network.cross_section, scenario.lane_start_s, scenario.state_bytes) == (9, 3, 7)
    assert (scenario.step_s, scenario.epoch_steps, scenario.row_epochs) == (0.5, 2, 2)
    assert found.options.window_epochs == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lanes = ", "s.toml is not TOML"),
        ("lanes = 2\n", "s.toml: the key 'load' is missing"),
        ("lanes = 0\n" + LEAST[10:], "s.toml: lanes: expected `int` >= 1"),
        ('lanes = "two"\n' + LEAST[10:], "s.toml: lanes: expected `int`, got `str`"),
        ("lane_count = 2\n" + LEAST, "there is no key 'lane_count'; known: lanes"),
        (LEAST + "memory = 1\n", "there is no key 'memory' in lane; known: records_per_s, memory_bytes"),
        (LEAST + '[balance]\npolicy = "evn"\n', "there is no policy named 'evn'.*Did you mean 'even'"),
        (LEAST + "[balance]\npolicy_options = { x = 1 }\n", "option of policy even named 'x'"),
        (LEAST + '[balance]\nhandover = "never"\n', "balance.handover: invalid enum value 'never'"),
        (
            LEAST + "[balance]\nbalancer = { wait = 1 }\n",
            "balance.balancer: there is no key 'wait'; known: window_epochs",
        ),
        (LEAST + '[[event]]\nkind = "flood"\nat_s = 1\n', "known: hotspot, moving-hotspot, spike"),
        (LEAST + '[[event]]\nkind = "spike"\nat_s = 1\nfactr = 2\n', "'factr'|'factor' is missing"),
        (
            LEAST + '[[event]]\nkind = "spike"\nat_s = 3\nuntil_s = 2\nfactor = 2\n',
            r"event 1: until_s \(2\) must be after",
        ),
        (
            LEAST + '[[event]]\nkind = "slow-lane"\nat_s = 1\nlanes = [2]\nspeed = 1\n',
            "there is no lane 2; lanes are 0 to 1",
        ),
        (LEAST + '[[event]]\nkind = "hotspot"\nat_s = 1\nshare = 0.5\n', "needs lanes = .* or slots.*got neither"),
        (
            LEAST + '[[event]]\nkind = "hotspot"\nat_s = 1\nshare = 0.5\nlanes = [0]\nslots = [1]\n',
            "event 1: a hotspot needs lanes = .* or slots = .*, got both",
        ),
        (LEAST.replace("[lane]", 'skew = "hotspot"\nlanes = [0]\nslots = [1]\n[lane]'), "load: a hotspot .* got both"),
        (LEAST.replace("[lane]", "lanes = [0]\n[lane]"), "load: lanes and slots are for skew = 'hotspot'"),
        (
            LEAST + '[[event]]\nkind = "spike"\nat_s = 4\nfactor = 2\n',
            r"event 1: at_s \(4\) must be before the end, duration_s \(4\)",
        ),
        (
            LEAST + '[[event]]\nkind = "add-lanes"\nat_s = 9\ncount = 2\n',
            r"event 1: at_s \(9\) must be before the end, duration_s \(4\)",
        ),
        (
            LEAST.replace("slots = 8", "slots = 1")
            + '[[event]]\nkind = "moving-hotspot"\nat_s = 1\nevery_s = 1\nshare = 0.5\nlanes = [1]\n',
            r"event 1: lanes \[1\] own no slots at the start",
        ),
        (LEAST.replace("duration_s = 4", "duration_s = inf"), "duration_s: expected `float` <= 1"),
        (LEAST.replace("duration_s = 4", "duration_s = nan"), "duration_s: expected `float` > 0"),
        (LEAST.replace("duration_s = 4", "duration_s = 1e12"), "would never end; a run has at most 1000000000 steps"),
        (LEAST + "[time]\nepoch_s = 1e12\n", "would never end"),
        (LEAST + "[time]\nstep_s = 1e-300\n", "time.step_s: expected `float` >= 1e-09"),
        (LEAST.replace("100\n[lane]", "1e308\n[lane]"), "load.records_per_s: expected `float` <= 1"),
        (LEAST.replace("100\n[lane]", "1e15\n[lane]"), r"load: 1e\+15 records per second.*at most 1e\+15"),
        (LEAST + '[[event]]\nkind = "spike"\nat_s = 1\nfactor = 1e14\n', "with all spikes, come to"),
        (LEAST + '[[event]]\nkind = "spike"\nat_s = 1\nfactor = 1e-300\n', ".factor: expected `float` >= 1e-09"),
        (LEAST.replace("[lane]", 'skew = "zipf"\nexponent = 1e9\n[lane]'), "load.exponent: expected `float` <= 20"),
        (LEAST.replace("[lane]\nrecords_per_s = 100", "[lane]\nrecords_per_s = inf"), "lane.records_per_s: expected"),
        ("lanes = 1_000_000_000\n" + LEAST[10:], "s.toml: lanes: expected `int` <= 10000"),
        (
            LEAST + '[balance]\npolicy_options = { calm = "abc" }\n',
            "policy even cannot use calm = 'abc': it expects float",
        ),
        (LEAST + "[balance]\npolicy_options = { calm = nan }\n", "calm.*nan"),
        (
            LEAST + '[balance]\nstrategy_options = { max_bytes_per_step = "abc" }\n',
            "strategy paced cannot use max_bytes_per_step = 'abc': it expects int",
        ),
        (
            LEAST + '[balance]\nbalancer = { window_epochs = "two" }\n',
            "balance.balancer cannot use window_epochs = 'two': it expects int",
        ),
        (LEAST + "[balance]\nbalancer = { window_epochs = 1.5 }\n", "window_epochs = 1.5: it expects int"),
        (LEAST + '[[event]]\nkind = "hotspot"\nat_s = 1\nslots = [8]\nshare = 0.5\n', "there is no slot 8"),
        (LEAST + '[balance]\nhandover = "forward and merge"\n', "only mergeable operators allow"),
    ],
)
def test_mistakes_are_answered_with_what_was_expected_and_what_came(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read(text=text)
    assert str(caught.value).startswith("s.toml")
