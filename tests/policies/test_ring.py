"""DPA's ring: Table 1 without balancing, the ring's own laws, the trigger, and what holds for any load."""

from __future__ import annotations

import string
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import InputError
from evenflow.model import LaneLoad, LoadView, LoadWindow, RoutingTable, SlotLoads
from evenflow.model.balance import skew
from evenflow.policies.base import Policy, proposal_of
from evenflow.policies.ring import DpaDoubling, DpaHalving, Ring, RingMemory, overloaded, slot_positions
from tests.policies.steady import steady_rounds, steady_view
from tests.strategies import tables, views

RARE = "".join(letter for letter in string.ascii_lowercase if letter not in "oufhjw")
WORKLOADS = {
    "WL1": "abcf" * 25,
    "WL2": "agiq" * 25,
    "WL3": "a" * 100,
    "WL4": "ou" * 20 + "fhjw" * 10 + RARE,
    "WL5": string.ascii_lowercase[:25] * 4,
}
COLLIDING = (15308, 54495)  # the texts "15308-0" and "54495-0" have the same hash

rings = st.dictionaries(st.integers(0, 9), st.integers(1, 9), min_size=1, max_size=5).map(
    lambda counts: Ring(tuple(counts.items()))
)
keys = st.text(max_size=8)


def queue_view(
    table: RoutingTable,
    queues: Mapping[int, int],
    memory: object = None,
    pending: Mapping[int, int] | None = None,
) -> LoadView:
    """Return the view of lanes with these queues; `pending` says in which slots they wait."""
    waiting = np.zeros(table.slots, dtype=int)
    for slot, records in (pending or {}).items():
        waiting[slot] = records
    lanes = tuple(LaneLoad(lane, queue=queues.get(lane, 0)) for lane in table.lanes)
    loads = SlotLoads.of(np.zeros(table.slots, dtype=int), pending=waiting)
    return LoadView((LoadWindow(loads, lanes),), table, memory)


class TestTable1:
    # DP-E1: 9 of 10 cells as printed; WL5 with doubling is 0.55 in the paper, which no workload of letters
    # repeated 4 times can give.
    @pytest.mark.parametrize(
        ("workload", "halving", "doubling"),
        [
            ("WL1", 0.00, 1.00),
            ("WL2", 0.00, 0.00),
            ("WL3", 1.00, 1.00),
            ("WL4", 0.80, 0.49),
            ("WL5", 0.20, 0.52),
        ],
    )
    def test_skew_without_balancing(self, workload: str, halving: float, doubling: float) -> None:
        items = WORKLOADS[workload]
        assert len(items) == 100
        measured = [
            round(skew(np.bincount(policy.initial_ring(range(4)).owners(items), minlength=4)), 2)
            for policy in (DpaHalving(), DpaDoubling())
        ]
        assert measured == [halving, doubling]

    def test_a1_the_papers_own_token_text_does_not_reproduce_it(self) -> None:
        papers_text = "token-{i}-{j}"
        ring = DpaHalving(token_text=papers_text).initial_ring(range(4))
        row = [round(skew(np.bincount(ring.owners(items), minlength=4)), 2) for items in WORKLOADS.values()]
        assert row != [0.00, 0.00, 1.00, 0.80, 0.20]


class TestRing:
    def test_figure_2_look_up_on_3_nodes_with_2_tokens_each(self) -> None:
        # DP-E8. Clockwise: 1-1 at -1081215004, 2-0 at -454969980, 0-0 at -20988747, 1-0 at 782384003,
        # 2-1 at 1297496284, 0-1 at 1759084288.
        ring = Ring.even(range(3), 2)
        assert mmh3.hash("f", 1) == -969434419
        assert ring.lookup("f") == 2
        assert mmh3.hash("d", 1) == 488346356
        assert ring.lookup("d") == 1
        assert mmh3.hash("a", 1) == 1485495528
        assert ring.lookup("a") == 0
        assert mmh3.hash("b", 1) == 2006153799  # past the last token: round to the first
        assert ring.lookup("b") == 1

    @given(rings, st.lists(keys, min_size=1))
    def test_m1_look_up_equals_the_linear_definition(self, ring: Ring, some: list[str]) -> None:
        tokens = [(mmh3.hash(f"{node}-{j}", 1), node) for node, count in ring.tokens for j in range(count)]
        hashes = [mmh3.hash(key, 1) for key in some]
        expected = [min((token for token in tokens if token[0] > place), default=min(tokens))[1] for place in hashes]
        assert ring.owners(some).tolist() == expected
        assert [ring.lookup(key) for key in some] == expected

    def test_a13_a_key_that_hits_a_token_goes_to_the_next_one(self) -> None:
        assert Ring.even(range(3), 2).lookup("1-1") == 2

    def test_a13_equal_hashes_go_to_the_lower_node(self) -> None:
        low, high = COLLIDING
        assert mmh3.hash(f"{low}-0", 1) == mmh3.hash(f"{high}-0", 1)
        assert set(Ring.even(COLLIDING, 1).owners(string.ascii_lowercase).tolist()) == {low}

    @given(ring=rings, some=st.lists(keys), data=st.data())
    def test_m2_halving_takes_keys_from_that_node_only(self, ring: Ring, some: list[str], data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(ring.nodes))
        halved = ring.halved(node)
        assert halved.counts == {**ring.counts, node: max(1, ring.counts[node] // 2)}
        before, after = ring.owners(some), halved.owners(some)
        assert (before[before != after] == node).all()
        assert (after[before != after] != node).all()

    @given(ring=rings, some=st.lists(keys), data=st.data())
    def test_m3_doubling_gives_that_node_nothing(self, ring: Ring, some: list[str], data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(ring.nodes))
        doubled = ring.doubled(node)
        assert doubled.counts == {other: count if other == node else 2 * count for other, count in ring.tokens}
        before, after = ring.owners(some), doubled.owners(some)
        assert (after[before != after] != node).all()

    def test_a12_one_token_cannot_be_halved(self) -> None:
        ring = Ring(((0, 1), (1, 4)))
        assert ring.halved(0) == ring

    def test_doubling_stops_at_the_limit(self) -> None:
        ring = Ring(((0, 3), (1, 4), (2, 9), (3, 8)))
        assert ring.doubled(0, limit=8).counts == {0: 3, 1: 8, 2: 9, 3: 8}

    def test_nodes_join_and_leave(self) -> None:
        assert Ring(((0, 3), (2, 5))).joined([2, 7], 4).counts == {2: 5, 7: 4}

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [
            ({"tokens": ()}, "at least 1 node"),
            ({"tokens": ((0, 0),)}, "at least 1 token"),
            ({"tokens": ((0, 1), (0, 2))}, "each node once"),
            ({"tokens": ((0, 1),), "token_text": "{i}"}, "both {i} and {j}"),
            ({"tokens": ((0, 1),), "token_text": "{k}-{i}-{j}"}, "{i} and {j} only"),
            ({"tokens": ((0, 1),), "seed": -1}, "seed"),
        ],
    )
    def test_impossible_rings_are_refused(self, options: dict[str, Any], complaint: str) -> None:
        with pytest.raises(InputError, match=complaint):
            Ring(**options)

    @pytest.mark.parametrize("change", [Ring.halved, Ring.doubled])
    def test_strangers_are_refused(self, change: Any) -> None:
        with pytest.raises(InputError, match="node 5 is not on the ring"):
            change(Ring.even(range(3), 2), 5)

    def test_the_places_of_many_slots_are_kept(self) -> None:
        positions = slot_positions(100_000, seed=77)
        assert slot_positions(100_000, seed=77) is positions
        assert not positions.flags.writeable
        assert positions[4711] == mmh3.hash("4711", 77)


class TestTrigger:
    @pytest.mark.parametrize(
        ("queues", "lane"),
        [
            ({0: 0, 1: 0}, None),
            ({0: 1, 1: 0}, 0),  # DP-A2: against an empty queue any other is overloaded
            ({0: 7, 1: 7}, None),
            ({0: 12, 1: 10}, None),  # exactly 1 + tau
            ({0: 10, 1: 13}, 1),
            ({0: 13, 1: 10, 2: 13}, None),
            ({3: 5}, 3),  # DP-A4: nobody else was heard of
            ({}, None),
        ],
    )
    def test_m4_it_fires_exactly_on_equation_1(self, queues: dict[int, int], lane: int | None) -> None:
        assert overloaded(queues, 0.2) == lane

    @given(st.dictionaries(st.integers(0, 9), st.integers(0, 40), min_size=2), st.sampled_from([0.0, 0.25, 1.0]))
    def test_m4_any_queues(self, queues: dict[int, int], tau: float) -> None:
        second, most = sorted(queues.values())[-2:]
        lane = overloaded(queues, tau)
        assert (lane is not None) == (most > second * (1 + tau))
        assert lane is None or queues[lane] == most

    def test_a3_only_the_reporter_is_tested_if_there_is_one(self) -> None:
        queues = {0: 30, 1: 10, 2: 5}
        assert overloaded(queues, 0.2) == 0
        assert overloaded(queues, 0.2, reporter=0) == 0
        assert overloaded(queues, 0.2, reporter=1) is None
        assert overloaded({1: 10}, 0.2, reporter=1) == 1
        assert overloaded({1: 10}, 0.2, reporter=2) is None

    def test_a2_a_minimum_queue_length(self) -> None:
        assert overloaded({0: 4, 1: 0}, 0.2, min_queue=5) is None
        assert overloaded({0: 5, 1: 0}, 0.2, min_queue=5) == 0


class TestPolicies:
    @pytest.mark.parametrize("policy", [DpaHalving(), DpaDoubling()])
    def test_the_slots_follow_the_ring(self, policy: DpaHalving | DpaDoubling) -> None:
        table = policy.initial_table(256, range(4))
        proposal = proposal_of(policy, queue_view(table, {1: 50, 2: 10}))
        assert proposal.memory.ring == policy.redistribute(policy.initial_ring(range(4)), 1)
        assert proposal.memory.rounds == ((1, 1),)
        after = proposal.table_after(table)
        assert after.owners.tolist() == proposal.memory.ring.table(256).owners.tolist()
        assert proposal.moves
        assert all(move.target != 1 for move in proposal.moves)

    def test_halving_moves_slots_of_the_overloaded_lane_only(self) -> None:
        policy = DpaHalving()
        proposal = policy.propose(queue_view(policy.initial_table(256, range(4)), {3: 9}))
        assert {move.source for move in proposal.moves} == {3}

    def test_a_slot_placed_by_hand_stays_until_its_lane_is_overloaded(self) -> None:
        policy = DpaHalving()
        table = policy.initial_table(256, range(4))
        moved = proposal_of(policy, queue_view(table, {3: 9})).moves
        hand = RoutingTable(np.where(np.arange(256) == moved[0].slot, 0, table.owners), table.lanes)
        assert proposal_of(policy, queue_view(hand, {3: 9})).moves == moved[1:]
        back = proposal_of(policy, queue_view(hand, {0: 9})).table_after(hand)
        assert back.owners[moved[0].slot] == 3

    @pytest.mark.parametrize("restart", [None, 2, 3])
    @pytest.mark.parametrize("own_table", [True, False])
    @pytest.mark.parametrize("policy", [DpaHalving(), DpaDoubling()], ids=lambda policy: policy.name)
    def test_a_lane_is_relieved_from_any_table_and_after_a_restart(
        self, policy: DpaHalving | DpaDoubling, own_table: bool, restart: int | None
    ) -> None:
        table = policy.initial_table(256, range(8)) if own_table else RoutingTable.even(256, 8)
        loads = SlotLoads.of(np.zeros(256, dtype=int), pending=np.where(table.owners == 0, 100, 0))
        memory = None
        for turn in range(40):
            memory = None if turn == restart else memory
            proposal = proposal_of(policy, steady_view(table, loads, memory))
            memory, table = proposal.memory, proposal.table_after(table)
        waiting = table.sum_by_lane(loads.pending)
        assert waiting.max() / waiting.sum() < 0.3  # all of it at first

    @pytest.mark.parametrize("policy", [DpaHalving(rounds_total=0), DpaHalving(tokens=1)], ids=["used up", "no token"])
    def test_slots_go_where_the_ring_has_them_when_it_can_change_no_more(self, policy: DpaHalving) -> None:
        table = RoutingTable(np.zeros(64, dtype=int), (0, 1, 2, 3))
        proposal = proposal_of(policy, queue_view(table, {0: 50}))
        assert proposal.table_after(table).owners.tolist() == policy.initial_table(64, range(4)).owners.tolist()
        assert proposal.memory.rounds == ()

    def test_f1_new_lanes_claim_their_slots_from_any_table(self) -> None:
        policy = DpaHalving()
        table = RoutingTable(np.zeros(256, dtype=int), (0, 1, 7))
        proposal = proposal_of(policy, queue_view(table, {0: 50}, RingMemory(policy.initial_ring([0, 1]))))
        claimed = np.flatnonzero(proposal.memory.ring.slot_owners(256) == 7)
        assert [move.slot for move in proposal.moves] == claimed.tolist()
        assert {move.target for move in proposal.moves} == {7}

    def test_even_queues_move_nothing(self) -> None:
        policy = DpaHalving()
        proposal = policy.propose(queue_view(policy.initial_table(64, range(4)), dict.fromkeys(range(4), 7)))
        assert proposal.moves == ()
        assert proposal.memory == RingMemory(policy.initial_ring(range(4)))

    def test_a_single_lane_moves_nothing(self) -> None:
        policy = DpaDoubling()
        proposal = policy.propose(queue_view(policy.initial_table(64, [5]), {5: 100}))
        assert proposal.moves == ()
        assert proposal.memory.rounds == ()

    def test_a_short_queue_can_be_let_pass(self) -> None:
        policy = DpaHalving(min_queue=10)
        table = policy.initial_table(64, range(2))
        assert policy.propose(queue_view(table, {0: 9})).moves == ()
        assert policy.propose(queue_view(table, {0: 10})).moves

    @pytest.mark.parametrize("policy_class", [DpaHalving, DpaDoubling])
    @pytest.mark.parametrize("limit", [0, 1, 2, 3])
    def test_m11_exactly_the_allowed_rounds_are_used(
        self, policy_class: type[DpaHalving | DpaDoubling], limit: int
    ) -> None:
        cases: list[tuple[dict[str, Any], tuple[int, int]]] = [
            ({"rounds_per_lane": limit}, (limit, limit)),
            ({"rounds_total": limit}, ((limit + 1) // 2, limit // 2)),
        ]
        for options, expected in cases:
            policy = policy_class(**options)
            memory, table = None, policy.initial_table(64, range(2))
            for turn in range(10):
                proposal = proposal_of(policy, queue_view(table, {turn % 2: 50}, memory))
                memory, table = proposal.memory, proposal.table_after(table)
            assert memory is not None
            assert memory.rounds == tuple((lane, used) for lane, used in enumerate(expected) if used)
            assert "used up" in proposal.note

    def test_a12_running_out_of_halving_is_reported_and_costs_no_round(self) -> None:
        policy, memory = DpaHalving(), None
        table = policy.initial_table(64, range(2))
        for _ in range(9):
            proposal = proposal_of(policy, queue_view(table, {0: 50}, memory))
            memory, table = proposal.memory, proposal.table_after(table)
        assert "run out of halving" in proposal.note
        assert proposal.memory == RingMemory(Ring(((0, 1), (1, 64))), ((0, 6),))

    def test_doubling_ends_at_its_bound(self) -> None:
        policy, memory = DpaDoubling(max_tokens=8), None
        table = policy.initial_table(64, range(2))
        for _ in range(5):
            proposal = proposal_of(policy, queue_view(table, {0: 50}, memory))
            memory, table = proposal.memory, proposal.table_after(table)
        assert "has reached 8 tokens" in proposal.note
        assert proposal.memory == RingMemory(Ring(((0, 1), (1, 8))), ((0, 3),))

    def test_f1_new_lanes_claim_slots_with_the_initial_tokens(self) -> None:
        policy = DpaHalving()
        table = policy.initial_table(256, range(3))
        memory = RingMemory(policy.initial_ring(range(3)).halved(0), ((0, 1),))
        table = memory.ring.table(256).with_lanes([0, 1, 2, 7])
        proposal = proposal_of(policy, queue_view(table, {0: 50}, memory))
        assert {move.target for move in proposal.moves} == {7}
        assert proposal.memory == RingMemory(Ring(((0, 32), (1, 64), (2, 64), (7, 64))), ((0, 1),))

    def test_lanes_that_go_leave_the_ring_and_their_slots_stay_where_they_were_put(self) -> None:
        policy = DpaHalving()
        memory = RingMemory(policy.initial_ring(range(3)))
        owners = memory.ring.slot_owners(256)
        table = RoutingTable(np.where(owners == 2, 0, owners), (0, 1))
        proposal = proposal_of(policy, queue_view(table, {0: 50}, memory))
        assert proposal.moves == ()
        assert proposal.memory.ring.nodes == (0, 1)

    def test_a_slot_with_most_of_the_queue_is_named(self) -> None:
        policy = DpaHalving()
        table = policy.initial_table(64, range(2))
        first, second = table.slots_of(0)[:2].tolist()
        hot = queue_view(table, {0: 100}, pending={first: 51, second: 49})
        assert policy.propose(hot).not_curable == (first,)
        cool = queue_view(table, {0: 100}, pending={first: 50, second: 50})
        assert policy.propose(cool).not_curable == ()

    @pytest.mark.parametrize("policy", [DpaHalving, DpaDoubling])
    @pytest.mark.parametrize(
        "options",
        [
            {"tokens": 0},
            {"tau": -0.1},
            {"tau": float("nan")},
            {"min_queue": -1},
            {"rounds_per_lane": -1},
            {"rounds_total": -1},
            {"token_text": "x"},
            {"seed": 2**32},
        ],
        ids=repr,
    )
    def test_bad_options_are_refused(self, policy: type[DpaHalving | DpaDoubling], options: dict[str, Any]) -> None:
        with pytest.raises(InputError, match=f"{policy.name}: {next(iter(options))}"):
            policy(**options)

    def test_a_bound_below_the_start_is_refused(self) -> None:
        with pytest.raises(InputError, match="dpa-doubling: max_tokens must be at least tokens"):
            DpaDoubling(tokens=8, max_tokens=4)


@pytest.mark.parametrize("policy", [DpaHalving(), DpaDoubling()], ids=lambda policy: policy.name)
@given(view=views())
def test_any_proposal_is_valid_and_never_loads_the_overloaded_lane(policy: Policy, view: LoadView) -> None:
    proposal = proposal_of(policy, view)
    longest = max(view.last.lanes, key=lambda load: load.queue).lane
    assert all(move.target != longest and move.reason for move in proposal.moves)
    assert proposal == proposal_of(policy, view)


# A ring that changes has tokens fewer (halving) or more (doubling) than ever before, within bounds: 64 can be
# halved 6 times per lane, 1 doubled 4 times up to 16.
@pytest.mark.parametrize(
    ("policy", "changes"), [(DpaHalving(), 6), (DpaDoubling(max_tokens=16), 4)], ids=["halving", "doubling"]
)
@given(data=st.data())
def test_a_steady_load_comes_to_rest_and_no_ring_comes_back(
    policy: DpaHalving | DpaDoubling, changes: int, data: st.DataObject
) -> None:
    table = data.draw(tables(max_slots=24, max_lanes=4))
    lanes = len(table.lanes)
    pending = data.draw(st.lists(st.integers(0, 500), min_size=table.slots, max_size=table.slots))
    loads = SlotLoads.of(np.zeros(table.slots, dtype=int), pending=pending)
    rounds = list(steady_rounds(policy, table, loads, rounds=(changes + 1) * lanes + 2))
    made = [proposal for _, proposal in rounds]
    table, last = rounds[-1]
    assert not last.moves
    longest = overloaded(
        dict(zip(table.lanes, table.sum_by_lane(loads.pending).astype(int).tolist(), strict=True)), 0.2
    )
    if longest is not None and lanes > 1:
        assert (last.memory.ring.slot_owners(table.slots)[table.slots_of(longest)] == longest).all()
    assert last.memory == made[-2].memory
    changed = [proposal.memory.ring for proposal in made]
    distinct = [ring for ring, following in pairwise(changed) if ring != following]
    assert len(distinct) == len(set(distinct))
