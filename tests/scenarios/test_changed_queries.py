"""Queries that are changed between two starts: epochs pending, lanes and drivers dying, slots on the move.

What is kept must be what plain Python makes of all rows, an aggregate that came later counting from its first epoch on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from evenflow.errors import CheckpointMismatchError
from evenflow.operators import Agg, Aggregate, Apply, SlotOperator
from tests.engine.calculations import SLOTS, Answer, Calculation, KeepAll, by_key
from tests.engine.one_process import World, state_of
from tests.seeds import seed_of_run
from tests.spark.streams import Wanderlust

NARROW = pa.schema([("key", pa.int64()), ("value", pa.int32())])
MORE = NARROW.append(pa.field("bid", pa.float32()))
WIDE = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("bid", pa.float64())])
SEEDS = [*range(3), seed_of_run("EVENFLOW_CHANGES")]

Aggregates = dict[str, Agg]
FIRST: Aggregates = {"total": Agg("sum", "value"), "low": Agg("min", "value"), "opened": Agg("first", "value")}
ADDED: Aggregates = {
    **FIRST,
    "n": Agg("count"),
    "top": Agg("max", "bid"),
    "bid": Agg("first", "bid"),
    "mean": Agg("mean", "bid"),
    "closed": Agg("last", "value"),
}
FEWER: Aggregates = {name: agg for name, agg in ADDED.items() if name not in ("total", "n", "bid")}
AGAIN: Aggregates = {"n": Agg("max", "value"), **FEWER, "total": Agg("sum", "value"), "bid": Agg("first", "bid")}
LIVES: list[tuple[Aggregates, pa.Schema]] = [
    (FIRST, NARROW),
    (ADDED, MORE),
    (ADDED, WIDE),
    (FEWER, WIDE),
    (AGAIN, WIDE),
]


class Changing(Calculation):
    """Aggregates that are exchanged; the oracle is `History`."""

    def __init__(self, aggregates: Aggregates) -> None:
        self.operator = Aggregate(aggregates)  # type: ignore[misc] # another one each time

    def add(self, before: Answer | None, key: int | None, value: int) -> Answer:  # noqa: ARG002
        return (key,)


FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "sum": lambda values: sum(_known(values)) if _known(values) else None,
    "count": len,
    "min": lambda values: min(_known(values), default=None),
    "max": lambda values: max(_known(values), default=None),
    "mean": lambda values: sum(_known(values)) / len(_known(values)) if _known(values) else None,
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
}


def _known(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


@dataclass
class History:
    """All rows, and since when which aggregate counts."""

    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    since: dict[str, int] = field(default_factory=dict)

    def add(self, epoch: int, rows: pa.Table) -> None:
        self.rows += [(epoch, row) for row in rows.to_pylist()]

    def change(self, before: Aggregates, after: Aggregates, epoch: int) -> None:
        self.since = {name: self.since[name] if name in before else epoch for name in after}

    def kept(self, aggregates: Aggregates) -> list[Answer]:
        keys = {row["key"] for _, row in self.rows}
        return by_key((key, *(self._of(key, name, agg) for name, agg in aggregates.items())) for key in keys)

    def _of(self, key: int | None, name: str, agg: Agg) -> Any:
        mine = [row for epoch, row in self.rows if row["key"] == key and epoch >= self.since[name]]
        return FUNCTIONS[agg.function]([row.get(agg.column) if agg.column else 1 for row in mine])


def rows_of(world: World, rng: random.Random) -> pa.Table:
    """Return random rows; halves have no rounding, in whichever type."""
    size = rng.randint(0, 12)
    columns: dict[str, list[Any]] = {
        "key": [rng.choice([None, *range(2 * SLOTS)]) for _ in range(size)],
        "value": [rng.choice([None, 1000 * world.epoch + at]) for at in range(size)],
        "bid": [rng.choice([None, rng.randint(-9, 9) / 2]) for _ in range(size)],
    }
    return pa.table([pa.array(columns[each.name], each.type) for each in world.schema], schema=world.schema)


def restless(place: Path, rng: random.Random, calculation: Calculation, schema: pa.Schema) -> World:
    return World(
        place,
        rng,
        mischief=0.01,
        lane_deaths=0.01,
        driver_deaths=0.01,
        max_lag=3,
        elastic=0.3,
        policy=Wanderlust(rng.randrange(99)),
        calculation=calculation,
        schema=schema,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_aggregates_come_and_go_and_their_values_get_wider(tmp_path: Path, seed: int) -> None:
    rng, history = random.Random(seed), History()
    aggregates, schema = LIVES[0]
    world = restless(tmp_path, rng, Changing(aggregates), schema)
    world.oracle = history  # type: ignore[assignment] # it takes in rows as the other does
    history.change({}, aggregates, 0)
    for after, wider in LIVES:
        if after is not aggregates or wider is not schema:
            history.change(aggregates, after, world.epoch)
            aggregates, schema = after, wider
            world.calculation, world.schema = Changing(aggregates), schema
            world.restart()
        for _ in range(rng.randint(0, 6)):
            world.run(rows_of(world, rng))
            world.go_on(rng.randint(0, 4))
    world.finish()
    assert by_key(world.calculation.held(state_of(world.shell)[1])) == history.kept(aggregates)


class Journal(SlotOperator):
    """The diary with another shape of state: a list per key, and how many values there are in all."""

    name = "KeepAll"
    version = 3
    output = KeepAll.output
    upgraded: ClassVar[set[int]] = set()

    def init(self) -> dict[str, Any]:
        return {"values": {}, "n": 0}

    def upgrade(self, state: Any, version: int) -> dict[str, Any]:
        self.upgraded.add(version)
        return {"values": {key: list(values) for key, values in state.items()}, "n": sum(map(len, state.values()))}

    def process(self, state: dict[str, Any], rows: Any) -> tuple[Any, pa.Table]:
        values = {key: list(kept) for key, kept in state["values"].items()}
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
            values.setdefault(key, []).append(value)
        touched = list(dict.fromkeys(rows["key"].to_pylist()))
        state = {"values": values, "n": state["n"] + rows.num_rows}
        assert state["n"] == sum(map(len, values.values()))
        return state, pa.table([touched, [values[key] for key in touched]], schema=self.output)


class Diaries(Calculation):
    """All values of a key; read from what is published."""

    def __init__(self, operator: SlotOperator) -> None:
        self.operator = Apply(operator)  # type: ignore[misc] # another one each time

    def add(self, before: Answer | None, key: int | None, value: int) -> Answer:
        return (key, (*(before[1] if before else ()), value))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_operator_of_a_newer_version_and_another_name_reads_older_state(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = restless(tmp_path, rng, Diaries(KeepAll()), NARROW)
    Journal.upgraded.clear()
    for operator in (KeepAll(), Journal(), Journal()):
        world.calculation = Diaries(operator)
        world.restart()
        for _ in range(5):
            world.run(rows_of(world, rng))
            world.go_on(rng.randint(0, 4))
    world.finish()
    assert world.shop.epochs == world.oracle.epochs
    assert Journal.upgraded == {1}
    world.calculation = Diaries(KeepAll())
    with pytest.raises(CheckpointMismatchError, match="version of KeepAll: was 3, is 1"):
        world.restart()
