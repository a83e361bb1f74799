"""Task slots: how many lanes fit in beside the route tasks and the lanes of other queries."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from evenflow.errors import InputError
from evenflow.spark.internals import master_of, task_slots
from evenflow.spark.lane_jobs import lanes_running

_EXECUTORS_S = 30.0  # how long to wait for the executors of a cluster
_POLL_S = 0.1


def free_slots(spark: SparkSession, needed: int) -> int:
    """Return the task slots that no lane of another query holds; executors of a cluster may need time to come up."""
    context = spark.sparkContext
    taken = lanes_running.total()
    patience_s = 0.0 if master_of(context).startswith("local[") else _EXECUTORS_S
    deadline = time.monotonic() + patience_s
    while (free := task_slots(context) - taken) < needed and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return free


def lanes_that_fit(spark: SparkSession, wanted: int | None) -> tuple[int, int]:
    """Return the number of lanes and of free task slots; refuse if lanes and one route task do not fit in."""
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise InputError("a speculative copy of a lane would fence off the healthy one: set spark.speculation=false")
    needed = 2 if wanted is None else wanted + 1
    free = free_slots(spark, needed)
    if needed > free:
        master = master_of(spark.sparkContext)
        taken = lanes_running.total()
        held = f", of which lanes of other queries hold {taken}" if taken else ""
        more = f"use master local[{needed + taken}]" if master.startswith("local[") else "give the session more cores"
        fewer = f", or balance(lanes={free - 1})" if free > 1 else ""
        raise InputError(
            f"{needed - 1} lanes and routing need {needed} task slots, the session ({master}) has {free + taken}"
            f"{held}: {needed - free} are missing; {more}{fewer}"
        )
    return needed - 1 if wanted is not None else free - 1, free
