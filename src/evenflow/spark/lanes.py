"""A lane as a long-running Spark task: it connects back to the coordinator and serves it until told to stop."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Client, Connection

from pyspark import TaskContext

from evenflow.lane import LaneConfig, LaneWorker
from evenflow.lane.faults import Faults
from evenflow.lane.messages import PROTOCOL, Done, Failed, Hello, Stop, decode_to_lane, encode
from evenflow.state import Folder


def lane_task(
    config: LaneConfig, address: tuple[str, int], key: bytes, incarnation: int
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
            )
            connection.send_bytes(encode(hello))
            _serve(config, hello, connection)
        yield config.lane

    return run


def _serve(config: LaneConfig, hello: Hello, connection: Connection) -> None:
    """Answer messages until Stop; a closed connection means that the driver is gone or that we are fenced off."""
    faults = Faults.scripted()
    try:
        worker = LaneWorker(config, hello.token, Folder.at(config.location), faults)
        while not isinstance(message := decode_to_lane(connection.recv_bytes()), Stop):
            answer = worker.handle(message)
            connection.send_bytes(encode(answer))
            if isinstance(answer, Done):
                faults.reach("lane.done-sent", config.lane, answer.commit.epoch)
    except (EOFError, ConnectionError, BrokenPipeError):
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, the query must hear of it
        failure = Failed(type(error).__name__, str(error), traceback.format_exc())
        connection.send_bytes(encode(failure))
