"""Arguments of `balance`, and of what is asked of a running query: each wrong one is a sentence. No session needed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import evenflow as ef
from evenflow.control import BalancerOptions
from evenflow.errors import InputError
from evenflow.migration.strategies import Paced, Sudden
from evenflow.model import LoadView, Move
from evenflow.operators import Agg, Aggregate
from evenflow.policies.even import Even
from evenflow.spark.asking import first_epoch, lane_count, stage_number, wanted_moves
from evenflow.spark.options import BalanceOptions
from evenflow.spark.query import Query
from evenflow.spark.stream import StatefulStream


def described() -> StatefulStream:
    """A query over a stream that nobody reads: `balance` looks at its arguments only."""
    schema = pa.schema([("auction", pa.int64())])
    return StatefulStream(cast("DataFrame", None), ("auction",), (), schema, Aggregate({"n": Agg("count")}))


class Lazy:
    """A policy of one's own."""

    def propose(self, view: LoadView) -> Iterable[Move]:  # noqa: ARG002 - the interface
        return ()


class Confused:
    def propose(self) -> Iterable[Move]:
        return ()


class Greedy:
    """A strategy of one's own."""

    name: ClassVar[str] = "greedy"
    paper: ClassVar[str] = ""
    summary: ClassVar[str] = ""

    def steps(self, moves: Sequence[Move], weights: Any) -> tuple[tuple[Move, ...], ...]:  # noqa: ARG002
        return (tuple(moves),)


BALANCE: list[tuple[dict[str, Any], str]] = [
    ({"lanes": "2"}, r"balance cannot use lanes = '2': it expects int \| None"),
    ({"lanes": 2.5}, "balance cannot use lanes = 2.5"),
    ({"lanes": True}, "balance cannot use lanes = True"),
    ({"lanes": [2]}, r"balance cannot use lanes = \[2\]"),
    ({"lanes": 0}, "lanes must be at least 1, got 0"),
    ({"slots": "8"}, "balance cannot use slots = '8': it expects int"),
    ({"slots": None}, "balance cannot use slots = None"),
    ({"slots": 0}, "slots must be from 1 to 32768, got 0"),
    ({"lanes": 3, "slots": 2}, "3 lanes cannot share 2 slots"),
    ({"policy": 3}, r"a policy is a name, such as 'even', or an object with a method propose\(view\), got 3"),
    ({"policy": lambda view: []}, "got <function .*make it the method propose of a class"),  # noqa: ARG005
    ({"policy": Even}, r"got the class Even itself: call it, Even\(\)"),
    ({"policy": Confused()}, r"Confused\.propose cannot be called with one argument, the view"),
    ({"policy": None}, "a policy is a name, .* got None"),
    ({"policy": "evne"}, "Did you mean 'even'"),
    ({"strategy": 3}, r"a strategy is one of paced, .* or an object with a method steps\(moves, weights\), got 3"),
    ({"strategy": Sudden}, r"got the class Sudden itself: call it, Sudden\(\)"),
    ({"strategy": "suden"}, "Did you mean 'sudden'"),
    ({"max_added_latency": "1 s"}, r"balance cannot use max_added_latency = '1 s': it expects float \| None"),
    ({"max_added_latency": 0}, "max_added_latency is in seconds, above 0, got 0"),
    ({"max_added_latency": 1, "strategy": "sudden"}, "max_added_latency is for strategy 'paced', not for 'sudden'"),
    ({"max_added_latency": 1, "strategy": Greedy()}, "max_added_latency is for strategy 'paced', not for 'greedy'"),
    ({"exchange": "fast"}, "exchange is 'direct' or 'shuffle', or None .* got 'fast'"),
    ({"exchange": 3}, "exchange is .* got 3"),
    ({"max_lag": "4"}, "balance cannot use max_lag = '4'"),
    ({"max_lag": -1}, "max_lag is a number of epochs, 0 or more, got -1"),
    ({"lane_timeout_s": "60"}, "balance cannot use lane_timeout_s = '60': it expects float"),
    ({"lane_timeout_s": 0.5}, "lane_timeout_s is a number of seconds, 1 or more, got 0.5"),
    ({"lane_grace_s": -1.0}, "lane_grace_s is a number of seconds, 0 or more, or math.inf to wait for ever, got -1"),
    ({"lane_timeout_s": math.inf}, "lane_timeout_s is a number of seconds, 1 or more, got inf"),
    ({"operator_timeout_s": 0}, "operator_timeout_s is a number of seconds above 0, or None for no limit, got 0"),
    ({"operator_timeout_s": math.inf}, "operator_timeout_s is a number of seconds above 0, or None .* got inf"),
    ({"operator_timeout_s": "1 s"}, r"balance cannot use operator_timeout_s = '1 s': it expects float \| None"),
    ({"handover": "later"}, "handover is 'at the timestamp' or 'at once', got 'later'"),
    ({"handover": 3}, "handover is .* got 3"),
    ({"window_epochs": "3"}, "balance cannot use window_epochs = '3'"),
    ({"min_gain": "much"}, "balance cannot use min_gain = 'much': it expects float"),
    ({"min_lanes": 4, "max_lanes": 2}, "lanes from 4 to 2 is no range"),
    ({"copy_ahead_bytes": -1}, "copy_ahead_bytes must not be negative"),
]


@pytest.mark.parametrize(
    ("given", "message"), BALANCE, ids=[f"{', '.join(given)}: {message[:40]}" for given, message in BALANCE]
)
def test_arguments_that_balance_cannot_use(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        described().balance(**given)


def test_an_unknown_argument_is_python_s_own_error() -> None:
    with pytest.raises(TypeError, match="cooldwon"):
        described().balance(cooldwon=3)  # type: ignore[call-arg]


def test_numbers_of_numpy_and_whole_floats_are_numbers() -> None:
    options = described().balance(lanes=np.int64(2), slots=np.int16(8), max_lag=cast("int", 2.0)).options  # type: ignore[arg-type]
    assert (options.lanes, options.slots, options.max_lag) == (2, 8, 2)
    assert {type(number) for number in (options.lanes, options.slots, options.max_lag)} == {int}


def test_policies_and_strategies_of_ones_own() -> None:
    policy, strategy = Lazy(), Greedy()
    options = described().balance(policy=policy, strategy=strategy).options
    assert options.policy is policy
    assert options.strategy is strategy


def test_the_added_latency_is_the_strategy_s() -> None:
    assert described().balance(max_added_latency=1).options.strategy == Paced(max_added_latency=1.0)
    finer = described().balance(strategy=Paced(max_bytes_per_step=5), max_added_latency=0.5)
    assert finer.options.strategy == Paced(max_bytes_per_step=5, max_added_latency=0.5)


def test_patience_follows_the_lag() -> None:
    assert described().balance(max_lag=10).options.balancer.patience == 18
    assert described().balance(max_lag=10, patience=3).options.balancer.patience == 3


def test_every_brake_is_a_parameter_and_said_to_be_there() -> None:
    """What a user may set can be completed and looked up; the rest are facts of the engine and of papers' protocols."""
    parameters = inspect.signature(StatefulStream.balance).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    own = {option.name for option in fields(BalanceOptions)} - {"balancer"}
    brakes = {option.name for option in fields(BalancerOptions)} - {"whole_epochs", "move_cost", "overlap"}
    assert set(parameters) - {"self"} == own | brakes | {"max_added_latency"}
    assert [name for name in parameters if f"`{name}`" not in (StatefulStream.balance.__doc__ or "")] == ["self"]


def test_the_defaults_are_those_of_a_query_without_balance() -> None:
    assert described().balance().options == described().options


ASKED: list[tuple[Callable[[], object], str]] = [
    (lambda: lane_count("2"), "resize cannot use lanes = '2': it expects int"),  # type: ignore[arg-type]
    (lambda: lane_count(2.5), "resize cannot use lanes = 2.5"),  # type: ignore[arg-type]
    (lambda: lane_count(True), "resize cannot use lanes = True"),
    (lambda: lane_count(None), "resize cannot use lanes = None"),  # type: ignore[arg-type]
    (lambda: stage_number(2, 2), "state: stage is a number from 0 to 1, in the order of the query's, got 2"),
    (lambda: stage_number(-1, 2), "state: stage is a number from 0 to 1, in the order of the query's, got -1"),
    (lambda: stage_number("first", 2), "state cannot use stage = 'first'"),  # type: ignore[arg-type]
    (lambda: first_epoch("soon"), "rebalance cannot use not_before = 'soon'"),  # type: ignore[arg-type]
    (lambda: first_epoch(-1), "not_before is an epoch, 0 or later, got -1"),
    (lambda: wanted_moves("x"), r"expected a list of pairs \(slot, lane to go to\), .* got 'x'"),  # type: ignore[arg-type]
    (lambda: wanted_moves(3), "or of Moves, got 3"),  # type: ignore[arg-type]
    (lambda: wanted_moves({3: 1}), r"got \{3: 1\}"),  # type: ignore[dict-item]
    (lambda: wanted_moves(Move(1, 0, 1)), "got Move"),  # type: ignore[arg-type]
    (lambda: wanted_moves([(1,)]), r"one of them is \(1,\)"),  # type: ignore[list-item]
    (lambda: wanted_moves([(1, 2, 3)]), r"one of them is \(1, 2, 3\)"),  # type: ignore[list-item]
    (lambda: wanted_moves([("a", "b")]), r"one of them is \('a', 'b'\)"),  # type: ignore[list-item]
    (lambda: wanted_moves(["12"]), "one of them is '12'"),  # type: ignore[list-item]
    (lambda: wanted_moves([3]), "one of them is 3"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("ask", "message"), ASKED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_a_running_query_cannot_be_asked(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask()


def test_what_a_running_query_can_be_asked() -> None:
    assert wanted_moves(iter([[1, np.int64(2)], Move(3, 0, 1)])) == [(1, 2), Move(3, 0, 1)]  # type: ignore[arg-type]
    assert lane_count(np.int32(3)) == 3  # type: ignore[arg-type]


class Untouchable:
    """An engine that must not be reached."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: pytest.fail(f"the engine was told to {name}")


def test_a_query_looks_at_what_is_asked_before_it_touches_anything() -> None:
    query = cast("Any", Query.__new__(Query))
    query._shell = Untouchable()
    asked: list[Callable[[], object]] = [
        lambda: query.resize("2"),
        lambda: query.rebalance("x"),
        lambda: query.rebalance([(1, 0)], not_before="soon"),
        lambda: query.set_policy(3),
        lambda: query.set_policy(lambda _view: []),
        lambda: query.set_policy(Lazy),
    ]
    for ask in asked:
        with pytest.raises(ef.InputError):
            ask()
