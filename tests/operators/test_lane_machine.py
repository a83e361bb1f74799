"""Aggregates through any sequence of folds, removals, moves, copies and recoveries, compared with a dict."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from evenflow.model.slots import BoolArray
from evenflow.operators import GONE, SLOT, Resident
from tests.operators.oracle import AGGREGATE, KEY_KINDS, SLOTS, VALUES, KeyKind, Model, rows_of, slots_of
from tests.operators.removing import Removing

slots = st.integers(0, SLOTS - 1)
values = st.tuples(*(st.sampled_from(pool) for _, pool in VALUES.values()))
FLAG = list(VALUES).index("flag")


def flagged(output: pa.Table) -> BoolArray:
    """A key goes when its last row has the flag."""
    over: BoolArray = output["last_flag"].fill_null(fill_value=False).to_numpy()
    return over


OPERATOR = Removing(AGGREGATE.aggregates, over=flagged)


class TwoLanes(RuleBasedStateMachine):
    """Two lanes share the slots of one key space; `history` is what a changelog would hold.

    `copies` are slots as they were once, made ahead of a move, with the changes that they lack.
    """

    kind_name: str

    @initialize(hashes=st.sampled_from([1, 3, 2**61]))
    def start(self, hashes: int) -> None:
        self.kind = KeyKind(self.kind_name, hashes)
        self.model = Model(self.kind)
        self.lanes = [self.opened(), self.opened()]
        self.owner = [slot % 2 for slot in range(SLOTS)]
        self.history: list[pa.Table] = []
        self.copies: dict[int, tuple[Resident, list[pa.Table]]] = {}

    def opened(self) -> Resident:
        return OPERATOR.open(self.kind.schema, self.kind.names, SLOTS)

    def slots_of_lane(self, lane: int) -> list[int]:
        return [slot for slot in range(SLOTS) if self.owner[slot] == lane]

    @rule(data=st.data(), lane=st.integers(0, 1))
    def fold(self, data: st.DataObject, lane: int) -> None:
        keys = [key for key in self.kind.pool if self.owner[self.kind.slot(key)] == lane]
        drawn = data.draw(st.lists(st.tuples(st.sampled_from(keys), values), max_size=12)) if keys else []
        folded = self.lanes[lane].fold(*self.kind.table(drawn))
        touched = self.model.add(drawn)
        leaving = [key for key in touched if self.model.rows[key][-1][FLAG]]
        slots = [self.model.slots[key] for key in touched]
        self.model.remove(leaving)
        assert rows_of(folded.output) == [self.model.output(key) for key in touched if key not in leaving]
        assert folded.output.schema == AGGREGATE.output_schema(self.kind.schema, self.kind.names)
        assert folded.changes.schema == AGGREGATE.state_schema(self.kind.schema, self.kind.names)
        assert slots_of(folded.changes) == slots
        gone = rows_of(folded.changes.filter(folded.changes[GONE]).select(self.kind.names))
        assert {tuple(row.values()) for row in gone} == set(leaving)
        self.history.append(folded.changes)
        for slot, (_, lacking) in self.copies.items():
            lacking.append(folded.changes.filter(pc.equal(folded.changes[SLOT], slot)))

    @rule(slot=slots)
    def copy(self, slot: int) -> None:
        copy = self.opened()
        copy.install(self.lanes[self.owner[slot]].snapshot([slot]))
        self.copies[slot] = copy, []

    @rule(at_once=st.booleans())
    def bring_copies_up_to_date(self, at_once: bool) -> None:
        for slot, (copy, lacking) in self.copies.items():
            for table in [pa.concat_tables(lacking)] if at_once and lacking else lacking:
                copy.install(table)
            lacking.clear()
            self.check(copy, {key for key, there in self.model.slots.items() if there == slot})

    @rule(slot=slots, aborted=st.booleans())
    def move(self, slot: int, aborted: bool) -> None:
        source = self.owner[slot]
        target = source if aborted else 1 - source
        state = self.lanes[source].snapshot([slot])
        self.lanes[source].drop([slot])
        assert self.lanes[source].snapshot([slot]).num_rows == 0
        self.lanes[target].install(state)
        self.owner[slot] = target

    @rule(lane=st.integers(0, 1), at_once=st.booleans())
    def recover(self, lane: int, at_once: bool) -> None:
        mine = pa.array(self.slots_of_lane(lane), pa.int32())
        self.lanes[lane] = self.opened()
        tables = [table.filter(pc.is_in(table[SLOT], mine)) for table in self.history]
        for table in [pa.concat_tables(tables)] if at_once and tables else tables:
            self.lanes[lane].install(table)

    @rule()
    def shorten_history(self) -> None:
        self.history = [lane.snapshot(range(SLOTS)) for lane in self.lanes]

    @rule(lane=st.integers(0, 1))
    def install_over_itself(self, lane: int) -> None:
        self.lanes[lane].install(self.lanes[lane].snapshot(self.slots_of_lane(lane)))

    @rule(wanted=st.lists(slots, unique=True), lane=st.integers(0, 1))
    def put_out_some_slots(self, wanted: list[int], lane: int) -> None:
        mine = [key for key, slot in self.model.slots.items() if slot in wanted and self.owner[slot] == lane]
        output = self.lanes[lane].output(wanted)
        assert output.schema == AGGREGATE.output_schema(self.kind.schema, self.kind.names)
        got = {tuple(row[name] for name in self.kind.names): row for row in rows_of(output)}
        assert (len(output), got) == (len(mine), {key: self.model.output(key) for key in mine})

    @invariant()
    def lanes_hold_what_the_model_holds(self) -> None:
        for at, lane in enumerate(self.lanes):
            self.check(lane, {key for key, slot in self.model.slots.items() if self.owner[slot] == at})

    def check(self, lane: Resident, mine: set[Any]) -> None:
        got = {tuple(row[name] for name in self.kind.names): row for row in rows_of(lane.output(range(SLOTS)))}
        assert got == {key: self.model.output(key) for key in mine}
        counts = [sum(self.model.slots[key] == slot for key in mine) for slot in range(SLOTS)]
        assert lane.slot_rows().tolist() == counts
        assert [size > 0 for size in lane.slot_bytes()] == [count > 0 for count in counts]
        snapshot = lane.snapshot(range(SLOTS))
        assert slots_of(snapshot) == sorted(slots_of(snapshot))
        assert snapshot[GONE].to_pylist() == [False] * len(mine)


@pytest.mark.parametrize("kind", KEY_KINDS)
def test_lanes_agree_with_a_dict(kind: str) -> None:
    machine: Any = type("Machine", (TwoLanes,), {"kind_name": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=10,
            stateful_step_count=12,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
