"""How files are called. A file bears the epoch of the record that may name it, so its age shows without opening it.

::

    identity.json                               whose checkpoint it is; written first when one is created
    runs/<run>.json                             the claim of a run: the checkpoint is its own as long as this is there
    base/<sequence>-<run>.json                  commit entries up to a sequence number, folded
    commits/<sequence>-<run>.json               commit entries after it
    epochs/<epoch>-<run>.json                   accepted epochs
    published/<epoch>-<run>.json                the sink has everything up to this epoch
    blocks/<epoch>-<task>-<attempt>.arrow       input rows
    work/<epoch>-<lane>-<attempt>.arrow         all that a lane has written for its commit of the epoch, one after the
                                                other: changed state rows, whole slots, output rows
    handoffs/<epoch>-<lane>-<attempt>.arrow     slots of a lane, none newer than the epoch, on their way to other lanes
    outputs/<epoch>-<lane>-<attempt>.<ending>   output rows in the format of a sink that takes files as they are

Only names that a record holds are ever read; an attempt that nobody counts any more may write what it likes. So may a
run: records bear the run that wrote them, no two runs share a name, and those of the newest run count.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from evenflow.errors import InputError
from evenflow.model import Epoch, LaneId

IDENTITY = "identity.json"
RUNS = "runs"
BASE, COMMITS, EPOCHS, PUBLISHED = "base", "commits", "epochs", "published"
BLOCKS, WORK, HANDOFFS, OUTPUTS = "blocks", "work", "handoffs", "outputs"
DATA = (BLOCKS, WORK, HANDOFFS, OUTPUTS)
RECORDS = (BASE, COMMITS, EPOCHS, PUBLISHED)

_ATTEMPT = re.compile(r"[A-Za-z0-9_.-]+")
_DATA_NAME = re.compile(rf"(?:{'|'.join(DATA)})/(\d{{12}})-.*")
_RECORD_NAME = re.compile(r"[a-z]+/(-?\d{11,12})-(\d{6,})-([0-9a-f]{8})\.json")
_CLAIM_NAME = re.compile(rf"{RUNS}/(\d{{6,}})-([0-9a-f]{{8}})\.json.*")


class Run(NamedTuple):
    """One start of the query: a later one has a higher number, the token tells apart two of the same moment."""

    number: int
    token: str

    def __str__(self) -> str:
        """Return the run as it stands in names."""
        return f"{self.number:06d}-{self.token}"


def block_name(epoch: Epoch, attempt: str, task: int) -> str:
    """Return the name of the block file that one attempt of a route task writes."""
    return _data_name(BLOCKS, epoch, task, attempt)


def work_name(epoch: Epoch, lane: LaneId, attempt: str) -> str:
    """Return the name of the file of a lane's commit: what it has changed, written out, and put out."""
    return _data_name(WORK, epoch, lane, attempt)


def handoff_name(epoch: Epoch, lane: LaneId, attempt: str) -> str:
    """Return the name of a handoff: slots of a lane, the newest of them at version `epoch`."""
    return _data_name(HANDOFFS, max(0, epoch), lane, attempt)


def output_name(epoch: Epoch, lane: LaneId, attempt: str, ending: str = "arrow") -> str:
    """Return the name of the output file of a lane's commit; its ending says in which form the rows are."""
    return _data_name(OUTPUTS, epoch, lane, attempt, ending)


def record_name(folder: str, number: int, run: Run) -> str:
    """Return the name of a numbered record of a run."""
    return f"{folder}/{number:012d}-{run}.json"


def record_of(name: str) -> tuple[Run, int] | None:
    """Return the run and the number of a record; None for anything else that lies in its folder."""
    match = _RECORD_NAME.fullmatch(name)
    return (Run(int(match[2]), match[3]), int(match[1])) if match else None


def claim_name(run: Run) -> str:
    """Return the name of a run's claim."""
    return f"{RUNS}/{run}.json"


def claim_of(name: str) -> Run | None:
    """Return the run whose claim it is, or is to become; None for anything else that lies there."""
    match = _CLAIM_NAME.fullmatch(name)
    return Run(int(match[1]), match[2]) if match else None


def epoch_of(name: str) -> Epoch | None:
    """Return the epoch that a data file bears; None if the name is not one of ours."""
    match = _DATA_NAME.fullmatch(name)
    return int(match[1]) if match else None


def _data_name(folder: str, epoch: Epoch, number: int, attempt: str, ending: str = "arrow") -> str:
    if not _ATTEMPT.fullmatch(attempt):
        raise InputError(f"an attempt is called by letters, digits, dots, dashes or underscores, got {attempt!r}")
    return f"{folder}/{epoch:012d}-{number:05d}-{attempt}.{ending}"
