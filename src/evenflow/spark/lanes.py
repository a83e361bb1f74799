"""A lane as a long-running Spark task: it connects back to the driver and serves it until told to stop."""

from __future__ import annotations

import contextlib
import os
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark import TaskContext

from evenflow.lane import LaneConfig, LaneWorker
from evenflow.lane.faults import Faults
from evenflow.lane.messages import PROTOCOL, Done, Failed, FromLane, Hello, Stop, decode_to_lane, encode
from evenflow.lane.watchdog import watchdog
from evenflow.lane.wire import LaneEnd
from evenflow.log import QueryLog, log_to_stderr_by_default
from evenflow.state import Folder

_BACKGROUND = 2  # threads: state may come while other state goes
_LOCAL = "driver"  # Spark's name for the executor inside the driver
_LOOK_S = 0.001  # how long to listen for messages before looking at state that moves in the background


@dataclass(frozen=True)
class Dial:
    """How lanes reach the driver: where, with which key, its name for this run, and how often they say they live."""

    address: tuple[str, int]
    key: bytes
    run: str
    heartbeat_s: float


def lane_task(config: LaneConfig, dial: Dial, incarnation: int) -> Callable[[int, Iterable[int]], Iterator[int]]:
    """Return the function that one Spark task runs for as long as the lane lives."""

    def run(_partition: int, rows: Iterable[int]) -> Iterator[int]:
        for _ in rows:  # a worker that leaves its input unread is thrown away by Spark
            pass
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        with LaneEnd.connected(dial.address, dial.key) as link:
            hello = Hello(
                PROTOCOL,
                config.lane,
                incarnation,
                attempt,
                os.getpid(),
                socket.gethostname(),
                os.environ.get("SPARK_EXECUTOR_ID", _LOCAL),
                dial.run,
            )
            link.send(encode(hello))
            log = QueryLog(config.query, config.lane)
            if hello.executor != _LOCAL:  # where the application has nobody to set up logging
                log_to_stderr_by_default()
            log.info("attempt %s serves", hello.token)

            def tell(hung: Failed) -> None:
                log.error("hangs: %s\n%s", hung.message, hung.detail)
                with contextlib.suppress(OSError):
                    link.send(encode(hung))

            with link.heartbeats(dial.heartbeat_s), watchdog(config.operator_timeout_s, tell):
                _serve(config, hello, link, log)
            log.info("attempt %s has ended", hello.token)
        yield config.lane

    return run


def _serve(config: LaneConfig, hello: Hello, link: LaneEnd, log: QueryLog) -> None:
    """Answer messages until Stop; a link that ends means that the driver is gone or that we are fenced off."""
    faults = Faults.scripted()
    with ThreadPoolExecutor(_BACKGROUND, thread_name_prefix="evenflow-state") as background:
        folder = Folder.at(config.location, durable="content", retries=config.retries)  # the commit settles the names
        worker = LaneWorker(config, hello.token, folder, faults, background=background)
        with contextlib.suppress(EOFError, OSError):  # of the link: what handling raises is an answer
            while True:
                answers = []
                if not worker.is_moving_state or link.has_news(_LOOK_S):
                    message = decode_to_lane(link.receive())
                    if isinstance(message, Stop):
                        return
                    answers += _answers(lambda: worker.handle(message))  # noqa: B023 - called at once
                answers += _answers(worker.step)
                for answer in answers:
                    link.send(encode(answer))
                    if isinstance(answer, Failed) and not answer.slots:
                        log.error("failed: %s: %s\n%s", answer.kind, answer.message, answer.detail)
                        return
                    if isinstance(answer, Done):
                        faults.reach("lane.done-sent", config.lane, answer.commit.epoch)


def _answers(act: Callable[[], list[FromLane]]) -> list[FromLane]:
    """Return what the lane says to a message; whatever goes wrong, the query must hear of it."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - the user's operator may raise anything
        return [Failed(type(error).__name__, str(error), traceback.format_exc())]
