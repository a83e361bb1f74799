"""Brings the parts of a query together: from a stream, and what `writeStream` was told, to a running query.

The order counts. What cannot work is refused while nothing has been touched; then the checkpoint is opened and taken
over; then the parts are made, each with what it needs of the others; the lanes start last.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from evenflow.control import Balancer, BalancerState
from evenflow.control.fitting import fitted
from evenflow.control.journal import Journal
from evenflow.engine import Engine
from evenflow.errors import InputError
from evenflow.lane import LaneConfig, chained
from evenflow.log import QueryLog, label_of
from evenflow.model import Contents, Heard, RoutingTable, StageUnits
from evenflow.operators import Stage
from evenflow.policies import Policy, starting_table
from evenflow.spark.driver_socket import driver_socket
from evenflow.spark.frames import seen_in
from evenflow.spark.internals import give_id, has_watermark, heard_by_spark, is_local, spark_schema, use_this_python
from evenflow.spark.lane_jobs import lanes_running
from evenflow.spark.lane_links import LaneLinks
from evenflow.spark.locating import checkpoint_location, located
from evenflow.spark.outlet import Outlet, outlet_of
from evenflow.spark.owners import Mark
from evenflow.spark.probe import refuse_unshared
from evenflow.spark.progress import Progress
from evenflow.spark.query import Query
from evenflow.spark.room import Room, lanes_that_fit, spare_slots
from evenflow.spark.route import Router
from evenflow.spark.said import Said, Settings
from evenflow.spark.shell import Shell
from evenflow.spark.sink import Sink
from evenflow.spark.telling import tell_start
from evenflow.spark.watermarks import runs_without_rows
from evenflow.state import (
    Checkpoint,
    Folder,
    Identity,
    Retries,
    SparkLog,
    StageIdentity,
    below,
    home_of,
    query_at,
    spark_path,
)

if TYPE_CHECKING:
    from evenflow.spark.stream import StatefulStream

_SPARKS_PART = "spark"  # Spark's own checkpoint, in the query's


def started(stream: StatefulStream, settings: Settings) -> Query:
    """Start a query and return it at once."""
    spark, options = stream.stream.sparkSession, stream.options
    # What cannot work is refused here; a query that runs is not disturbed, and no file is written.
    retries = Retries(settings.options.storage_retry_s(), settings.name or "query")
    outlet = outlet_of(_said(stream, settings, retries))
    _refuse_name_in_use(spark, settings.name)
    room = lanes_that_fit(spark, options.lanes, options.slots)
    use_this_python(spark.sparkContext)
    location = checkpoint_location(spark, settings, outlives=outlet.outlives)
    router = _router(stream, settings, location, room, retries)
    spark_writer = _spark_writer(stream, settings, router, location)
    pace, port = settings.options.rows_per_second(), settings.options.driver_port()
    driver_socket(spark.sparkContext, port)[0].close()  # says now if there is none
    outlet.refuse(query_at(location, retries))
    refuse_unshared(spark.sparkContext, location, retries, room.lane_start_s)
    # The checkpoint is opened, and from the end of this on it is ours.
    checkpoint = Checkpoint.open(location, _identity(stream, settings), retries=retries)
    query_id = checkpoint.identity.query_id
    log = QueryLog(label_of(settings.name, query_id))
    retries.query = log.query
    around = Folder.at(location, retries=retries)  # what Spark keeps is in it as well
    sink = _taken_over(checkpoint, around, outlet, retries, log)
    # The parts, each with what it needs of the others.
    base = LaneConfig(
        0,
        checkpoint.folder.location,
        chained(_resumed(stream, checkpoint.identity.contents), options.slots),
        settings.replaces,
        pace,
        publishes=outlet.publishes,
        query=log.query,
        output=outlet.form,
        retry_s=retries.patience_s,
        operator_timeout_s=options.operator_timeout_s,
    )
    balancer = Balancer.restored(
        BalancerState(
            initial_table(checkpoint, options.policy, base.units, room.lanes),
            epoch=checkpoint.recover().last_accepted,
        ),
        options.policy,
        options.strategy,
        options.balancer,
        Journal.of_query(base.names),
    )
    links = LaneLinks(
        spark.sparkContext,
        lambda lane: replace(base, lane=lane),
        _group(checkpoint),
        log,
        lane_timeout_s=options.lane_timeout_s,
        port=port,
    )
    progress = Progress(query_id, settings.name, lanes_why=room.why)
    engine = Engine(
        checkpoint,
        balancer,
        options.handover,
        lane_grace_s=options.lane_grace_s,
        lane_start_s=room.lane_start_s,
        unit_weights=lambda: progress.unit_weights(checkpoint.identity.units),
        stages=base.units,
    )
    shell = Shell(
        spark=spark,
        checkpoint=checkpoint,
        balancer=balancer,
        links=links,
        engine=engine,
        router=router,
        sink=sink,
        progress=progress,
        config=base,
        max_lag=options.max_lag,
        ends_by_itself=settings.ends_by_itself,
        event_time=runs_without_rows(spark) and any(stage.operator.uses_event_time() for stage in base.stages),
        spare_slots=lambda: spare_slots(spark),
        lane_start_s=room.lane_start_s,
        log=log,
    )
    give_id(around, query_id)
    tell_start(shell, lanes_why=room.why, exchange_asked=options.exchange is not None)
    return Query.started(shell, spark_writer, settings.name)


def initial_table(checkpoint: Checkpoint, policy: Policy, stages: Sequence[StageUnits], lanes: int) -> RoutingTable:
    """Return the table to start with: the newest accepted one, fitted to the lanes there are now."""
    found = checkpoint.recover().table
    slots = [stage.slots for stage in stages]
    return starting_table(policy, slots, range(lanes)) if found is None else fitted(found, range(lanes))


def _resumed(stream: StatefulStream, contents: Sequence[Contents]) -> list[Stage]:
    """Return the stages as they go on from a checkpoint, and as this session sees the user's code."""
    spark = stream.stream.sparkSession
    return [
        replace(stage, operator=seen_in(spark, stage.operator, stage.schema, stage.keys)).resumed(held)
        for stage, held in zip(stream.stages, contents, strict=True)
    ]


def _said(stream: StatefulStream, settings: Settings, retries: Retries) -> Said:
    spark = stream.stream.sparkSession
    return Said(
        spark=spark,
        schema=spark_schema(stream.stages[-1].output_schema),
        kind=settings.kind,
        table=settings.table,
        function=settings.function,
        options=settings.options,
        path=None if settings.path is None else located(spark, settings.path, "the path of the output"),
        partitions=settings.partitions,
        name=settings.name,
        replaces=settings.replaces,
        retries=retries,
    )


def _router(stream: StatefulStream, settings: Settings, location: str, room: Room, retries: Retries) -> Router:
    return Router(
        stream.keys,
        stream.selected,
        stream.options.slots,
        home_of(location),
        stream.operator.needs_hash(stream.schema, stream.keys),
        stream.options.exchange or ("direct" if is_local(stream.stream.sparkSession.sparkContext) else "shuffle"),
        room.route_tasks,
        settings.options.arrival_column(stream.stream.schema),
        partial(heard_by_spark, stream.stream.sparkSession) if has_watermark(stream.stream) else Heard,
        retries,
    )


def _spark_writer(stream: StatefulStream, settings: Settings, router: Router, location: str) -> DataStreamWriter:
    """Return Spark's writer for the routed stream; its own checkpoint lies beside ours."""
    prepared = router.prepared(stream.stream)
    writer = prepared.writeStream.option("checkpointLocation", spark_path(below(location, _SPARKS_PART)))
    if settings.name:
        writer = writer.queryName(settings.name)
    try:
        return writer.trigger(**settings.trigger) if settings.trigger else writer
    except (IllegalArgumentException, ValueError) as error:
        raise InputError(f"writeStream: trigger expects an interval like '5 seconds': {error}") from error


def _identity(stream: StatefulStream, settings: Settings) -> Identity:
    return Identity(
        query_id=str(uuid.uuid4()),
        stages=tuple(
            StageIdentity(stage.keys, stage.key_types, stream.options.slots, stage.contents) for stage in stream.stages
        ),
        output_mode=settings.mode,
        created_at_s=time.time(),
    )


def _taken_over(checkpoint: Checkpoint, around: Folder, outlet: Outlet, retries: Retries, log: QueryLog) -> Sink:
    """Make the checkpoint and the output ours; another driver that is at it ends with its next step."""
    _refuse_what_runs(checkpoint)
    spark_log = SparkLog.at(below(around.location, _SPARKS_PART), retries)
    checkpoint.refuse_if_lost(spark_log)
    mark = Mark(checkpoint.identity.query_id, around.storage.address(""), time.time())
    sink = outlet.open(checkpoint.folder.location, mark)
    for remark in checkpoint.take_over(spark_log):
        log.warning(remark)
    return sink


def _refuse_name_in_use(spark: SparkSession, name: str | None) -> None:
    """Refuse a second query of a name, as Spark does, before anything is started."""
    if name is not None and any(query.name == name for query in spark.streams.active):
        raise InputError(
            f"writeStream: a query named {name!r} is running in this session: stop it first, or choose another "
            f"queryName"
        )


def _refuse_what_runs(checkpoint: Checkpoint) -> None:
    """Refuse to start a query that is running in this session: two would write to one checkpoint."""
    if _group(checkpoint) in lanes_running:
        raise InputError(
            f"the query of checkpoint {checkpoint.folder.location} is running in this session: stop it first, "
            f"or choose another checkpointLocation"
        )


def _group(checkpoint: Checkpoint) -> str:
    """Return the name under which the lanes' jobs can be cancelled."""
    return f"evenflow-{checkpoint.identity.query_id}"
