"""Strategies: the same moves in another order, the paper's counts literally, and the edge colouring below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import InputError, UnknownNameError
from evenflow.migration import (
    DEFAULT_STRATEGY,
    STRATEGIES,
    QueuedStep,
    Step,
    Strategy,
    Weights,
    scheduled,
    steps_between,
    strategy_named,
)
from evenflow.migration.matching import edge_colours
from evenflow.model import Move, RoutingTable
from tests.strategies import tables

MB = 1 << 20
NAMES = sorted(STRATEGIES)


@st.composite
def table_pairs(draw: st.DrawFn) -> tuple[RoutingTable, RoutingTable]:
    """Two tables of the same slots and lanes."""
    current = draw(tables(max_slots=40))
    some_lane = st.sampled_from(current.lanes)
    owners = draw(st.lists(some_lane, min_size=current.slots, max_size=current.slots))
    return current, RoutingTable(np.array(owners), current.lanes)


@st.composite
def weights(draw: st.DrawFn) -> Weights:
    """Loads and sizes of some slots; of others nothing is known."""
    some_slots = st.integers(0, 39)
    load = draw(st.dictionaries(some_slots, st.floats(0, 100)))
    return Weights(load, draw(st.dictionaries(some_slots, st.integers(0, 4 * MB))))


def steps_of(name: str, moves: Sequence[Move], sizes: Sequence[int] = (), load: Sequence[float] = ()) -> list[Step]:
    return list(strategy_named(name).steps(moves, Weights(dict(enumerate(load)), dict(enumerate(sizes)))))


def lanes_in(step: Step) -> list[int]:
    return [lane for move in step for lane in (move.source, move.target)]


def degrees(edges: Sequence[tuple[int, int]]) -> Counter[int]:
    return Counter(vertex for edge in edges for vertex in edge)


class TestPaper:
    """LR-M7: 256 slots from 4 lanes to 8; every old lane gives half of its slots to one new lane."""

    four = RoutingTable(np.arange(256) % 4, tuple(range(8)))
    eight = RoutingTable(np.arange(256) % 8, tuple(range(8)))

    @pytest.mark.parametrize(
        ("name", "steps", "moves_per_step"), [("sudden", 1, 128), ("fluid", 128, 1), ("batched", 32, 4)]
    )
    def test_steps_from_4_to_8_lanes(self, name: str, steps: int, moves_per_step: int) -> None:
        plan = steps_between(self.four, self.eight, strategy_named(name))
        assert [len(step) for step in plan] == [moves_per_step] * steps

    @pytest.mark.parametrize(("name", "steps"), [("sudden", 1), ("fluid", 128), ("batched", 32)])
    def test_scaling_in_takes_as_many_steps_as_scaling_out(self, name: str, steps: int) -> None:
        assert len(steps_between(self.eight, self.four, strategy_named(name))) == steps

    @pytest.mark.parametrize("name", NAMES)
    def test_slots_that_stay_take_no_step(self, name: str) -> None:
        # LR-A2: "a sequence of 256 migrations" has 128 real ones.
        plan = steps_between(self.four, self.eight, strategy_named(name))
        assert sorted(move.slot for step in plan for move in step) == [slot for slot in range(256) if slot % 8 >= 4]
        assert steps_between(self.eight, self.eight, strategy_named(name)) == ()

    def test_a_lane_is_one_vertex_it_may_not_give_and_take_in_one_step(self) -> None:
        # LR-A7: with senders and receivers as two sides, a ring of three would need one step only.
        ring = [Move(0, 0, 1), Move(1, 1, 2), Move(2, 2, 0)]
        assert steps_of("batched", ring) == [(ring[0],), (ring[1],), (ring[2],)]

    def test_two_slots_between_the_same_two_lanes_take_two_steps(self) -> None:
        there_and_back = [Move(0, 0, 1), Move(1, 1, 0)]
        assert steps_of("batched", there_and_back) == [(there_and_back[0],), (there_and_back[1],)]


class TestAll:
    @given(table_pairs(), weights(), st.sampled_from(NAMES))
    def test_all_end_in_the_same_table(
        self, pair: tuple[RoutingTable, RoutingTable], weights: Weights, name: str
    ) -> None:
        current, wanted = pair
        table = current
        for step in steps_between(current, wanted, strategy_named(name), weights):
            table = table.apply(step)
        assert table.owners.tolist() == wanted.owners.tolist()

    @given(table_pairs(), weights(), st.sampled_from(NAMES))
    def test_every_move_once_and_no_empty_step(
        self, pair: tuple[RoutingTable, RoutingTable], weights: Weights, name: str
    ) -> None:
        plan = steps_between(*pair, strategy_named(name), weights)
        assert all(plan)
        assert sorted(move for step in plan for move in step) == sorted(pair[0].difference(pair[1]))

    @pytest.mark.parametrize("name", NAMES)
    def test_nothing_to_move_is_no_step(self, name: str) -> None:
        assert steps_of(name, []) == []

    @pytest.mark.parametrize("name", NAMES)
    def test_reasons_are_kept(self, name: str) -> None:
        assert steps_of(name, [Move(0, 0, 1, "hot")])[0][0].reason == "hot"


class TestBatched:
    @given(table_pairs())
    def test_no_lane_twice_in_a_step(self, pair: tuple[RoutingTable, RoutingTable]) -> None:
        for step in steps_between(*pair, strategy_named("batched")):
            assert max(Counter(lanes_in(step)).values()) == 1

    @given(table_pairs(), st.integers(1, 5))
    def test_as_many_steps_as_the_busiest_lane_has_moves_where_none_gives_and_takes(
        self, pair: tuple[RoutingTable, RoutingTable], givers: int
    ) -> None:
        moves = pair[0].difference(pair[1])
        giving = set(pair[0].lanes[:givers])
        moves = tuple(move for move in moves if move.source in giving and move.target not in giving)
        busiest = max(degrees([(move.source, move.target) for move in moves]).values(), default=0)
        assert len(steps_of("batched", moves)) == busiest

    @given(table_pairs())
    def test_never_more_than_half_as_many_again(self, pair: tuple[RoutingTable, RoutingTable]) -> None:
        moves = pair[0].difference(pair[1])
        busiest = max(degrees([(move.source, move.target) for move in moves]).values(), default=0)
        assert busiest <= len(steps_of("batched", moves)) <= busiest * 3 // 2


class TestPaced:
    def test_the_hottest_first_and_the_lower_slot_among_equals(self) -> None:
        moves = [Move(slot, 0, 1) for slot in range(4)]
        assert steps_of("paced", moves, sizes=[16 * MB] * 4, load=[1, 7, 3, 7]) == [
            (moves[1],), (moves[3],), (moves[2],), (moves[0],),
        ]  # fmt: skip

    def test_a_step_is_filled_up_to_the_bound(self) -> None:
        moves = [Move(slot, 0, 1) for slot in range(5)]
        steps = steps_of("paced", moves, sizes=[6 * MB, 10 * MB, 1, 8 * MB, 8 * MB], load=[5, 4, 3, 2, 1])
        assert [[move.slot for move in step] for step in steps] == [[0, 1], [2, 3], [4]]

    def test_a_slot_above_the_bound_goes_alone(self) -> None:
        moves = [Move(slot, 0, 1) for slot in range(3)]
        steps = steps_of("paced", moves, sizes=[1, 100 * MB, 1], load=[3, 2, 1])
        assert [[move.slot for move in step] for step in steps] == [[0], [1], [2]]

    def test_slots_without_state_share_a_step(self) -> None:
        moves = [Move(slot, 0, 1) for slot in range(100)]
        assert len(steps_of("paced", moves)) == 1

    @given(table_pairs(), weights(), st.integers(1, 6 * MB))
    def test_bound_and_order(self, pair: tuple[RoutingTable, RoutingTable], weights: Weights, bound: int) -> None:
        steps = steps_between(*pair, strategy_named("paced", max_bytes_per_step=bound), weights)
        sizes = [[weights.state_bytes.get(move.slot, 0) for move in step] for step in steps]
        assert all(sum(step) <= bound or len(step) == 1 for step in sizes)
        loads = [weights.load.get(move.slot, 0.0) for step in steps for move in step]
        assert loads == sorted(loads, reverse=True)

    @pytest.mark.parametrize("bound", [0, -1])
    def test_a_bound_that_lets_nothing_through_is_refused(self, bound: int) -> None:
        with pytest.raises(InputError, match=f"max_bytes_per_step must be at least 1, got {bound}"):
            strategy_named("paced", max_bytes_per_step=bound)


class TestNames:
    def test_the_four_and_the_default(self) -> None:
        assert NAMES == ["batched", "fluid", "paced", "sudden"]
        assert DEFAULT_STRATEGY in STRATEGIES

    @pytest.mark.parametrize("name", NAMES)
    def test_each_tells_its_name_its_paper_and_what_it_does(self, name: str) -> None:
        strategy: Strategy = strategy_named(name)
        assert strategy.name == name
        assert strategy.paper
        assert strategy.summary

    def test_an_unknown_name_lists_the_known_ones(self) -> None:
        with pytest.raises(
            UnknownNameError, match=r"no strategy named 'bached'; known: batched, fluid, paced, sudden.*'batched'"
        ):
            strategy_named("bached")

    def test_an_unknown_option_lists_the_known_ones(self) -> None:
        with pytest.raises(
            UnknownNameError,
            match=r"no option of strategy paced named 'bytes'; known: max_added_latency, max_bytes_per_step",
        ):
            strategy_named("paced", bytes=1)
        with pytest.raises(UnknownNameError, match=r"no option of strategy fluid .*it has none"):
            strategy_named("fluid", every=1)


class TestScheduled:
    steps = ((Move(0, 0, 1),), (Move(1, 0, 1),), (Move(2, 0, 1),))

    @pytest.mark.parametrize(
        ("first", "every", "epochs"), [(0, 1, [0, 1, 2]), (7, 0, [7, 7, 7]), (100, 50, [100, 150, 200])]
    )
    def test_each_step_gets_its_earliest_epoch(self, first: int, every: int, epochs: list[int]) -> None:
        plan = scheduled(self.steps, first, every)
        assert plan == tuple(QueuedStep(step, epoch) for step, epoch in zip(self.steps, epochs, strict=True))

    @pytest.mark.parametrize(("first", "every"), [(-1, 1), (0, -1)])
    def test_negative_epochs_are_refused(self, first: int, every: int) -> None:
        with pytest.raises(InputError, match=f"first_epoch={first}, every={every}"):
            scheduled(self.steps, first, every)


def multigraphs(vertices: int, max_edges: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Any multigraph without loops; few vertices and many edges, so that parallel edges abound."""
    ends = st.tuples(st.integers(0, vertices - 1), st.integers(0, vertices - 1))
    return st.lists(ends.filter(lambda pair: pair[0] != pair[1]), max_size=max_edges)


class TestEdgeColours:
    def assert_proper(self, edges: Sequence[tuple[int, int]], colours: Sequence[int]) -> None:
        ends = [(vertex, colour) for edge, colour in zip(edges, colours, strict=True) for vertex in edge]
        assert len(set(ends)) == len(ends)
        assert set(colours) == set(range(len(set(colours))))

    @given(multigraphs(6, 60), st.integers(1, 5))
    def test_koenig_bipartite_multigraphs_take_as_many_colours_as_the_largest_degree(
        self, edges: list[tuple[int, int]], left: int
    ) -> None:
        edges = [edge for edge in edges if (edge[0] < left) != (edge[1] < left)]
        colours = edge_colours(edges)
        self.assert_proper(edges, colours)
        assert len(set(colours)) == max(degrees(edges).values(), default=0)

    @given(multigraphs(5, 60))
    def test_shannon_no_multigraph_takes_more_than_half_as_many_again(self, edges: list[tuple[int, int]]) -> None:
        colours = edge_colours(edges)
        self.assert_proper(edges, colours)
        assert len(set(colours)) <= max(degrees(edges).values(), default=0) * 3 // 2

    @pytest.mark.parametrize("fold", [1, 2, 3, 8])
    def test_the_fat_triangle_needs_all_of_shannons_colours(self, fold: int) -> None:
        edges = [(0, 1), (1, 2), (2, 0)] * fold
        assert sorted(edge_colours(edges)) == list(range(3 * fold))

    def test_chains_that_cannot_be_flipped_do_not_break_the_bound(self) -> None:
        # Found by search: the lowest colour free at both ends would be the 25th, the largest degree is 16.
        pairs = (
            "40 21 24 14 41 14 02 30 41 12 43 41 41 12 01 24 42 34 01 14 "
            "02 20 24 31 01 03 02 02 23 30 31 03 13 40 43 03 32 32 32 30"
        )
        edges = [(int(pair[0]), int(pair[1])) for pair in pairs.split()]
        colours = edge_colours(edges)
        self.assert_proper(edges, colours)
        assert len(set(colours)) <= 24

    def test_no_edges_no_colours(self) -> None:
        assert edge_colours([]) == []


class TestPacing:
    moves = tuple(Move(slot, 0, 1) for slot in range(6))

    def test_a_step_holds_no_more_than_can_be_moved_in_the_latency_that_may_be_added(self) -> None:
        weights = Weights(state_bytes=dict.fromkeys(range(6), 1_000_000), seconds_per_byte=1e-7)  # 0.1 s a slot
        assert [len(step) for step in strategy_named("paced", max_added_latency=0.25).steps(self.moves, weights)] == [
            2,
            2,
            2,
        ]
        assert len(strategy_named("paced", max_added_latency=10.0).steps(self.moves, weights)) == 1
        assert len(strategy_named("paced", max_added_latency=float("inf")).steps(self.moves, weights)) == 1

    def test_a_slot_above_the_bound_is_a_step_of_its_own(self) -> None:
        weights = Weights(state_bytes=dict.fromkeys(range(6), 1_000_000), seconds_per_byte=1e-7)
        assert len(strategy_named("paced", max_added_latency=0.001).steps(self.moves, weights)) == len(self.moves)

    @pytest.mark.parametrize("latency", [0.0, -1.0, float("nan")])
    def test_a_latency_that_cannot_be_is_refused(self, latency: float) -> None:
        with pytest.raises(InputError, match="max_added_latency is in seconds, above 0"):
            strategy_named("paced", max_added_latency=latency)

    @pytest.mark.parametrize("option", ["max_added_latency", "max_bytes_per_step"])
    @pytest.mark.parametrize("value", ["abc", [1.0], {}], ids=repr)
    def test_what_is_no_number_is_refused(self, option: str, value: Any) -> None:
        with pytest.raises(InputError, match=f"strategy paced cannot use {option}"):
            strategy_named("paced", **{option: value})
