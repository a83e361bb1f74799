"""What every policy keeps: one owner per slot, no nonsense, the same answer to the same view, and rest."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.errors import InputError, PolicyError, UnknownNameError
from evenflow.model import LaneLoad, LoadView, LoadWindow, Move, RoutingTable, SlotLoads, window_of
from evenflow.model.balance import variance
from evenflow.policies import POLICIES, Proposal, policy_named, proposal_of
from tests.policies.steady import steady_rounds, steady_view
from tests.strategies import runs, slot_loads, tables, views

NEVER_RESTS = {"uhlb-fresh"}  # by definition: a new hash function every time
every_policy = pytest.mark.parametrize("name", POLICIES)
resting_policies = pytest.mark.parametrize("name", sorted(POLICIES.keys() - NEVER_RESTS))


@every_policy
@settings(max_examples=40)
@given(view=views())
def test_any_view_gets_a_lawful_answer(name: str, view: LoadView) -> None:
    proposal = proposal_of(policy_named(name), view)
    after = proposal.table_after(view.table, view.new_lanes(proposal.add_lanes))
    assert after.slots == view.table.slots
    assert {move.slot for move in proposal.moves} == {move.slot for move in view.table.difference(after)}
    assert all(move.source != move.target and move.reason for move in proposal.moves)


@every_policy
@settings(max_examples=20)
@given(view=views())
def test_the_same_view_gets_the_same_answer(name: str, view: LoadView) -> None:
    assert proposal_of(policy_named(name), view) == proposal_of(policy_named(name), view)


@resting_policies
@settings(max_examples=20)
@given(data=st.data())
def test_a_steady_load_comes_to_rest(name: str, data: st.DataObject) -> None:
    """Records all cost the same here: flux-load, which estimates by counts, may never rest otherwise."""
    table = data.draw(tables(max_slots=16, max_lanes=5))
    drawn = data.draw(slot_loads(table.slots))
    loads = SlotLoads.of(drawn.records, drawn.records * 2.0**-10, drawn.state_bytes, drawn.pending, drawn.spilled)
    resting = 0
    for _, proposal in steady_rounds(policy_named(name), table, loads, 400):
        resting = 0 if proposal.moves else resting + 1
        if resting == 30:
            return
    pytest.fail("still moving after 400 rounds")


@pytest.mark.parametrize("name", ["autoflow", "elb", "flux-load", "even"])
@settings(max_examples=40)
@given(data=st.data())
def test_load_policies_never_go_back_to_a_table_they_left(name: str, data: st.DataObject) -> None:
    table = data.draw(tables(max_slots=16, max_lanes=5))
    counts = data.draw(slot_loads(table.slots)).records
    loads = SlotLoads.of(counts, counts * 2.0**-10, counts)
    seen: list[bytes] = []
    for now, proposal in steady_rounds(policy_named(name), table, loads, 60):
        seen.append(now.owners.tobytes())
        after = proposal.table_after(now).owners.tobytes()
        assert not proposal.moves or after not in seen, "ping-pong"


@pytest.mark.parametrize("name", ["autoflow", "elb", "uhlb", "even"])
@settings(max_examples=40)
@given(data=st.data())
def test_no_worse_balance_where_it_is_promised(name: str, data: st.DataObject) -> None:
    table = data.draw(tables())
    counts = data.draw(slot_loads(table.slots)).records
    loads = SlotLoads.of(counts, counts * 2.0**-10, counts)
    proposal = proposal_of(policy_named(name), steady_view(table, loads))
    before = table.sum_by_lane(counts)
    after = proposal.table_after(table).sum_by_lane(counts)
    if name == "even":
        assert after.max() <= before.max()
    else:
        assert variance(after) <= variance(before) * (1 + 1e-9)


@every_policy
@pytest.mark.parametrize(
    "records", [[0] * 6, [5] * 6, [600, 0, 0, 0, 0, 0]], ids=["no load", "equal load", "one hot slot"]
)
@pytest.mark.parametrize("lanes", [1, 2, 6], ids=["1 lane", "2 lanes", "as many lanes as slots"])
def test_edge_cases_are_answered(name: str, records: list[int], lanes: int) -> None:
    table = runs(6, lanes)
    loads = SlotLoads.of(records, np.array(records) * 1e-3, records, pending=records)
    proposal = proposal_of(policy_named(name), steady_view(table, loads))
    if lanes == 1 or not any(records):
        assert proposal.moves == () or name.startswith(("pkg", "uhlb-fresh", "clb"))
    if lanes == 1:
        assert proposal.moves == ()


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - {"clb", "clb-moment", "uhlb-fresh"}))
def test_a_million_slots_are_answered(name: str) -> None:
    rng = np.random.default_rng(1)
    table = runs(1_000_000, 100)
    records = rng.poisson(3, 1_000_000)
    view = LoadView((window_of(table, SlotLoads.of(records, records * 1e-5, records, records)),), table)
    proposal_of(policy_named(name), view)


@pytest.mark.parametrize("name", ["clb", "clb-moment"])
def test_policies_that_compare_pairs_refuse_a_million_slots(name: str) -> None:
    table = runs(1_000_000, 4)
    view = LoadView((window_of(table, SlotLoads.of(np.ones(1_000_000))),), table)
    with pytest.raises(PolicyError, match="even"):
        proposal_of(policy_named(name), view)


class Answers:
    """A policy that always gives the same answer."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def propose(self, view: LoadView) -> Proposal:  # noqa: ARG002
        return self.answer  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([Move(9, 0, 1)], "slot 9, which does not exist; slots are 0 to 3"),
        ([Move(-1, 0, 1)], "slot -1, which does not exist"),
        ([Move(0, 0, 7)], "lane 7, which does not exist"),
        ([Move(0, 1, 0)], "from lane 1; its owner is lane 0"),
        ([Move(0, 0, 0)], "where it is already"),
        ([Move(0, 0, 1), Move(0, 0, 1)], "moves slot 0 twice"),
        (["slot 0 to lane 1"], "must return moves"),
        (None, "it returned NoneType"),
        ("moves", "it returned str"),
        (3, "it returned int"),
        (Proposal(add_lanes=-1), "asks for -1 more lanes"),
        (Proposal(retire=(5,)), "retires lanes .5., which do not exist"),
        (Proposal(retire=(1,)), "still owns slots"),
        (Proposal(retire=(0, 1)), "retires every lane"),
        (Proposal((Move(0, 0, 1),), retire=(1,)), "which it also retires"),
        (Proposal(not_curable=(77,)), "which do not exist"),
        (Proposal(collect_s=float("nan")), "window of nan s; it must be 0 or more"),
    ],
)
def test_nonsense_is_refused_as_a_whole(answer: object, message: str) -> None:
    table = runs(4, 2)
    view = steady_view(table, SlotLoads.of([1, 1, 1, 1]))
    with pytest.raises(PolicyError, match=message) as caught:
        proposal_of(Answers(answer), view)
    assert "policy Answers" in str(caught.value)


def test_just_moves_are_a_proposal_too() -> None:
    view = steady_view(runs(4, 2), SlotLoads.of([1, 1, 1, 1]))
    proposal = proposal_of(Answers(iter([Move(0, 0, 1)])), view)
    assert proposal == Proposal((Move(0, 0, 1),))
    assert proposal.moves[0].reason == "policy Answers: it gives no reason"


def test_a_move_without_a_reason_gets_what_the_policy_says_of_all_and_others_keep_theirs() -> None:
    view = steady_view(RoutingTable.even(2, 2), SlotLoads.of([1, 1]))
    own, none = Move(0, 0, 1, "it is hot"), Move(1, 1, 0)
    proposal = proposal_of(Answers(Proposal((own, none), on_their_own=(none,), note="they change places")), view)
    assert [move.reason for move in proposal.moves] == ["it is hot", "policy Answers: they change places"]
    assert proposal.on_their_own[0].reason == "policy Answers: they change places"


def test_a_policy_cannot_change_what_it_is_shown() -> None:
    class Vandal:
        def propose(self, view: LoadView) -> Proposal:
            view.last.slots.records[0] = 0
            return Proposal()

    view = steady_view(runs(4, 2), SlotLoads.of([1, 1, 1, 1]))
    with pytest.raises(PolicyError, match="Vandal failed: ValueError: assignment destination is read-only"):
        proposal_of(Vandal(), view)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"no policy named 'evne'.*Did you mean 'even'"):
        policy_named("evne")
    with pytest.raises(UnknownNameError, match=r"no option of policy autoflow named 'facto'.*'factor'"):
        policy_named("autoflow", facto=1)
    with pytest.raises(InputError, match="factor"):
        policy_named("autoflow", factor=2)


@pytest.mark.parametrize("length", [0.0, -1.0, float("nan"), float("inf")])
def test_a_window_has_a_length(length: float) -> None:
    with pytest.raises(InputError, match="autoflow: window_length_s is in seconds, above 0, got"):
        policy_named("autoflow", window_length_s=length)


@pytest.mark.parametrize("value", [float("nan"), "abc", [1.0], {}], ids=repr)
@every_policy
def test_no_option_takes_what_is_no_number(name: str, value: Any) -> None:
    policy: Any = POLICIES[name]
    expected = get_type_hints(policy)
    for option in [field.name for field in fields(policy) if expected[field.name] is not str]:
        with pytest.raises(InputError, match=f"{name}.*{option}"):
            policy_named(name, **{option: value})


@pytest.mark.parametrize(
    ("lanes", "shares", "expected"),
    [
        (3, [50, 25, 25], [[37.5, 37.5, 25], [31.25, 37.5, 31.25]]),
        (3, [80, 10, 10], [[45, 45, 10], [30, 45, 25], [30, 35, 35]]),
        (
            5,
            [30, 30, 40 / 3, 40 / 3, 40 / 3],
            [[22.5, 30, 20.8, 13.3, 13.3], None, None, [18.8, 20.6, 20.8, 20.8, 19.0]],
        ),
        (5, [40, 40, 20 / 3, 20 / 3, 20 / 3], [[25, 40, 21.7, 6.7, 6.7], None, None, [17.5, 20, 21.7, 21.7, 19.2]]),
    ],
    ids=["AF-E2", "AF-E4", "AF-E6", "AF-E8"],
)
def test_autoflow_follows_the_expected_traces(
    lanes: int, shares: list[float], expected: list[list[float] | None]
) -> None:
    """16 equally loaded slots per reducer; the trace of shares that experiments.md computes for AF-E2 to E8."""
    table = runs(16 * lanes, lanes)
    counts = np.repeat(np.array(shares) / 16, 16) * 48_000
    rounds = list(steady_rounds(policy_named("autoflow"), table, SlotLoads.of(np.round(counts)), len(expected) + 2))
    traces = [100 * now.sum_by_lane(counts) / counts.sum() for now, _ in rounds[1:]]
    for trace, wanted in zip(traces, expected, strict=False):
        if wanted is not None:
            assert trace == pytest.approx(wanted, abs=0.06)
    assert not rounds[-1][1].moves
    assert len([1 for _, proposal in rounds if proposal.moves]) == len(expected)


def test_autoflow_readings() -> None:
    def proposal(records: list[int], owners: list[int]) -> Proposal:
        table = RoutingTable(np.array(owners), tuple(sorted({*owners, 0, 1})))
        return proposal_of(policy_named("autoflow"), steady_view(table, SlotLoads.of(records)))

    assert proposal([0, 0], [0, 1]).moves == (), "AF-A20: an empty window"
    assert proposal([8, 1, 1, 8], [0, 0, 0, 1]).moves, "AF-A19: (10 - 8) / 10 is exactly the factor, which counts"
    hot = proposal([100, 0, 3], [0, 0, 1])
    assert (hot.moves, hot.not_curable) == ((), (0,)), "AF-A22, A23: idle slots stay, the heavy one is named"
    tied = proposal([5, 5, 5, 5, 1], [2, 2, 3, 3, 1])
    assert {(move.source, move.target) for move in tied.moves} == {(2, 0)}, "AF-A25: the lowest number wins"


def test_views_and_windows_refuse_what_cannot_be() -> None:
    table = runs(4, 2)
    window = window_of(table, SlotLoads.of([1, 2, 3, 4]))
    with pytest.raises(InputError, match="at least 1 load window"):
        LoadView((), table)
    with pytest.raises(InputError, match="4 slots does not fit a table of 5"):
        LoadView((window,), runs(5, 2))
    with pytest.raises(InputError, match=r"lanes \[0, 1\], the table \[0, 1, 2\]"):
        LoadView((window,), runs(4, 3))
    with pytest.raises(InputError, match="finite"):
        SlotLoads.of([1, 2], [np.nan, 1])
    with pytest.raises(InputError, match="negative"):
        SlotLoads.of([1, -2])
    with pytest.raises(InputError, match="each lane once"):
        LoadWindow(window.slots, (LaneLoad(0), LaneLoad(0)))
