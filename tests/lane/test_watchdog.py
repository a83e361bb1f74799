"""A call of the user's code that does not come back is told of, with where it hangs; one that does is not."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from evenflow.lane.messages import Failed
from evenflow.lane.watchdog import watchdog
from evenflow.operators import KeyOperator, SlotOperator
from evenflow.operators.calling import at_epoch
from evenflow.operators.folding import Folding
from evenflow.operators.key_operator import KeyBatch, KeyChanges
from evenflow.testing import run_batches

ROWS = [{"k": key, "n": key * 10} for key in range(4)]
PATIENCE_S = 60.0  # for what must happen


class Gate:
    """Where the user's code stands until the test lets it go."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def hang_here(self) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE_S)


class BySlot(SlotOperator):
    """Hangs at a row."""

    output = pa.schema({"k": pa.int64()})

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def process(self, state: Any, rows: Any) -> tuple[Any, Any]:
        if 20 in rows["n"].to_pylist():
            self.gate.hang_here()
        return state, None


class ByKeys(KeyOperator):
    """Likewise."""

    state = output = pa.schema({"n": pa.int64()})

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def process(self, batch: KeyBatch) -> KeyChanges | None:
        if 20 in batch.column("n"):
            self.gate.hang_here()
        return None


def fold_of(gate: Gate) -> Folding:
    def step(total: int, n: int) -> int:
        if n == 20:
            gate.hang_here()
        return total + n

    return Folding(0, step)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Yield a gate that is open in the end, whatever the test came to."""
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.mark.parametrize(
    ("operator", "where"),
    [
        (BySlot, r"operator BySlot, slot \d, epoch 7: "),
        (ByKeys, r"operator ByKeys, key k=\d or one of 3 others, epoch 7: "),
        (fold_of, r"operator fold, key k=2, epoch 7: "),
    ],
)
def test_a_call_that_hangs_is_told_of_with_where_it_is(gate: Gate, operator: Callable[[Gate], Any], where: str) -> None:
    told: queue.Queue[Failed] = queue.Queue()

    def work() -> None:
        with at_epoch(7):
            run_batches(operator(gate), [ROWS], keys="k")

    with watchdog(0.2, told.put):
        lane = threading.Thread(target=work)
        lane.start()
        failed = told.get(timeout=PATIENCE_S)
        gate.opened.set()
        lane.join()
    assert failed.kind == "OperatorError"
    assert re.match(where, failed.message), failed.message
    assert "it has not come back for 0.2 s (operator_timeout_s)" in failed.message
    assert "in hang_here" in failed.detail
    assert "in work" in failed.detail


def test_many_quick_calls_are_no_hang(gate: Gate) -> None:
    """However long they take together: the watchdog looks more often than a hang would need."""
    told: queue.Queue[Failed] = queue.Queue()

    def other() -> None:  # hangs all the while: what the watchdog tells of it says that time has passed
        run_batches(BySlot(gate), [ROWS], keys="k")

    with watchdog(0.2, told.put):
        lane = threading.Thread(target=other)
        lane.start()
        while told.empty():
            run_batches(Folding(0, lambda total, n: total + n), [ROWS], keys="k")
        gate.opened.set()
        lane.join()
    assert "operator BySlot" in told.get().message
    assert told.empty()


def test_without_a_timeout_nobody_watches() -> None:
    before = threading.active_count()
    with watchdog(None, lambda _: None):
        assert threading.active_count() == before
