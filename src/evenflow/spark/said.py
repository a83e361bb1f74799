"""What `writeStream` was told. Options have names in any letter case, and the last value counts, as in Spark."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from evenflow.errors import InputError, UnknownNameError
from evenflow.operators import Apply, Operator
from evenflow.spark.driver_socket import DRIVER_PORT, port_of
from evenflow.spark.sink import Write
from evenflow.state.retrying import PATIENCE_S, Retries

_ARRIVAL_COLUMN = "evenflow.arrivalColumn"
_ROWS_PER_SECOND = "evenflow.rowsPerSecond"
_SHARE_OUTPUT = "evenflow.shareOutput"
_RETRY_SECONDS = "evenflow.storageRetrySeconds"
_MODES = ("append", "update", "complete")
_OWN = (_ARRIVAL_COLUMN, DRIVER_PORT, _ROWS_PER_SECOND, _SHARE_OUTPUT, _RETRY_SECONDS)
_WRITERS = ("checkpointlocation", "path", "queryname")  # Spark's, for the writer and not for the sink


def text_of(who: str, value: object) -> str:
    """Return a text that was given; raise if it is none, or empty."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"writeStream: {who} takes a text that is not empty, got {value!r}")
    return value


def checked_mode(mode: object, operator: Operator) -> str:
    """Return the output mode, in any letter case as in Spark; raise if the operator cannot give it."""
    name = text_of("outputMode", mode).strip().lower()
    if name not in _MODES:
        has = operator.output_modes()
        raise InputError(f"writeStream: outputMode is {', '.join(has[:-1])} or {has[-1]}, got {mode!r}")
    operator.in_mode(name)
    return "update" if isinstance(operator, Apply) else name  # nothing that it puts out changes later: both are one


def checked_trigger(**triggers: object) -> dict[str, Any]:
    """Return the one trigger that was given, for Spark's own writer."""
    given = {name: value for name, value in triggers.items() if value is not None}
    if len(given) != 1:
        raise InputError(
            f"writeStream: trigger takes either processingTime='...', availableNow=True or once=True, got "
            f"{', '.join(given) or 'nothing'}"
        )
    ((name, value),) = given.items()
    if name in ("continuous", "realTime"):
        raise InputError(
            f"writeStream: trigger({name}=...) has no micro-batches, and lanes work from one to the next: use "
            f"processingTime='...'; with '0 seconds', or without a trigger, each begins as soon as it can"
        )
    if name == "processingTime":
        return {name: text_of("trigger(processingTime=...)", value)}
    if value is not True:
        raise InputError(f"writeStream: trigger({name}=...) takes True, got {value!r}; leave it out for no such end")
    return {name: True}


class Options:
    """What was set by `option`."""

    def __init__(self) -> None:
        """Begin with nothing set."""
        self._set: dict[str, tuple[str, str]] = {}  # by name in small letters: the name as it was written, the value

    def set(self, name: object, value: object) -> None:
        """Set an option; with None it stays as it is, as in Spark."""
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"writeStream: an option's name is a text such as 'checkpointLocation', got {name!r}")
        key = name.lower()
        if key.startswith("evenflow.") and key not in map(str.lower, _OWN):
            raise UnknownNameError("option of evenflow's", name, _OWN)
        if value is not None:
            self._set[key] = name, str(value).lower() if isinstance(value, bool) else str(value)

    def get(self, name: str) -> str | None:
        """Return what was set, None if nothing was."""
        return self._set.get(name.lower(), ("", None))[1]

    def of_sink(self) -> dict[str, str]:
        """Return the options that are for the sink, under the names that were given."""
        return {
            name: value
            for key, (name, value) in self._set.items()
            if key not in _WRITERS and not key.startswith("evenflow.")
        }

    def shares_output(self) -> bool:
        """Return whether the query may write where another one does."""
        text = self.get(_SHARE_OUTPUT) or "false"
        if text.lower() not in ("true", "false"):
            raise InputError(f"writeStream: {_SHARE_OUTPUT} is true or false, got {text!r}")
        return text.lower() == "true"

    def rows_per_second(self) -> float | None:
        """Return how fast a lane may be at most, in demos and experiments."""
        rate = self._number(_ROWS_PER_SECOND)
        if rate is not None and not rate > 0:
            raise InputError(f"writeStream: {_ROWS_PER_SECOND} is a number above 0, got {self.get(_ROWS_PER_SECOND)!r}")
        return rate

    def storage_retry_s(self) -> float:
        """Return for how long errors of a storage that may pass are tried again."""
        seconds = self._number(_RETRY_SECONDS)
        if seconds is not None and not 0 <= seconds < math.inf:
            raise InputError(
                f"writeStream: {_RETRY_SECONDS} is a number of seconds, 0 for no second try, got "
                f"{self.get(_RETRY_SECONDS)!r}"
            )
        return PATIENCE_S if seconds is None else seconds

    def _number(self, name: str) -> float | None:
        """Return a number that was set, nan if it is none."""
        text = self.get(name)
        try:
            return None if text is None else float(text)
        except ValueError:
            return math.nan

    def driver_port(self) -> int:
        """Return the port at which lanes reach the driver, 0 for any."""
        return port_of(self.get(DRIVER_PORT))

    def arrival_column(self, schema: StructType) -> str | None:
        """Return the column that says when a row arrived, for latencies."""
        name = self.get(_ARRIVAL_COLUMN)
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        if name is not None and kinds.get(name) != "timestamp":
            has = "there is none of this name" if name not in kinds else f"it is a {kinds[name]}"
            raise InputError(f"writeStream: {_ARRIVAL_COLUMN} names a timestamp column, got {name!r}: {has}")
        return name


@dataclass(frozen=True)
class Said:
    """What `writeStream` was told about where results go."""

    spark: SparkSession
    schema: StructType
    kind: str | None
    table: str | None
    function: Write | None
    options: Options
    path: str | None
    partitions: tuple[str, ...]
    name: str | None
    replaces: bool  # an epoch's rows take the place of all that was published before
    retries: Retries = field(default_factory=Retries)


@dataclass(frozen=True)
class Settings:
    """All that `writeStream` was told."""

    kind: str | None
    table: str | None
    function: Write | None
    path: str | None
    partitions: tuple[str, ...]
    mode: str
    options: Options
    trigger: dict[str, Any]

    @property
    def name(self) -> str | None:
        """The query's name."""
        return self.options.get("queryName")

    @property
    def replaces(self) -> bool:
        """Whether an epoch's rows take the place of all that was published before."""
        return self.mode == "complete"

    @property
    def ends_by_itself(self) -> bool:
        """Whether Spark's part ends with the last batch there is."""
        return not self.trigger.keys().isdisjoint({"availableNow", "once"})
