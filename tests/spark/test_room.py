"""How many lanes a session has room for, and what is said about it; sessions are played by their configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from evenflow.errors import InputError
from evenflow.spark import room
from evenflow.spark.lane_jobs import lanes_running
from evenflow.spark.room import Room, lanes_for, lanes_that_fit, spare_slots

ALLOCATION = {"spark.dynamicAllocation.enabled": "true"}


@dataclass
class Session:
    """As much of a SparkSession, and of its context, as is asked; executors come one after the other."""

    master: str
    conf: dict[str, str] = field(default_factory=dict)
    coming: list[int] = field(default_factory=list)  # task slots at each look

    @property
    def sparkContext(self) -> Session:  # noqa: N802 - Spark's names
        return self

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return self.conf

    def task_slots(self) -> int:
        return self.coming.pop(0) if len(self.coming) > 1 else self.coming[0]


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(room, "task_slots", Session.task_slots)
    monkeypatch.setattr(room, "_EXECUTORS_S", 0.2)
    monkeypatch.setattr(room, "_POLL_S", 0.001)
    before = lanes_running.copy()
    lanes_running.clear()
    yield
    lanes_running.clear()
    lanes_running.update(before)


def fitted(session: Session, wanted: int | None = None, slots: int = 256) -> Room:
    return lanes_that_fit(cast("Any", session), wanted, slots)


@pytest.mark.parametrize(("task_slots", "lanes"), [(2, 1), (3, 2), (4, 2), (5, 2), (8, 4), (16, 8), (100, 50)])
def test_half_of_the_task_slots_are_for_lanes(task_slots: int, lanes: int) -> None:
    assert lanes_for(task_slots) == lanes
    found = fitted(Session(f"local[{task_slots}]", coming=[task_slots]))
    assert (found.lanes, found.route_tasks) == (lanes, task_slots - lanes)
    assert found.why == f"of {task_slots} free task slots, {task_slots - lanes} for reading, routing and sinks"


def test_a_query_has_no_more_lanes_than_slots() -> None:
    assert fitted(Session("local[16]", coming=[16]), slots=3).lanes == 3


def test_lanes_of_other_queries_are_left_aside() -> None:
    lanes_running["other"] = 4
    found = fitted(Session("local[8]", coming=[8]))
    assert (found.lanes, found.route_tasks) == (2, 2)
    assert spare_slots(cast("Any", Session("local[8]", coming=[8]))) == 3


def test_what_is_asked_for_is_given() -> None:
    assert fitted(Session("local[8]", coming=[8]), 7) == Room(7, 1, "as asked")


PROMISES: list[tuple[str, dict[str, str], int]] = [
    ("yarn", {"spark.executor.instances": "4", "spark.executor.cores": "2"}, 8),
    ("yarn", {}, 2),
    ("k8s://https://cluster:6443", {"spark.executor.instances": "3"}, 3),
    ("yarn", {"spark.executor.instances": "4", "spark.executor.cores": "4", "spark.task.cpus": "2"}, 8),
    ("local-cluster[3,2,1024]", {}, 6),
    ("spark://master:7077", {"spark.cores.max": "12"}, 12),
]


@pytest.mark.parametrize(("master", "conf", "promised"), PROMISES, ids=[f"{it[0]} {it[2]}" for it in PROMISES])
def test_executors_that_are_promised_are_waited_for(master: str, conf: dict[str, str], promised: int) -> None:
    """It does not matter which of them happened to be there first."""
    session = Session(master, conf, coming=[0, 1, 2, promised])
    assert fitted(session).lanes == lanes_for(promised)


def test_executors_that_do_not_come_are_told_of() -> None:
    conf = {"spark.executor.instances": "4", "spark.executor.cores": "2"}
    found = fitted(Session("yarn", conf, coming=[0, 6]))
    assert found.lanes == 3
    assert found.why == (
        "of 6 free task slots, 3 for reading, routing and sinks; spark.executor.instances 4 x spark.executor.cores 2 "
        "promises 8 task slots, 6 were there after 0.2 s"
    )


def test_who_asks_for_lanes_waits_for_these_only() -> None:
    conf = {"spark.executor.instances": "100"}
    assert fitted(Session("yarn", conf, coming=[1, 3, 100]), 2) == Room(2, 1, "as asked")


def test_no_room_says_what_to_do() -> None:
    with pytest.raises(InputError, match=r"2 lanes and routing need 3 task slots, the session \(yarn\) has 2: 1 are"):
        fitted(Session("yarn", coming=[2]), 2)


# --- dynamic allocation ------------------------------------------------------------------------------------------


def test_lanes_are_submitted_although_no_executor_is_there_yet() -> None:
    """Spark asks for executors when tasks wait for them."""
    conf = {**ALLOCATION, "spark.dynamicAllocation.maxExecutors": "4", "spark.executor.cores": "2"}
    found = fitted(Session("yarn", conf, coming=[0]))
    assert (found.lanes, found.route_tasks) == (4, 4)
    assert found.why == (
        "of 8 task slots that dynamic allocation may bring (spark.dynamicAllocation.maxExecutors 4 x "
        "spark.executor.cores 2), 4 for reading, routing and sinks"
    )
    assert found.lane_start_s > fitted(Session("local[4]", coming=[4])).lane_start_s, "executors have to be got first"
    assert fitted(Session("yarn", conf, coming=[0]), 6).lanes == 6
    assert spare_slots(cast("Any", Session("yarn", conf, coming=[0]))) == 7


def test_an_allocation_without_bound_is_not_taken_up() -> None:
    found = fitted(Session("yarn", ALLOCATION, coming=[0]))
    assert found.lanes == 1
    assert "spark.dynamicAllocation.maxExecutors is not set" in found.why
    first = {**ALLOCATION, "spark.dynamicAllocation.initialExecutors": "6", "spark.executor.cores": "2"}
    assert fitted(Session("yarn", first, coming=[0])).lanes == 6
    assert fitted(Session("yarn", ALLOCATION, coming=[0]), 100).lanes == 100
    large = {**ALLOCATION, "spark.dynamicAllocation.maxExecutors": "500"}
    assert fitted(Session("yarn", large, coming=[0])).lanes == 32


def test_more_than_allocation_may_bring_is_refused() -> None:
    conf = {**ALLOCATION, "spark.dynamicAllocation.maxExecutors": "2", "spark.executor.cores": "2"}
    with pytest.raises(InputError, match="4 lanes and routing need 5 task slots, dynamic allocation brings at most 4"):
        fitted(Session("yarn", conf, coming=[0]), 4)


def test_a_local_session_has_no_allocation() -> None:
    assert fitted(Session("local[4]", ALLOCATION, coming=[4])).lanes == 2
