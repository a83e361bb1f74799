"""What users' code may do to a lane: the query ends and says where, and mended code goes on exactly once."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable

import pytest

import evenflow as ef
from evenflow.errors import LaneFailedError
from tests.spark.streams import Bench, one_bid_per_key, read_published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def raises() -> None:
    raise ValueError("a price that I do not like")


def exits() -> None:
    sys.exit(3)


def eats_memory() -> None:
    raise MemoryError("no room for 99 bytes")


def hangs() -> None:
    threading.Event().wait()


def added(fault: Callable[[], None] | None) -> Callable[[int, int], int]:
    def step(total: int, price: int) -> int:
        if price == 1017 and fault is not None:
            fault()
        return total + price

    return step


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (raises, "ValueError: a price that I do not like"),
        (exits, "it called sys.exit(3)"),
        (eats_memory, "MemoryError: no room for 99 bytes: its memory ran out"),
        (hangs, "it has not come back for 3 s (operator_timeout_s)"),
    ],
)
def test_the_error_says_where_and_mended_code_goes_on(bench: Bench, fault: Callable[[], None], message: str) -> None:
    bench.feed(*(one_bid_per_key(epoch) for epoch in range(3)))

    def started(fault: Callable[[], None] | None) -> ef.Query:
        stream = ef.keyed(bench.stream(), "auction").fold(0, added(fault), state="total long")
        return bench.start(stream.balance(lanes=2, slots=8, policy="static", operator_timeout_s=3.0))

    query = started(fault)
    with pytest.raises(
        LaneFailedError, match=rf"lane \d failed: .*key auction=17, epoch \d+: {re.escape(message)}"
    ) as caught:
        query.processAllAvailable()
    assert f"in {fault.__name__}" in "".join(caught.value.__notes__), "the user's own traceback"
    assert message in str(query.exception())
    query.stop()
    mended = started(None)
    mended.processAllAvailable()
    sums = [[key, 1000 + 2 * key, 3000 + 3 * key] for key in range(40)]
    assert read_published(bench.out) == Counter((key, total) for key in range(40) for total in sums[key])
