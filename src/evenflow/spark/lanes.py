"""A lane as a long-running Spark task: it connects back to the coordinator and serves it until told to stop."""

from __future__ import annotations

import contextlib
import os
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Client, Connection

from pyspark import TaskContext

from evenflow.lane import LaneConfig, LaneWorker
from evenflow.lane.faults import Faults
from evenflow.lane.messages import PROTOCOL, Done, Failed, FromLane, Hello, Stop, ToLane, decode_to_lane, encode
from evenflow.state import Folder


def lane_task(
    config: LaneConfig, address: tuple[str, int], key: bytes, run_name: str, incarnation: int
) -> Callable[[int, Iterable[int]], Iterator[int]]:
    """Return the function that one Spark task runs for as long as the lane lives."""

    def run(_partition: int, rows: Iterable[int]) -> Iterator[int]:
        for _ in rows:  # a worker that leaves its input unread is thrown away by Spark
            pass
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        with Client(address, authkey=key) as connection:
            hello = Hello(
                PROTOCOL,
                config.lane,
                incarnation,
                attempt,
                os.getpid(),
                socket.gethostname(),
                os.environ.get("SPARK_EXECUTOR_ID", "driver"),
                run_name,
            )
            connection.send_bytes(encode(hello))
            _serve(config, hello, connection)
        yield config.lane

    return run


def _serve(config: LaneConfig, hello: Hello, connection: Connection) -> None:
    """Answer messages until Stop; a closed connection means that the driver is gone or that we are fenced off."""
    faults = Faults.scripted()
    worker = LaneWorker(config, hello.token, Folder.at(config.location, durable="content"), faults)
    with contextlib.suppress(EOFError, ConnectionError):
        while not isinstance(message := decode_to_lane(connection.recv_bytes()), Stop):
            answer = _answer(worker, message)
            connection.send_bytes(encode(answer))
            if isinstance(answer, Failed):
                return
            if isinstance(answer, Done):
                faults.reach("lane.done-sent", config.lane, answer.commit.epoch)


def _answer(worker: LaneWorker, message: ToLane) -> FromLane:
    """Return what the lane says to a message; whatever goes wrong, the query must hear of it."""
    try:
        return worker.handle(message)
    except Exception as error:  # noqa: BLE001 - the user's operator may raise anything
        return Failed(type(error).__name__, str(error), traceback.format_exc())


def stand_in_task(
    config_of: Callable[[int], LaneConfig], run_name: str
) -> Callable[[tuple[int, list[bytes]]], tuple[int, bytes]]:
    """Return the function with which a short Spark task takes a lane's place: messages in, the last answer out."""

    def run(part: tuple[int, list[bytes]]) -> tuple[int, bytes]:
        lane, frames = part
        context = TaskContext.get()
        attempt = f"{run_name}.{context.taskAttemptId() if context is not None else 0}"
        config = config_of(lane)
        worker = LaneWorker(config, attempt, Folder.at(config.location, durable="content"), Faults.scripted())
        answers = (_answer(worker, decode_to_lane(frame)) for frame in frames)
        return lane, encode(next(answer for answer in answers if isinstance(answer, Done | Failed)))

    return run
