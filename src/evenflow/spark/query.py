"""A running query: Spark's names and meanings, and what only evenflow has: lanes, slots, moves, state, journal."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from evenflow.control.journal import Journal, PhaseChanged
from evenflow.control.window_json import write_journal_json
from evenflow.errors import EvenflowError, InputError, StoppedError
from evenflow.migration import Phase
from evenflow.model import Move
from evenflow.policies import Policy, policy_of
from evenflow.spark.asking import first_epoch, lane_count, wanted_moves
from evenflow.spark.conductor import Absence
from evenflow.spark.engine import Engine
from evenflow.spark.internals import spark_schema
from evenflow.spark.progress import Step

_LOOK_S = 1  # how often to look whether lanes have ended the query


class Query:
    """Handle of a started query."""

    def __init__(self, engine: Engine, spark_query: StreamingQuery, name: str | None) -> None:
        """Watch Spark's query: when it ends, the lanes end."""
        self._engine, self._spark_query, self.name = engine, spark_query, name
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="evenflow-watch", daemon=True).start()

    @classmethod
    def started(cls, engine: Engine, writer: DataStreamWriter, name: str | None) -> Query:
        """Start the lanes, then Spark's query; if that fails, leave nothing running."""
        try:
            engine.start()
            return cls(engine, writer.start(), name)
        except BaseException:
            engine.stop()
            raise

    # --- Spark's names -------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The query's id; it stays the same over restarts from the checkpoint."""
        return self._engine.checkpoint.identity.query_id

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether the query runs."""
        return not self._ended.is_set()

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The figures of the newest epoch."""
        return self._engine.progress.last

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - Spark's name
        """The figures of the newest epochs, oldest first."""
        return self._engine.progress.recent

    @property
    def status(self) -> dict[str, Any]:
        """What the query is doing."""
        return dict(self._spark_query.status)

    def exception(self) -> BaseException | None:
        """What ended the query, None if nothing did."""
        error = self._engine.error
        if error is not None and not isinstance(error, StoppedError):
            return error
        return self._spark_query.exception() if not isinstance(error, StoppedError) else None

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802 - Spark's name
        """Wait for the end (or `timeout` seconds: then say whether it came); raise what ended the query."""
        ended = self._ended.wait(timeout)
        if ended and (error := self.exception()) is not None:
            raise error
        return ended if timeout is not None else None

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        """Wait until all that is there now is processed and published."""
        try:
            self._spark_query.processAllAvailable()
            self._engine.drain()
        except Exception as error:
            if (own := self.exception()) is not None:
                raise own from error
            raise

    def stop(self) -> None:
        """Stop the query and its lanes. A later start from the same checkpoint goes on where it was."""
        self._engine.interrupt()  # Spark's stop waits for a batch that is in our hands
        self._spark_query.stop()
        self._ended.wait()

    @property
    def spark_query(self) -> StreamingQuery:
        """Spark's own query underneath, with its own progress."""
        return self._spark_query

    # --- evenflow's own ------------------------------------------------------------------------------------------

    def lanes(self) -> list[dict[str, Any]]:
        """What each lane did last, and where it runs."""
        rows = self._engine.progress.lane_rows()
        hellos = {row["lane"]: self._engine.coordinator.hello_of(row["lane"]) for row in rows}
        places = {lane: {"pid": hello.pid, "host": hello.host} if hello else {} for lane, hello in hellos.items()}
        return [{**row, **places[row["lane"]]} for row in rows]

    def slots(self) -> list[dict[str, Any]]:
        """What each slot cost in the newest epoch, and where it is."""
        return self._engine.progress.slot_rows()

    def moves(self) -> list[dict[str, Any]]:
        """All moves that were announced, with their epoch and reason."""
        return [
            {
                "epoch": entry.epoch,
                "slot": entry.move.slot,
                "source": entry.move.source,
                "target": entry.move.target,
                "reason": entry.move.reason,
            }
            for entry in self.journal().of(PhaseChanged)
            if entry.after is Phase.ANNOUNCED and entry.before is Phase.PLANNED
        ]

    def steps(self) -> list[Step]:
        """Every commit of a lane: when it was and which slots came how far; of long runs the newest."""
        return self._engine.progress.steps

    def absences(self) -> list[Absence]:
        """How long each slot that moved was served by nobody; of long runs the newest."""
        return self._engine.conductor.absences

    def journal(self) -> Journal:
        """Every decision, refusal and move, with its reason."""
        return self._engine.journal

    def save_journal(self, path: str | Path) -> None:
        """Write the journal and the load windows it was made from to a JSON file, for `evenflow simulate --replay`.

        Of long runs the newest windows. `evenflow plan` reads the same file.
        """
        try:
            Path(path).write_bytes(write_journal_json(self.journal()))
        except OSError as error:
            raise InputError(f"save_journal: cannot write {path}: {error.strerror}") from error

    def rebalance(self, moves: Iterable[Move | tuple[int, int]], not_before: int = 0) -> None:
        """Ask for moves by hand: Moves, or pairs (slot, lane to go to). A bad one refuses them all.

        They take effect at epoch `not_before` or as soon after it as the strategy has it.
        """
        self._engine.request(wanted_moves(moves), first_epoch(not_before))

    def resize(self, lanes: int) -> None:
        """Go on with so many lanes: new ones start and take over slots, those to go give theirs away first.

        Returns at once; slots move with the next epochs.
        """
        self._engine.resize(lane_count(lanes))

    def set_policy(self, policy: str | Policy) -> None:
        """Decide by another policy from the next epoch on; moves that are planned or under way are carried out."""
        self._engine.set_policy(policy_of("set_policy", policy))

    def latency(self, first_epoch: int = 0, last_epoch: int | None = None) -> dict[str, float]:
        """Percentiles of the time from arrival to commit over some epochs (sampled; of long runs the newest)."""
        return self._engine.progress.latency(first_epoch, last_epoch)

    def state(self) -> DataFrame:
        """The committed state as a DataFrame, one row per key (or per slot, for operators of your own)."""
        state = self._engine.state_table()
        return self._engine.spark.createDataFrame(state, spark_schema(state.schema))

    def _watch(self) -> None:
        try:
            while not self._spark_query.awaitTermination(_LOOK_S):
                if self._engine.error is not None:
                    self._spark_query.stop()
            self._engine.drain()  # Spark has handed over everything; lanes may still be at it
        except StoppedError:
            pass
        except Exception as error:  # noqa: BLE001 - kept for exception() and awaitTermination()
            self._engine.fail(EvenflowError(str(error)))
        finally:
            self._engine.stop()
            self._ended.set()
