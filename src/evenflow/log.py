"""What evenflow tells through the standard `logging` module: every line says which query, lane and epoch it is about.

Loggers are named ``evenflow.query`` (the driver) and ``evenflow.lane`` (executors). A library sets nothing up: without
a handler of the application nothing is printed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

_SHORT_ID = 8  # characters of an id that tell queries of one application apart
_QUIET_S = 60.0  # how long something that lasts is not told again

logging.getLogger("evenflow").addHandler(logging.NullHandler())


class QueryLog(logging.LoggerAdapter[logging.Logger]):
    """Writes lines like ``totals, lane 1, epoch 17: lost``; handlers find the parts as `query`, `lane` and `epoch`."""

    def __init__(self, query: str, lane: int | None = None) -> None:
        """Speak of one query, or of one lane of it."""
        super().__init__(logging.getLogger("evenflow.query" if lane is None else "evenflow.lane"), {})
        self.query, self.lane = query, lane

    def process(self, msg: object, kwargs: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
        """Put first what the line is about; `lane` and `epoch` may be given with it."""
        lane, epoch = kwargs.pop("lane", self.lane), kwargs.pop("epoch", None)
        about = [self.query]
        about += [] if lane is None else [f"lane {lane}"]
        about += [] if epoch is None or epoch < 0 else [f"epoch {epoch}"]
        kwargs["extra"] = {"query": self.query, "lane": lane, "epoch": epoch}
        return f"{', '.join(about)}: {msg}", kwargs


def log_to_stderr_by_default() -> None:
    """Let warnings go to stderr, the executor's log, in a process of ours that nobody has set up logging for."""
    logger = logging.getLogger("evenflow")
    if logging.root.handlers or any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
        return
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)


def label_of(name: str | None, query_id: str) -> str:
    """Return how a query is called in the log: by its name, or by the beginning of its id."""
    return name or query_id[:_SHORT_ID]


@dataclass
class Slow:
    """Tells of something that takes longer than it should: at once, then once a minute for as long as it lasts."""

    log: QueryLog
    what: str
    limit_s: float
    clock: Callable[[], float] = time.monotonic
    _told_s: float = field(default=-_QUIET_S, init=False)

    def took(self, seconds: float, epoch: int) -> None:
        """Take in how long it took this time."""
        if seconds < self.limit_s:
            return
        level = logging.DEBUG
        if self.clock() - self._told_s >= _QUIET_S:
            level, self._told_s = logging.WARNING, self.clock()
        self.log.log(level, "%s took %.1f s", self.what, seconds, epoch=epoch)
