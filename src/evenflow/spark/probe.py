"""Refuses a checkpoint that executors do not share with the driver, before anything of the query is written to it.

A folder of one machine looks the same everywhere: each machine would have its own. So the driver writes a file there,
tasks on executors read it and write an answer each, and the driver reads the answers. All of it is removed again.

In local mode nothing is asked: tasks run on this machine and as this user, so there is nothing they could see
otherwise, and the job would make every start about a tenth of a second longer.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from pyspark import SparkContext

from evenflow.errors import EvenflowError, UnreachableError
from evenflow.spark.internals import default_filesystem, is_local
from evenflow.state import FileRef, Folder, Retries, has_scheme

_MOST_ASKED = 32  # executors; those of one cluster are alike
_NO_RETRIES = 0.0


@dataclass(frozen=True)
class Answer:
    """What one executor says: its host, and its file, or what went wrong."""

    host: str
    file: FileRef | None
    problem: str = ""


# Has executors answer a file of the driver's; None if no task could run, whatever the reason.
Ask: TypeAlias = Callable[[str, FileRef], "list[Answer] | None"]


def refuse_unshared(context: SparkContext, location: str, retries: Retries, patience_s: float) -> None:
    """Raise if executors cannot read what the driver writes at a location, or the other way round."""
    if not is_local(context):
        probe(location, retries, lambda at, file: _asked(context, at, file, patience_s), default_filesystem(context))


def probe(location: str, retries: Retries, ask: Ask, default: str) -> None:
    """Write a file, have it answered by `ask`, and read the answers. `default` is Hadoop's default filesystem."""
    folder = Folder.at(location, durable=False, retries=retries)
    token = secrets.token_hex(8)
    question = folder.write_bytes(f".probe-{token}", token.encode())
    written = [question.name]
    try:
        answers = ask(location, question) or []  # what keeps tasks from running, lanes will say
        written += [answer.file.name for answer in answers if answer.file is not None]
        for answer in answers:
            _check(folder, answer, location, default)
    finally:
        folder.delete(written)


def _check(folder: Folder, answer: Answer, location: str, default: str) -> None:
    what = f"cannot read what the driver on {socket.gethostname()} has written there: {answer.problem}"
    if answer.file is not None:
        try:
            folder.read_bytes(answer.file)
        except EvenflowError as error:
            what = f"has written a file there which the driver on {socket.gethostname()} cannot read: {error}"
        else:
            return
    place = f" A path without a scheme lies on Hadoop's default filesystem (fs.defaultFS), here {default}."
    raise UnreachableError(
        f"checkpoint {folder.storage.address('')}: the executor on {answer.host} {what}. Lanes on all machines read "
        f"and write the checkpoint: set checkpointLocation to a place that all of them reach, such as hdfs://..., "
        f"s3a://... or a folder that is mounted everywhere.{'' if has_scheme(location) else place} Nothing was started"
    )


def _asked(context: SparkContext, location: str, question: FileRef, patience_s: float) -> list[Answer] | None:
    """Have tasks answer, one for each executor that is there, or one for the first that comes."""
    tag = f"evenflow-{question.name.removeprefix('.')}"
    tasks = min(max(1, len(context.statusTracker().getExecutorInfos()) - 1), _MOST_ASKED)
    gave_up = threading.Event()

    def give_up() -> None:
        gave_up.set()
        context.cancelJobsWithTag(tag)

    late = threading.Timer(patience_s, give_up)
    late.daemon = True
    context.addJobTag(tag)
    late.start()
    try:
        return context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(answering(location, question)).collect()
    except Exception as error:
        if not gave_up.is_set():
            return None  # such as a Python without evenflow: lanes fail likewise, and the query says of what
        raise UnreachableError(
            f"no executor has run a task within {patience_s:g} s, which was to read the checkpoint: see that the "
            f"cluster has room for this application"
        ) from error
    finally:
        late.cancel()
        context.removeJobTag(tag)


def answering(location: str, question: FileRef) -> Callable[[int, Iterable[int]], Iterator[Answer]]:
    """Return the function that a task runs."""

    def run(task: int, rows: Iterable[int]) -> Iterator[Answer]:
        for _ in rows:  # a worker that leaves its input unread is thrown away by Spark
            pass
        host = socket.gethostname()
        try:
            folder = Folder.at(location, durable=False, retries=Retries(_NO_RETRIES))
            if not folder.exists(question.name):
                yield Answer(host, None, "the file is not there")
                return
            folder.read_bytes(question)
            yield Answer(host, folder.write_bytes(f"{question.name}-{task}", host.encode()))
        except EvenflowError as error:
            yield Answer(host, None, str(error))

    return run
