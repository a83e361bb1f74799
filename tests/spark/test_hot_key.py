"""One key with 90 % of the rows, on Spark: it is named, nothing moves in vain, and `evenflow plan` says the same."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.control import plan_moves
from evenflow.control.journal import Decided
from evenflow.control.window_json import read_window_json
from evenflow.migration import strategy_named
from evenflow.policies import policy_named
from tests.spark.streams import SCHEMA, Bench, until

pytestmark = pytest.mark.spark

HOT = 17
ROWS = 2_000
RATE = 1_500  # rows per second and lane: an epoch takes the hot key's lane 1.2 s, far more than writing files


def bids(epoch: int) -> pa.Table:
    keys = np.random.default_rng(epoch).integers(100, 600, ROWS)
    keys[: ROWS * 9 // 10] = HOT
    columns = [keys, np.full(ROWS, "b"), np.ones(ROWS, dtype=np.int64), np.full(ROWS, 0.5)]
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def test_what_cannot_be_cured_is_named_with_its_key_and_nothing_moves_for_it(bench: Bench) -> None:
    stateful = ef.keyed(bench.stream(), "auction", "bidder").agg(total=ef.sum("price"))
    writer = bench.writer(stateful.balance(lanes=3, slots=64, settle_windows=1)).option("evenflow.rowsPerSecond", RATE)
    query = bench.started(writer.start(str(bench.out)))

    def told() -> bool:
        bench.feed(bids(bench.fed))
        query.processAllAvailable()
        last, decisions = query.lastProgress, query.journal().of(Decided)
        named = last and last["notCurable"] and last["notCurable"][0]["key"]
        return bool(named and not decisions[-1].moves)  # one in a busy moment may be about something else

    until(told, "the hot key is named", seconds=120)
    last = query.lastProgress
    assert last is not None
    (found,) = json.loads(json.dumps(last))["notCurable"]
    assert found["key"] == {"auction": HOT, "bidder": "b"}
    assert found["keyShare"] > 0.9
    assert 1 / 3 < found["share"] <= 1  # 0.9, less what writing files takes the other lanes
    assert found["keys"] > 1
    assert found["lane"] == {row["slot"]: row["lane"] for row in query.slots()}[found["slot"]]
    assert 0 <= found["since"] <= last["epoch"]
    assert query.moves() == []  # a third of the other 10 % would be all there is to win
    query.save_journal(bench.place / "journal.json")
    file = read_window_json((bench.place / "journal.json").read_bytes())
    plan = plan_moves(file.shown, file.table, policy_named("even"), strategy_named("paced"))
    decided = query.journal().of(Decided)[-1]
    assert (plan.moves, plan.not_curable, plan.note) == (decided.moves, decided.not_curable, decided.note)
    assert plan.note.endswith("no move helps")
