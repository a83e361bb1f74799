"""A running query: Spark's names and meanings, and what only evenflow has: lanes, slots, moves, state, journal."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from evenflow.control.journal import Journal, PhaseChanged
from evenflow.control.window_json import write_journal_json
from evenflow.engine import Absence
from evenflow.errors import InputError
from evenflow.migration import Phase
from evenflow.model import Move
from evenflow.policies import Policy, policy_of
from evenflow.policies.base import policy_name
from evenflow.spark.asking import first_epoch, lane_count, stage_number, wanted_moves
from evenflow.spark.ending import SparkRun, told
from evenflow.spark.internals import CallerJobs, StateFrame, hide_progress_bar, show_progress_bar, stop_timeout_s
from evenflow.spark.lane_jobs import lanes_running
from evenflow.spark.progress import Step
from evenflow.spark.shell import PATIENCE_S, Shell
from evenflow.spark.state_frame import state_of

# What `lanes()` says of a lane before its first epoch.
_NOTHING_DONE: dict[str, Any] = {
    "epoch": None,
    "rows": 0,
    "busy_s": 0.0,
    "idle_s": 0.0,
    "state_rows": 0,
    "state_bytes": 0,
    "attempt": None,
}


class Query:
    """Handle of a started query."""

    def __init__(self, shell: Shell, run: SparkRun, name: str | None) -> None:
        """Watch Spark's query: when it ends, the lanes end."""
        self._shell, self._run, self._name = shell, run, name
        self._ended = threading.Event()
        shell.was_stopped = lambda: run.was_stopped or (not shell.ends_by_itself and not run.is_active)
        shell.intake.source_rests = lambda: run.rests
        shell.publisher.before = self._name_jobs
        threading.Thread(target=self._watch, name="evenflow-watch", daemon=True).start()

    @classmethod
    def started(cls, shell: Shell, writer: DataStreamWriter, name: str | None) -> Query:
        """Start the lanes, then Spark's query; if that fails, leave nothing running."""
        context = shell.spark.sparkContext
        shell.prepare_thread = CallerJobs(shell.spark).take_on
        shell.links.prepare_thread = shell.prepare_thread
        try:
            hide_progress_bar(context)
            shell.start()
            shell.start_publishing()
            return cls(shell, SparkRun(writer, shell.on_batch), name)
        except BaseException:
            _end_lanes(shell, _patience_s(shell))
            raise

    # --- Spark's names -------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The query's id, the same as Spark's; it stays the same over restarts from the checkpoint."""
        return self._shell.checkpoint.identity.query_id

    @property
    def runId(self) -> str:  # noqa: N802 - Spark's name
        """The id of this run, another one at every start: Spark's."""
        return self._run.run_id

    @property
    def name(self) -> str | None:
        """The name given with `queryName`."""
        return self._name

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether the query runs."""
        return not self._ended.is_set()

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The figures of the newest epoch."""
        return self._shell.progress.last

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - Spark's name
        """The figures of the newest epochs, oldest first."""
        return self._shell.progress.recent

    @property
    def status(self) -> dict[str, Any]:
        """What the query is doing."""
        status = dict(self.spark_query.status)
        failure = self._shell.failure
        return status if failure is None else {**status, "message": f"Terminated with exception: {failure}"}

    def exception(self) -> BaseException | None:
        """What ended the query, None if nothing did."""
        return self._shell.failure or self.spark_query.exception()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802 - Spark's name
        """Wait for the end (or `timeout` seconds: then say whether it came); raise what ended the query."""
        ended = self._ended.wait(timeout)
        if ended and (error := self.exception()) is not None:
            raise error
        return ended if timeout is not None else None

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        """Wait until all that is there now is processed and published."""
        try:
            self.spark_query.processAllAvailable()
            self._shell.drain()
        except Exception as error:
            if (own := self.exception()) is not None:
                raise own from error
            raise

    def stop(self) -> None:
        """Stop the query and its lanes. A later start from the same checkpoint goes on where it was.

        What the sink or the checkpoint's disk is at is given 10 seconds to return, or Spark's
        `spark.sql.streaming.stopTimeout` if that is set; then the query ends without it.
        """
        self._shell.interrupt()
        self._ended.wait()
        self._run.refuse_if_alive()

    def explain(self, extended: bool = False) -> None:  # noqa: FBT001, FBT002 - Spark's signature
        """Print how the query is spread, and Spark's plan for how its rows come to lanes."""
        shell = self._shell
        config, table = shell.config, shell.balancer.table
        stages = "\n".join(f"{stage.operator}\nby {', '.join(stage.keys)}" for stage in config.stages)
        print(  # noqa: T201 - Spark prints it too
            f"== evenflow ==\n{stages}\n{table.slots} slots on {len(table.lanes)} lanes, "
            f"policy {policy_name(shell.balancer.policy)}, "
            f"exchange {shell.router.exchange}\n== How rows come to lanes =="
        )
        self.spark_query.explain(extended)

    @property
    def spark_query(self) -> StreamingQuery:
        """Spark's own query underneath, with its own progress."""
        return self._run.query

    # --- evenflow's own ------------------------------------------------------------------------------------------

    def lanes(self) -> list[dict[str, Any]]:
        """What each lane did last, and where it runs, or has run; None for what is not known yet.

        Of a query with several stages also `slots_by_stage`: how many slots of each it has.
        """
        shell = self._shell
        done = {row["lane"]: row for row in shell.progress.lane_rows()}
        owners = shell.balancer.table.owners
        owned = Counter(owners.tolist())
        stages = [Counter(owners[stage.units].tolist()) for stage in shell.config.units]
        rows = []
        for lane in sorted(shell.engine.lanes):
            row = {**_NOTHING_DONE, "lane": lane, "slots": owned[lane], **done.get(lane, {}), **self._place(lane)}
            if len(stages) > 1:
                row["slots_by_stage"] = [stage[lane] for stage in stages]
            rows.append(row)
        return rows

    def _place(self, lane: int) -> dict[str, Any]:
        hello = self._shell.links.last_hello_of(lane)
        return {"pid": hello and hello.pid, "host": hello and hello.host, "executor": hello and hello.executor}

    def slots(self) -> list[dict[str, Any]]:
        """What each slot cost in the newest epoch, where it is, and how many rows wait for it now (`pending`).

        Of a query with several stages: `stage` (from 0) and `slot` in it, and the `unit` by which `rebalance` knows it.
        """
        return self._shell.slot_rows()

    def moves(self) -> list[dict[str, Any]]:
        """All moves that were announced, with their epoch and reason; slots are named as `slots()` does."""
        names = self._shell.config.names
        return [
            {
                "epoch": entry.epoch,
                **names.of(entry.move.slot),
                "source": entry.move.source,
                "target": entry.move.target,
                "reason": entry.move.reason,
            }
            for entry in self.journal().of(PhaseChanged)
            if entry.after is Phase.ANNOUNCED and entry.before is Phase.PLANNED
        ]

    def under_way(self) -> list[dict[str, Any]]:
        """The epochs that were accepted and are not published yet, oldest first: number, begin, rows."""
        return self._shell.progress.under_way

    def steps(self) -> list[Step]:
        """Every commit of a lane: when it was and which slots came how far; of long runs the newest."""
        return self._shell.progress.steps

    def absences(self) -> list[Absence]:
        """How long each slot that moved was served by nobody; of long runs the newest."""
        return self._shell.engine.absences

    def journal(self) -> Journal:
        """Every decision, refusal and move, with its reason."""
        return self._shell.journal

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

        Of a query with several stages: (unit, lane to go to), with the unit that `slots()` shows.
        They take effect at epoch `not_before` or as soon after it as the strategy has it.
        """
        self._shell.request(wanted_moves(moves), first_epoch(not_before))

    def resize(self, lanes: int) -> None:
        """Go on with so many lanes: new ones start and take over slots, those to go give theirs away first.

        Returns at once; slots move with the next epochs.
        """
        self._shell.resize(lane_count(lanes))

    def set_policy(self, policy: str | Policy) -> None:
        """Decide by another policy from the next epoch on; moves that are planned or under way are carried out."""
        self._shell.set_policy(policy_of("set_policy", policy))

    def latency(self, first_epoch: int = 0, last_epoch: int | None = None) -> dict[str, float]:
        """Percentiles of the time from arrival to commit over some epochs (sampled; of long runs the newest)."""
        return self._shell.progress.latency(first_epoch, last_epoch)

    def state(self, stage: int | None = None) -> StateFrame:
        """The state of all keys at the end of one epoch, which the DataFrame's `epoch` names; -1 before the first.

        It is the newest epoch that any slot has reached. Aggregates: a row per key. Operators of your own: columns
        `slot`, `key` and `value`; a row per entry of a dict and per row of a table, else one per slot without a key.
        Values are JSON; a row's key is what it holds in the key columns. The state is read in Spark tasks, and kept
        by Spark as long as you hold the DataFrame; it stays as it is while the query goes on.

        Of a query with several stages: the state of `stage`, numbered from 0; the last one's if it is not said.
        """
        stages = self._shell.config.stages
        return state_of(self._shell, stages[-1 if stage is None else stage_number(stage, len(stages))])

    def _name_jobs(self, epoch: int) -> None:
        """Let the sink's jobs be known as those of a `foreachBatch` are in Spark: stopping the query cancels them."""
        context = self._shell.spark.sparkContext
        about = f"{self.name or ''}\nid = {self.id}\nrunId = {self.runId}\nbatch = {epoch}"
        context.setJobGroup(self.runId, about, interruptOnCancel=True)
        context.setLocalProperty("sql.streaming.queryId", self.id)
        context.setLocalProperty("streaming.sql.batchId", str(epoch))

    def _watch(self) -> None:
        shell, run, patience_s = self._shell, self._run, PATIENCE_S
        try:
            while not shell.over.is_set() and not run.wait():
                pass
            if not shell.over.is_set():
                self._spark_has_ended()
            patience_s = _patience_s(shell)
            if not run.end(shell.failure, patience_s):
                shell.log.warning(
                    "the query ends, although Spark's thread is still at a batch: what that waits for (the "
                    "checkpoint's disk) has not returned within %g s; the batch comes again after a restart",
                    patience_s,
                )
        except Exception as error:  # noqa: BLE001 - kept for exception() and awaitTermination()
            shell.fail(error)
        finally:
            _end_lanes(shell, patience_s)
            self._tell_end()
            self._ended.set()

    def _tell_end(self) -> None:
        log, recovery = self._shell.log, self._shell.checkpoint.recover()
        if (error := self.exception()) is not None:
            log.error("failed: %s", told(error), epoch=recovery.last_accepted)
        else:
            log.info("has ended, published up to epoch %d", recovery.last_published, epoch=recovery.last_accepted)

    def _spark_has_ended(self) -> None:
        """Do what follows from the end of Spark's query: it failed, was stopped elsewhere, or has handed over all."""
        shell = self._shell
        error = self.spark_query.exception()
        if error is not None:
            shell.fail(error)
        elif not shell.was_stopped():
            try:
                shell.drain()
            except Exception as failed:  # noqa: BLE001 - kept for exception() and awaitTermination()
                shell.fail(failed)


def _patience_s(shell: Shell) -> float:
    """Return how long a stop waits for what does not return: a sink, a disk."""
    return stop_timeout_s(shell.spark) or PATIENCE_S


def _end_lanes(shell: Shell, patience_s: float) -> None:
    shell.stop(patience_s)
    if not lanes_running:
        show_progress_bar(shell.spark.sparkContext)
