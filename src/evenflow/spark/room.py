"""Task slots: how many lanes fit in beside reading, routing, sinks and the lanes of other queries, and why so many.

A lane holds its task slot for as long as the query runs. What is left is shared by all else: reading the source and
routing (about as much work as the folding in lanes of a built-in aggregate), Spark's shuffle, the sink's jobs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark import SparkContext
from pyspark.sql import SparkSession

from evenflow.errors import InputError
from evenflow.spark.internals import is_local, master_of, task_slots
from evenflow.spark.lane_jobs import lanes_running

_EXECUTORS_S = 30.0  # how long to wait for the executors of a cluster; Spark itself does so before it runs tasks
_ALLOCATION_S = 300.0  # how long lanes may take to come up if their executors are only then asked for
_POLL_S = 0.1
_MOST_UNASKED = 32  # lanes that are started without having been asked for: dynamic allocation may have no bound
_EXECUTORS = 2  # Spark's default on YARN and Kubernetes
_LANE_START_S = 60.0
_UNBOUNDED = (1 << 31) - 1  # Spark's default for maxExecutors


@dataclass(frozen=True)
class Room:
    """What a query gets: its lanes, the tasks that can route at once, why, and how long lanes may take to come up."""

    lanes: int
    route_tasks: int
    why: str
    lane_start_s: float = _LANE_START_S


@dataclass(frozen=True)
class Promise:
    """What Spark's configuration says about executors that may still come; 0 where it says nothing.

    `slots`: task slots that will be there without being asked for. `most`: those that dynamic allocation may bring,
    None if it is off; unless `bounded` nobody has set a bound.
    """

    slots: int
    most: int | None
    says: str = ""
    bounded: bool = True

    @classmethod
    def of(cls, context: SparkContext) -> Promise:
        """Read the configuration of a session."""
        conf, master = context.getConf(), master_of(context)

        def number(name: str, default: int = 0) -> int:
            return int(conf.get(name) or default)

        if is_local(context):
            return cls(0, None)
        per_task = max(1, number("spark.task.cpus", 1))
        small = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master)
        cores = number("spark.executor.cores", int(small[2]) if small else 1)
        per_executor = cores // per_task
        executors = number("spark.executor.instances", _EXECUTORS if master.startswith(("yarn", "k8s")) else 0)
        if conf.get("spark.dynamicAllocation.enabled") == "true":
            least = number("spark.dynamicAllocation.minExecutors")
            # Spark begins with the largest of the three, and takes `instances` only if it was set.
            executors = max(
                least, number("spark.dynamicAllocation.initialExecutors", least), number("spark.executor.instances")
            )
            most = number("spark.dynamicAllocation.maxExecutors", _UNBOUNDED)
            bounded = most < _UNBOUNDED
            says = f"spark.dynamicAllocation.maxExecutors {most} x spark.executor.cores {cores}"
            says = says if bounded else "spark.dynamicAllocation.maxExecutors is not set"
            return cls(executors * per_executor, most * per_executor, says, bounded)
        if small is not None:
            return cls(int(small[1]) * per_executor, None, f"master {master}")
        if master.startswith("spark:"):
            return cls(number("spark.cores.max") // per_task, None, f"spark.cores.max {number('spark.cores.max')}")
        return cls(
            executors * per_executor, None, f"spark.executor.instances {executors} x spark.executor.cores {cores}"
        )


def lanes_that_fit(spark: SparkSession, wanted: int | None, slots: int) -> Room:
    """Return the number of lanes, `wanted` or one that fits; refuse if lanes and one route task have no room.

    A query with `slots` slots has no use for more lanes.
    """
    context = spark.sparkContext
    if context.getConf().get("spark.speculation", "false") == "true":
        raise InputError("a speculative copy of a lane would fence off the healthy one: set spark.speculation=false")
    promise, taken = Promise.of(context), lanes_running.total()
    if promise.most is not None:
        return _allocated(context, promise, promise.most, taken, wanted, slots)
    needed = 2 if wanted is None else wanted + 1
    target = max(needed + taken, promise.slots if wanted is None else 0)
    there = _waited_for(lambda: task_slots(context), target, 0.0 if is_local(context) else _EXECUTORS_S)
    free = there - taken
    if needed > free:
        raise _no_room(context, needed, there, taken)
    if wanted is not None:
        return Room(wanted, free - wanted, "as asked")
    lanes = min(lanes_for(free), slots)
    why = f"of {free} free task slots, {free - lanes} for reading, routing and sinks"
    if promise.slots > there:
        why += f"; {promise.says} promises {promise.slots} task slots, {there} were there after {_EXECUTORS_S:g} s"
    return Room(lanes, free - lanes, why)


def lanes_for(task_slots: int) -> int:
    """Return how many of some task slots are for lanes: half, but two of three: one lane cannot be balanced."""
    return max(min(2, task_slots - 1), task_slots // 2)


def spare_slots(spark: SparkSession) -> int:
    """Return the task slots in which more lanes could run, one for routing aside."""
    context = spark.sparkContext
    most = Promise.of(context).most
    return (task_slots(context) if most is None else most) - lanes_running.total() - 1


def _allocated(  # noqa: PLR0913, PLR0917 - all that it depends on
    context: SparkContext, promise: Promise, most: int, taken: int, wanted: int | None, slots: int
) -> Room:
    """Return the lanes of a session whose executors come when there are tasks for them, and not before.

    Nothing is waited for: without a task that waits, Spark asks for no executor.
    """
    if wanted is not None:
        if wanted + 1 > most - taken:
            held = f", of which lanes of other queries hold {taken}" if taken else ""
            raise InputError(
                f"{wanted} lanes and routing need {wanted + 1} task slots, dynamic allocation brings at most {most}"
                f"{held} ({promise.says}): raise spark.dynamicAllocation.maxExecutors, or ask for fewer lanes"
            )
        return Room(wanted, max(1, min(wanted, most - taken - wanted)), "as asked", _ALLOCATION_S)
    count = max(2, (most if promise.bounded else max(promise.slots, task_slots(context))) - taken)
    lanes = min(lanes_for(count), _MOST_UNASKED, slots)
    counted = "that dynamic allocation may bring" if promise.bounded else "that are there or come first"
    why = f"of {count} task slots {counted} ({promise.says}), {count - lanes} for reading, routing and sinks"
    return Room(lanes, max(1, count - lanes), why, _ALLOCATION_S)


def _waited_for(there: Callable[[], int], target: int, patience_s: float) -> int:
    """Return the task slots that are there; executors of a cluster may need time to come up."""
    deadline = time.monotonic() + patience_s
    while (found := there()) < target and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def _no_room(context: SparkContext, needed: int, there: int, taken: int) -> InputError:
    free = there - taken
    held = f", of which lanes of other queries hold {taken}" if taken else ""
    more = f"use master local[{needed + taken}]" if is_local(context) else "give the session more cores"
    fewer = f", or balance(lanes={free - 1})" if free > 1 else ""
    return InputError(
        f"{needed - 1} lanes and routing need {needed} task slots, the session ({master_of(context)}) has {there}"
        f"{held}: {needed - free} are missing; {more}{fewer}"
    )
