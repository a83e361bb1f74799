from __future__ import annotations

from collections import Counter
from heapq import merge
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.errors import InputError, ProtocolError
from evenflow.model import Move
from evenflow.policies.ring import DpaDoubling, DpaHalving
from papers.dpa.protocol.coordinator import Coordinator
from papers.dpa.protocol.forwarding import MERGE, DpaOptions, Reducer, Variant, dpa_run
from papers.dpa.protocol.staged import STAGED, Stage, StagedReducer
from papers.dpa.protocol.state_forwarding import SIMPLE, STATE_FORWARDING, MarkingMapper, StateForwardingReducer
from papers.messages.folds import HISTORY, LAST, SUM, Fold, fold_of
from papers.messages.stream import RecordStream

NAMES = [chr(ord("a") + at) for at in range(26)]
VARIANTS = [MERGE, STATE_FORWARDING, SIMPLE, STAGED]


def items(seed: int, count: int = 300, paths: int = 3, *, one_path: bool = False) -> RecordStream:
    """Letters, a few of them hot, faster than the reducers can serve."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(26, 0.3))
    key = rng.choice(26, count, p=weights)
    mapper = key % paths if one_path else rng.integers(0, paths, count)
    due = np.sort(rng.integers(0, 500 * count, count))
    return RecordStream(due, mapper, mapper, key, rng.integers(1, 9, count), np.arange(26), 26)


def options(seed: int = 1, **changes: Any) -> DpaOptions:
    policy = DpaHalving(tokens=8, rounds_per_lane=3) if seed % 2 else DpaDoubling(rounds_per_lane=3)
    parts = {"policy": policy, "service": 1_900, "report_every": 5, "seed": seed}
    return DpaOptions(**{**parts, **changes})


SORTED = fold_of("sorted", lambda state, value: sorted([*state, value]), [], lambda a, b: list(merge(a, b)))


class TestMerge:
    @given(st.integers(0, 10_000), st.sampled_from([0, 700, 50_000]), st.sampled_from([0, 300]))
    @settings(max_examples=40)
    def test_m6_m9_each_item_once_by_its_owner_whatever_mappers_know(self, seed: int, stale: int, delay: int) -> None:
        run = dpa_run(items(seed), NAMES, options(seed, ring_delay=stale, forward_delay=delay, data_delay=delay))
        result = run.run()  # checks: once, and by no reducer that did not own the key when it took the item
        assert result.counts(4).sum() == 300

    def test_m9_stale_mappers_cost_forwarding_only(self) -> None:
        forwarded = []
        for stale in (0, 100_000):
            run = dpa_run(items(1), NAMES, options(1, ring_delay=stale))
            result = run.run()
            assert run.balancer.version > 0
            assert result.state == SUM.oracle(result.stream)
            forwarded.append(sum(reducer.forwarded for reducer in run.reducers))
        assert forwarded[0] < forwarded[1]

    @pytest.mark.parametrize("fold", [SUM, SORTED], ids=lambda fold: fold.name)
    @pytest.mark.parametrize("seed", [1, 2])
    def test_m7_partial_states_merge_to_the_oracle_also_by_a_users_function(self, fold: Fold, seed: int) -> None:
        run = dpa_run(items(seed), NAMES, options(seed, fold=fold))
        run.run()
        held: Counter[int] = Counter(
            key for reducer in run.reducers for states in reducer.state.values() for key in states
        )
        assert max(held.values()) > 1, "no key was served by two reducers, the test shows nothing"

    def test_a_function_that_cannot_be_merged_is_found_out(self) -> None:
        with pytest.raises(ProtocolError, match="differs from the oracle"):
            dpa_run(items(1), NAMES, options(1, fold=HISTORY)).run()

    def test_m5_every_reducer_has_a_queue_of_its_own(self) -> None:
        run = dpa_run(items(1), NAMES, options(1))
        assert len({id(reducer.queue) for reducer in run.reducers}) == 4

    def test_a_reducer_that_does_not_ask_is_caught(self) -> None:
        class Careless(Reducer):
            def owns(self, record: int, slot: int) -> bool:  # noqa: ARG002
                return True

        with pytest.raises(ProtocolError, match="served by a lane that does not hold it"):
            dpa_run(items(1), NAMES, options(1), Variant("careless", Careless, merges=True, ordered=False)).run()

    def test_an_order_of_ties_that_is_none_is_refused(self) -> None:
        with pytest.raises(InputError, match="order the reducers 0 to 3"):
            DpaOptions(ties=(0, 1, 1, 2))

    @pytest.mark.parametrize("limit", [0, 1, 2])
    def test_m11_no_reducer_is_relieved_more_often_than_allowed(self, limit: int) -> None:
        run = dpa_run(items(3, 600), NAMES, options(policy=DpaHalving(rounds_per_lane=limit)))
        run.run()
        assert max(run.balancer.rounds.values(), default=0) == limit

    def test_f6_another_measure_of_load(self) -> None:
        seen: list[int] = []

        def served(reducer: Reducer) -> int:
            seen.append(reducer.served)
            return reducer.served

        run = dpa_run(items(1), NAMES, options(1, load=served))
        run.run()
        assert seen
        assert run.balancer.version > 0


class TestCoordinator:
    @given(st.integers(0, 10_000), st.sampled_from([0, 400, 5_000]))
    @settings(max_examples=20)
    def test_m8_nothing_is_lost_at_the_end(self, seed: int, delay: int) -> None:
        run = dpa_run(items(seed), NAMES, options(seed, forward_delay=delay, data_delay=delay))
        coordinator = Coordinator(run, run.sources, period=500)
        coordinator.start()
        result = run.run()
        assert coordinator.stopped_at >= result.served_at.max()

    def test_m8_empty_queues_are_not_enough(self) -> None:
        class Hasty(Coordinator):
            def finished(self) -> bool:
                empty = not any(reducer.queue for reducer in self.run.reducers)
                return all(source.is_done for source in self.sources) and empty

        run = dpa_run(items(1), NAMES, options(1, service=100, data_delay=5_000))
        Hasty(run, run.sources, period=100).start()
        with pytest.raises(ProtocolError, match="never served"):
            run.run()


class TestNewReducers:
    @pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
    @pytest.mark.parametrize("seed", [3, 4])
    def test_f1_a_reducer_added_at_half_time_claims_keys_and_lowers_the_load(self, variant: Variant, seed: int) -> None:
        stream = items(seed, 600)
        policy = DpaHalving(tokens=16, rounds_per_lane=0)
        alone = dpa_run(stream, NAMES, options(policy=policy), variant).run()
        half = int(stream.due[300])
        run = dpa_run(stream, NAMES, options(policy=policy, joins=((half, 4),)), variant)
        joined = run.run()
        assert run.balancer.ring.nodes == (0, 1, 2, 3, 4)
        assert joined.counts(5)[4] > 0
        assert joined.served_at[joined.served_by == 4].min() >= half
        assert joined.counts(5)[:4].sum() < alone.counts(4).sum()
        assert joined.end_s <= alone.end_s


class TestStateForwarding:
    @given(st.integers(0, 10_000), st.sampled_from([0, 700, 20_000]), st.sampled_from([HISTORY, LAST]))
    @settings(max_examples=40)
    def test_f2_functions_of_the_order_come_out_right(self, seed: int, delay: int, fold: Fold) -> None:
        changes = {"ring_delay": delay, "forward_delay": delay // 2, "data_delay": delay // 3, "fold": fold}
        dpa_run(items(seed, one_path=True), NAMES, options(seed, **changes), STATE_FORWARDING).run()

    @given(st.integers(0, 10_000), st.sampled_from([0, 700, 20_000]), st.sampled_from([HISTORY, LAST]))
    @settings(max_examples=40)
    def test_f3_so_they_do_if_mappers_are_never_told(self, seed: int, delay: int, fold: Fold) -> None:
        changes = {"forward_delay": delay // 2, "data_delay": delay // 3, "fold": fold}
        dpa_run(items(seed, one_path=True), NAMES, options(seed, **changes), SIMPLE).run()

    def test_f3_at_the_price_of_more_traffic(self) -> None:
        forwarded = {}
        for variant in (STATE_FORWARDING, SIMPLE):
            # one round in all: both move the same keys
            policy = DpaHalving(tokens=8, rounds_total=1)
            run = dpa_run(items(5, 1_000, one_path=True), NAMES, options(policy=policy), variant)
            run.run()
            assert run.balancer.version == 1
            forwarded[variant.name] = sum(reducer.forwarded for reducer in run.reducers)
        assert forwarded[SIMPLE.name] > forwarded[STATE_FORWARDING.name] > 0

    def test_inputs_that_do_not_wait_for_the_state_are_caught(self) -> None:
        class Hasty(StateForwardingReducer):
            def expect(self, slot: int, epoch: int) -> None:
                self.absent.setdefault(-1 - slot, {})[epoch] = []

            def control(self, port: int, message: Any) -> int:
                return 0 if type(message).__name__ == "NoMore" else super().control(port, message)

        hasty = Variant("hasty", Hasty, MarkingMapper)
        with pytest.raises(ProtocolError, match="does not hold it"):
            dpa_run(items(1, one_path=True), NAMES, options(1, forward_delay=9_000), hasty).run()


class Noting(StagedReducer):
    """Writes down in which stage it served a record and where its state was."""

    notes: list[tuple[int, int, Stage]]

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.notes = []

    def owns(self, record: int, slot: int) -> bool:
        before = self.forwarded
        mine = super().owns(record, slot)
        if self.forwarded > before:
            self.notes.append((self.version, self.ring_owners[slot], self.stage))
        return mine


class TestStaged:
    @given(st.integers(0, 10_000), st.sampled_from([0, 300, 5_000]), st.sampled_from([0, 90_000]))
    @settings(max_examples=40)
    def test_f4_the_state_is_always_there_even_for_data_of_an_old_ring(self, seed: int, delay: int, stale: int) -> None:
        run = dpa_run(items(seed), NAMES, options(seed, forward_delay=delay, ring_delay=stale), STAGED)
        run.run()  # no lane serves a slot that it does not hold, nothing is merged
        assert all(reducer.stage is Stage.FREE for reducer in run.reducers if isinstance(reducer, StagedReducer))

    @pytest.mark.parametrize("seed", range(4))
    def test_f4_nothing_is_forwarded_while_states_are_exchanged(self, seed: int) -> None:
        noting = Variant("noting", Noting, rests=True, ordered=False)
        run = dpa_run(items(seed), NAMES, options(seed, forward_delay=300), noting)
        run.run()
        notes = [note for reducer in run.reducers if isinstance(reducer, Noting) for note in reducer.notes]
        assert notes
        assert {stage for _, _, stage in notes} == {Stage.FREE}

    @pytest.mark.parametrize("seed", range(4))
    def test_f5_all_reducers_use_one_ring_in_a_stage(self, seed: int) -> None:
        run = dpa_run(items(seed), NAMES, options(seed, forward_delay=300), STAGED)
        run.run()
        stages = [reducer.stages for reducer in run.reducers if isinstance(reducer, StagedReducer)]
        assert len(stages[0]) > 0
        assert all(other == stages[0] for other in stages)
        versions = [version for version, _ in stages[0]]
        assert versions == sorted(set(versions))

    def test_a_reducer_that_forwards_before_all_states_are_there_is_caught(self) -> None:
        class Hasty(StagedReducer):
            def owns(self, record: int, slot: int) -> bool:
                if self.stage is Stage.EXCHANGING:
                    owner = self.ring_owners[slot]
                    if owner != self.lane:
                        self.forward(record, owner)
                    return owner == self.lane
                return super().owns(record, slot)

        hasty = Variant("hasty", Hasty, rests=True, ordered=False)
        with pytest.raises(ProtocolError, match="does not hold it"):
            dpa_run(items(2, 600), NAMES, options(2, forward_delay=5_000), hasty).run()


def test_moves_are_told_by_key() -> None:
    run = dpa_run(items(1), NAMES, options(1))
    told: list[Move] = []
    run.balancer.listeners.append(lambda _, moves: told.extend(moves))
    before = list(run.balancer.owners)
    run.run()
    for move in told:
        assert before[move.slot] == move.source
        before[move.slot] = move.target
    assert before == run.balancer.owners
