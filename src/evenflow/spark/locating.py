"""Where a query's checkpoint and output are: a path means the same to Spark and to us, on every machine."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from evenflow.errors import InputError
from evenflow.spark.internals import qualified
from evenflow.spark.said import Settings
from evenflow.state import below, has_scheme

_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


def located(spark: SparkSession, location: str, what: str) -> str:
    """Return a path or URI that means the same to Spark and to us, wherever Spark takes paths to be."""
    if has_scheme(location):
        return location
    try:
        return qualified(spark.sparkContext, location).removeprefix("file:")
    except IllegalArgumentException as error:
        raise InputError(f"writeStream: {what} is a path or a URI, got {location!r}: {error}") from error


def checkpoint_location(spark: SparkSession, settings: Settings, *, outlives: bool) -> str:
    """Return where the checkpoint is; as in Spark perhaps in the session's folder for all, or in a passing one.

    A passing one will not do where the output `outlives` the session.
    """
    given, common = settings.options.get("checkpointLocation"), spark.conf.get(_CHECKPOINTS, None)
    if given is not None:
        return located(spark, given, "checkpointLocation")
    if common:
        return below(located(spark, common, _CHECKPOINTS), settings.name or str(uuid.uuid4()))
    if outlives:
        raise InputError("writeStream: set option('checkpointLocation', ...): without it nothing could be recovered")
    location = tempfile.mkdtemp(prefix="evenflow-")
    atexit.register(shutil.rmtree, location, ignore_errors=True)  # its state can be asked for until then
    return location
