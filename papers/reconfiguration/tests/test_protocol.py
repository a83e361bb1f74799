from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.errors import InputError
from papers.messages.folds import HISTORY
from papers.reconfiguration.protocol import (
    Advance,
    Arrival,
    Datum,
    Reconfigurable,
    Reconfiguration,
    StateMoved,
    example_of_2_3,
    replay,
)


class TestExample:
    def test_e4_dog_and_cat(self) -> None:
        system = replay(example_of_2_3(), workers=2)
        assert system.states == [{}, {"dog": 23, "cat": 28}]
        assert system.moved == [StateMoved(150, "dog", 0, 1, 10), StateMoved(200, "cat", 0, 1, 5)]
        assert [(done.datum.time, done.datum.key, done.worker) for done in system.applied] == [
            (100, "dog", 0),
            (100, "cat", 0),
            (200, "dog", 1),
            (200, "cat", 1),
        ]

    def test_e4_step_by_step(self) -> None:
        system = Reconfigurable(2)
        states = []
        for arrival in example_of_2_3():
            system.take(arrival)
            states.append([dict(state) for state in system.states])
        assert states[1] == [{}, {}], "data wait until the control frontier passes 100, though nothing moves (LR-A6)"
        assert states[3] == [{"dog": 10, "cat": 5}, {}]
        assert states[4] == states[3], "the request for dog waits for progress"
        assert states[6] == [{"cat": 5}, {"dog": 10}]
        assert states[9] == [{}, {"dog": 10, "cat": 5}], "cat moves before the data of its time are routed"
        assert states[12] == [{}, {"dog": 23, "cat": 28}]


class TestFrontiers:
    def test_m3_a_late_reconfiguration_with_an_early_time_is_honoured(self) -> None:
        arrivals: list[Arrival] = [Datum(10, "k", 1), Datum(20, "k", 2), Advance("data", 100)]
        system = replay([*arrivals, Reconfiguration(15, ("k",), 1), Advance("control", 100)], 2)
        assert [done.worker for done in system.applied] == [0, 1]

    def test_m4_the_state_that_moves_has_all_before_and_nothing_after(self) -> None:
        data = [Datum(time, "k", time) for time in (1, 5, 9, 10, 11)]
        system = replay([Reconfiguration(10, ("k",), 1), *reversed(data)], 2, fold=HISTORY)
        assert system.moved == [StateMoved(10, "k", 0, 1, (1, 5, 9))]
        assert system.states[1] == {"k": (1, 5, 9, 10, 11)}

    def test_m5_nothing_at_or_after_the_time_is_applied_before_the_state_is_there(self) -> None:
        system = Reconfigurable(2, holds_state=True)
        arrivals: list[Arrival] = [Datum(1, "k", 1), Datum(10, "k", 2), Datum(10, "other", 7)]
        for arrival in [*arrivals, Reconfiguration(10, ("k",), 1)]:
            system.take(arrival)
        system.finish()
        assert [done.datum.key for done in system.applied] == ["k", "other"]
        assert system.states == [{"other": 7}, {}]
        system.release()
        assert system.states == [{"other": 7}, {"k": 3}]

    def test_a5_one_key_twice_at_a_time_is_refused(self) -> None:
        system = Reconfigurable(2)
        system.take(Reconfiguration(5, ("k",), 1))
        with pytest.raises(InputError, match="twice at time 5"):
            system.take(Reconfiguration(5, ("k",), 0))

    @pytest.mark.parametrize(
        ("arrival", "text"),
        [(Datum(3, "k", 1), "data at 3"), (Reconfiguration(3, ("k",), 1), "control at 3")],
    )
    def test_what_comes_behind_its_frontier_is_refused(self, arrival: Arrival, text: str) -> None:
        system = Reconfigurable(2)
        system.take(Advance("data", 4))
        system.take(Advance("control", 4))
        with pytest.raises(InputError, match=text):
            system.take(arrival)

    def test_an_unknown_worker_is_refused(self) -> None:
        with pytest.raises(InputError, match="no worker 2"):
            Reconfigurable(2).take(Reconfiguration(1, ("k",), 2))


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Arrival], list[Arrival]]:
    """Data and reconfigurations of a few keys in time order, and the same in any order."""
    times = draw(st.lists(st.integers(0, 30), min_size=1, max_size=20, unique=True))
    data = [Datum(time, draw(st.sampled_from("abc")), time) for time in sorted(times)]
    moves = draw(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), max_size=8, unique=True))
    updates = [Reconfiguration(time, (key,), draw(st.integers(0, 2))) for time, key in moves]
    straight: list[Arrival] = [*updates, *data]
    return straight, draw(st.permutations(straight))


@given(arrivals())
@settings(max_examples=150)
def test_m1_m2_routing_depends_on_key_and_time_only(both: tuple[list[Arrival], list[Arrival]]) -> None:
    one, other = (replay(order, 3, fold=HISTORY) for order in both)
    assert one.routed == other.routed
    assert one.states == other.states
    merged = {key: state for states in other.states for key, state in states.items()}
    data = [arrival for arrival in both[0] if isinstance(arrival, Datum)]
    assert merged == {key: tuple(d.time for d in data if d.key == key) for key in {d.key for d in data}}
    assert sum(len(states) for states in other.states) == len(merged), "a key lives on one worker"
