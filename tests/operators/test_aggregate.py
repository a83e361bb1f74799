"""Spark's rules for nulls, NaN, types and overflow, case by case; and what is refused, with its message."""

from __future__ import annotations

import math
import pickle
import zlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.errors import EvenflowError, InputError, OperatorError, UnknownNameError
from evenflow.model import Contents, HeldAggregate
from evenflow.operators import GONE, HASH, SLOT, Agg, Aggregate, arrays, functions
from evenflow.operators import values as stored
from evenflow.operators.aggregate import AggregateState

KEY = ("k",)


def opened(aggs: Mapping[str, Agg], kind: pa.DataType, key: pa.DataType | None = None) -> AggregateState:
    return Aggregate(aggs).open(pa.schema({"k": key or pa.int64(), "v": kind}), KEY, 8)


def results(function: str, kind: pa.DataType, *blocks: list[Any]) -> Any:
    """Fold blocks of values for one key and return the last result."""
    state = opened({"r": Agg(function, "v")}, kind)
    for values in blocks:
        table = pa.table({"k": pa.array([1] * len(values), pa.int64()), "v": pa.array(values, kind)})
        output = state.fold(table, np.zeros(len(values), np.int64)).output
    return output["r"][0].as_py()


@pytest.mark.parametrize(
    ("function", "blocks", "expected"),
    [
        ("sum", [[None, None]], None),
        ("sum", [[None], [3]], 3),
        ("mean", [[None]], None),
        ("mean", [[1, None], [2]], 1.5),
        ("min", [[None], [5, 4]], 4),
        ("max", [[None]], None),
        ("count", [[None, 1], [None]], 1),
        ("first", [[None, 1], [2]], None),
        ("first", [[7, None], [2]], 7),
        ("last", [[1], [2, None]], None),
        ("last", [[None], [2, 3]], 3),
    ],
)
def test_nulls_are_ignored_but_by_first_and_last(function: str, blocks: list[list[Any]], expected: Any) -> None:
    assert results(function, pa.int64(), *blocks) == expected


def test_count_without_a_column_counts_rows() -> None:
    table = pa.table({"k": [1, 1], "v": pa.array([None, None], pa.int64())})
    state = opened({"n": functions.count(), "some": functions.count("v")}, pa.int64())
    assert state.fold(table, np.zeros(2, np.int64)).output.to_pylist() == [{"k": 1, "n": 2, "some": 0}]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_nan_is_larger_than_any_number(kind: pa.DataType) -> None:
    assert results("min", kind, [math.nan], [math.inf, 2.0]) == 2.0
    assert math.isnan(results("min", kind, [math.nan], [None]))
    assert math.isnan(results("max", kind, [1.0, math.nan], [math.inf]))
    assert results("max", kind, [-math.inf], [None]) == -math.inf
    assert math.isnan(results("sum", kind, [1.0, math.nan], [3.0]))


@pytest.mark.parametrize(
    ("function", "kind", "expected"),
    [
        ("sum", pa.int8(), pa.int64()),
        ("sum", pa.float32(), pa.float64()),
        ("sum", pa.decimal128(5, 2), pa.decimal128(15, 2)),
        ("sum", pa.decimal128(30, 2), pa.decimal128(38, 2)),
        ("mean", pa.int32(), pa.float64()),
        ("mean", pa.float32(), pa.float64()),
        ("mean", pa.decimal128(5, 2), pa.decimal128(9, 6)),
        ("mean", pa.decimal128(38, 36), pa.decimal128(38, 38)),
        ("min", pa.int8(), pa.int8()),
        ("max", pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        ("first", pa.date32(), pa.date32()),
        ("last", pa.large_string(), pa.large_string()),
        ("count", pa.list_(pa.int8()), pa.int64()),
    ],
)
def test_result_types_are_sparks(function: str, kind: pa.DataType, expected: pa.DataType) -> None:
    operator = Aggregate({"r": Agg(function, "v")})
    assert operator.output_schema(pa.schema({"k": pa.int64(), "v": kind}), KEY).field("r").type == expected


def test_decimals_are_exact() -> None:
    big = Decimal("99999999999999999999999999.99")
    assert results("sum", pa.decimal128(28, 2), [big, None], [big, Decimal("0.02")]) == 2 * big + Decimal("0.02")
    assert results("min", pa.decimal128(28, 2), [big], [-big, None]) == -big
    assert results("max", pa.decimal128(28, 2), [Decimal("-0.02")], [Decimal("-0.01")]) == Decimal("-0.01")


@pytest.mark.parametrize("sign", [1, -1])
def test_the_mean_of_decimals_rounds_half_away_from_zero(sign: int) -> None:
    cent = sign * Decimal("0.01")
    assert results("mean", pa.decimal128(5, 2), [cent, Decimal("0.00")], [Decimal("0.00")]) == sign * Decimal(
        "0.003333"
    )
    eighth = results("mean", pa.decimal128(5, 0), [Decimal(sign)] + [Decimal(0)] * 15, [Decimal(0)] * 16)
    assert eighth == sign * Decimal("0.0313")  # 1 / 32 = 0.03125


def test_a_decimal_sum_that_does_not_fit_is_an_error() -> None:
    most = Decimal("9" * 38)
    with pytest.raises(OperatorError, match=r"operator r=sum\(v\), slot 0: .*does not fit a decimal128\(38, 0\)"):
        results("sum", pa.decimal128(38, 0), [most], [most])


@pytest.mark.parametrize(("value", "step"), [(2**63 - 1, 1), (-(2**63), -1)])
def test_an_integer_sum_that_does_not_fit_is_an_error(value: int, step: int) -> None:
    with pytest.raises(OperatorError, match=r"operator r=sum\(v\), slot 0: .*does not fit a 64-bit integer"):
        results("sum", pa.int64(), [value], [None, step])
    with pytest.raises(OperatorError, match="does not fit"):
        results("sum", pa.int64(), [value, value, value])


def test_an_integer_sum_at_the_limit_is_exact() -> None:
    assert results("sum", pa.int64(), [2**63 - 1, None], [-5, 5], [-(2**63)]) == -1
    assert results("sum", pa.int64(), [-(2**62), -(2**62)], [0]) == -(2**63)


def test_overflow_is_seen_in_an_installed_sum_too_and_names_the_slot() -> None:
    aggs = {"r": functions.sum("v")}
    source, target = opened(aggs, pa.int64()), opened(aggs, pa.int64())
    rows = pa.table({"k": pa.array([1, 2], pa.int64()), "v": pa.array([5, 2**63 - 1], pa.int64())})
    target.install(source.fold(rows, np.array([3, 6])).changes)
    one_more = pa.table({"k": pa.array([1, 1, 2], pa.int64()), "v": pa.array([None, 1, 1], pa.int64())})
    with pytest.raises(OperatorError, match="slot 6") as caught:
        target.fold(one_more, np.array([3, 3, 6]))
    assert pickle.loads(pickle.dumps(caught.value)).slot == 6  # noqa: S301


def test_floats_group_as_in_spark() -> None:
    keys = [0.0, -0.0, math.nan, -math.nan, None]
    table = pa.table({"k": pa.array(keys, pa.float64()), "v": pa.array([1] * 5, pa.int64())})
    output = opened({"n": functions.count()}, pa.int64(), pa.float64()).fold(table, np.zeros(5, np.int64)).output
    assert output["n"].to_pylist() == [2, 2, 1]
    assert str(output["k"].to_pylist()) == "[0.0, nan, None]"


def test_large_heaps_of_outdated_strings_are_cleared() -> None:
    state = opened({"r": functions.last("v")}, pa.string())
    for epoch in range(60):
        table = pa.table({"k": np.arange(500), "v": [f"{epoch}-{key}" for key in range(500)]})
        state.fold(table, np.zeros(500, np.int64))
    assert state._columns[0]._values._heap.size < 3 * 500 + 4096  # type: ignore[attr-defined]
    assert state.output([0])["r"].to_pylist() == [f"59-{key}" for key in range(500)]


def test_part_of_a_state_table_can_be_installed() -> None:
    aggs = {"t": functions.last("v")}
    source, target = opened(aggs, pa.string(), pa.string()), opened(aggs, pa.string(), pa.string())
    words = ["one", "two", "three", "four"]
    table = pa.table({"k": words, "v": words[::-1], HASH: pa.array(range(4), pa.int64())})
    state = source.fold(table, np.arange(4)).changes
    for part in (state.slice(2), state.slice(1, 1)):
        target.install(part)
    assert target.snapshot([1, 2, 3]).equals(state.slice(1))
    assert source.snapshot([1, 2, 3]).equals(state.slice(1))


def test_a_bulk_install_of_fresh_slots_and_one_with_repeated_keys() -> None:
    aggs = {"n": functions.sum("v"), "t": functions.last("v")}
    source, target = opened(aggs, pa.int64()), opened(aggs, pa.int64())
    keys = np.arange(40_000)
    table, slots = pa.table({"k": keys, "v": keys}), np.sort(keys % 8)
    first = source.fold(table, slots).changes
    second = source.fold(table, slots).changes
    target.install(pa.concat_tables([first, second]))
    assert target.snapshot(range(8)).equals(source.snapshot(range(8)))
    target.drop(range(4))
    target.install(source.snapshot(range(4)))
    assert target.slot_rows().tolist() == source.slot_rows().tolist() == [5000] * 8
    assert target.snapshot([1, 7]).equals(source.snapshot([1, 7]))


def test_dropping_most_gives_memory_back() -> None:
    state = opened({"n": functions.count()}, pa.int64())
    state.fold(pa.table({"k": np.arange(8000), "v": np.arange(8000)}), np.repeat(np.arange(8), 1000))
    before = state.slot_bytes().sum()
    state.drop([0, 1, 2, 3, 4, 5, 6])
    assert state.slot_bytes().sum() < before / 4
    assert state.slot_rows().tolist() == [0] * 7 + [1000]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_rows_found_by_value_survive_that_others_are_dropped(kind: pa.DataType) -> None:
    state = opened({"n": functions.count()}, pa.int64(), kind)
    keys = pa.array([*range(100), None, None, 100], pa.int64()).cast(kind)
    slots = np.array([0] * 100 + [1] * 3)
    table = pa.table({"k": keys, "v": pa.array([1] * 103, pa.int64()), HASH: slots})  # one hash per slot
    state.fold(table, slots)
    state.drop([0])
    assert state._keys.index.rows == 2  # renumbered
    output = state.fold(table.slice(100), slots[100:]).output
    assert output["n"].to_pylist() == [4, 2]
    assert output["k"].to_pylist() == [None, keys[102].as_py()]
    state.fold(table, slots)
    assert state.slot_rows().tolist() == [100, 2, 0, 0, 0, 0, 0, 0]


def test_keys_that_need_a_hash() -> None:
    operator = Aggregate({"n": functions.count()})
    direct = {"int": pa.int8(), "date": pa.date32(), "flag": pa.bool_(), "real": pa.float32()}
    hashed = {"text": pa.string(), "price": pa.decimal128(5, 2)}
    schema = pa.schema({**direct, **hashed})
    assert not any(operator.needs_hash(schema, (name,)) for name in direct)
    assert all(operator.needs_hash(schema, (name,)) for name in hashed)
    assert operator.needs_hash(schema, ("int", "date"))
    assert operator.state_schema(schema, ("int", "date")).names == [SLOT, HASH, "int", "date", "n", GONE]
    assert operator.state_schema(schema, ("int",)).names == [SLOT, "int", "n", GONE]


def test_columns_and_contents() -> None:
    operator = Aggregate({"a": functions.sum("x"), "n": functions.count(), "b": functions.max("x")})
    assert operator.columns() == ("x",)
    schema = pa.schema({"k": pa.int64(), "x": pa.int32()})
    held = (
        HeldAggregate("a", "sum(x)", "int32"),
        HeldAggregate("n", "count()", ""),
        HeldAggregate("b", "max(x)", "int32"),
    )
    assert operator.contents(schema, KEY) == Contents("aggregates", aggregates=held)
    later = Contents("aggregates", aggregates=(held[0], HeldAggregate("n", "count()", "", since=7)))
    assert operator.resumed(later) == Aggregate(operator.aggregates, {"a": 0, "n": 7})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Aggregate({}), "at least one aggregate"),
        (lambda: Aggregate({"n": "sum"}), "n must be an aggregate such as ef.sum.* got 'sum'"),  # type: ignore[dict-item]
        (lambda: Aggregate({"n": functions.count(), "N": functions.count()}), "duplicate output name 'N'"),
        (lambda: Aggregate({SLOT: functions.count()}), "'__slot' is reserved"),
        (lambda: Agg("sum"), r"sum\(\) needs the name of a column"),
        (lambda: functions.sum(3), "takes the name of a column or a Column, got 3"),  # type: ignore[arg-type]
        (lambda: functions.max(["v"]), r"takes the name of a column or a Column, got \['v'\]"),  # type: ignore[arg-type]
        (lambda: functions.sum("*"), r"sum\(\) needs the name of a column; only count\(\) goes without"),
        (lambda: functions.count(2), r"count\(\) takes the name of a column or a Column, got 2"),
        (lambda: functions.count(True), r"got True"),
        (lambda: functions.sum("v").alias(3), r"alias\(\) takes a name, got 3"),  # type: ignore[arg-type]
    ],
)
def test_aggregates_that_can_never_be(build: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_other_ways_to_write_an_aggregate() -> None:
    assert functions.count("*") == functions.count(1) == functions.count() == Agg("count")
    assert functions.avg("v") == functions.mean("v")
    assert functions.sum("v").alias("total") == Agg("sum", "v", "total")


def test_unknown_functions_are_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="no aggregate named 'avg'; known: approx_count_distinct, collect_list"):
        Agg("avg", "v")


@pytest.mark.parametrize(
    ("aggs", "keys", "message"),
    [
        ({"r": functions.sum("w")}, KEY, r"r=sum\(w\): there is no column 'w'; the input has k, v, text, s, l"),
        ({"r": functions.sum("text")}, KEY, r"r=sum\(text\): column 'text' has type string; expected a signed integer"),
        ({"r": functions.mean("text")}, KEY, "expected a signed integer"),
        ({"r": functions.min("l")}, KEY, r"column 'l' has type list<.*>; expected numbers"),
        ({"k": functions.count()}, KEY, "output 'k' has the name of a key"),
        ({"K": functions.count()}, KEY, "output 'K' has the name of a key"),
        ({"m": functions.mean("v"), "m.sum": functions.count()}, KEY, "'m.sum' is needed for the state of another"),
        ({"r": functions.count()}, ("s",), r"key column 's' has type struct<.*>, which cannot be a key"),
        ({"r": functions.count()}, ("l",), "select the fields of a struct"),
        ({"r": functions.count()}, ("z",), "no key column 'z'"),
        ({"r": functions.count()}, ("k", "k"), "given 2 times"),
        ({"r": functions.count()}, (), "at least one key column"),
    ],
)
def test_aggregates_that_do_not_fit_the_input(aggs: dict[str, Agg], keys: tuple[str, ...], message: str) -> None:
    nested = {"s": pa.struct({"a": pa.int8()}), "l": pa.list_(pa.int8())}
    schema = pa.schema({"k": pa.int64(), "v": pa.int64(), "text": pa.string(), **nested})
    for method in (Aggregate(aggs).state_schema, Aggregate(aggs).output_schema):
        with pytest.raises(InputError, match=message):
            method(schema, keys)
    with pytest.raises(InputError, match=message):
        Aggregate(aggs).open(schema, keys, 4)


def test_rows_of_another_schema_are_refused() -> None:
    state = opened({"r": functions.sum("v")}, pa.int64())
    with pytest.raises(EvenflowError, match="column 'v': expected int64, got string"):
        state.fold(pa.table({"k": [1], "v": ["x"]}), np.zeros(1, np.int64))
    with pytest.raises(EvenflowError, match="rows lack the column 'v'"):
        state.fold(pa.table({"k": [1]}), np.zeros(1, np.int64))


def test_strings_of_more_than_an_array_holds_are_folded_read_and_installed_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(4)
    aggs = {name: Agg(name, "v") for name in ("count", "min", "max", "first", "last")}

    def block(rows: int) -> tuple[pa.Table, Any]:
        slots = np.sort(rng.integers(0, 3, rows))
        keys = [f"{slot}-{rng.integers(0, 9)}" for slot in slots]
        texts = [None if rng.random() < 0.1 else f"{rng.integers(0, 99)}" * 9 for _ in range(rows)]
        hashes = [zlib.crc32(key.encode()) for key in keys]
        return pa.table({HASH: pa.array(hashes, pa.int64()), "k": keys, "v": pa.array(texts, pa.string())}), slots

    blocks = [block(200), block(50)]
    whole, split = (opened(aggs, pa.string(), pa.string()) for _ in range(2))
    for rows, slots in blocks:
        expected = whole.fold(rows, slots)
        with monkeypatch.context() as limits:
            limits.setattr(arrays, "JOINED", 1000)
            limits.setattr(stored, "LONGEST", 100)
            ours = split.fold(rows, slots)
            assert ours.output["k"].num_chunks > 1
            state = split.snapshot([0, 1, 2])
            installed = opened(aggs, pa.string(), pa.string())
            installed.install(pa.concat_tables([state.slice(0, 5), state]))
        assert ours.output.to_pylist() == expected.output.to_pylist()
        assert ours.changes.to_pylist() == expected.changes.to_pylist()
        held, wanted = (each.snapshot([0, 1, 2]).sort_by("k").to_pylist() for each in (installed, whole))
        assert held == wanted
