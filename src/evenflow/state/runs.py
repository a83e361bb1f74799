"""Who may write: the last run to start owns the checkpoint, whether the one before is dead, hung or at work elsewhere.

A run claims the checkpoint by a file of its own, then removes the claims of all runs before it, then reads the
records. It writes under names that bear the run, and after each record it looks whether its claim is still there::

    old run     writes a record ──▶ looks for its claim ──▶ is it there? goes on. Is it gone? stops for good
    new run     writes its claim, removes the old one ──▶ reads the records ──▶ writes down what it has found

Whichever way the two fall together, one sees the other: if the old run finds its claim, the record was there before
the claim was removed, so the new run has read it. If not, the record may or may not have been read; the old run never
acts on it, and what the new run has written down decides. This needs a storage that shows to everyone what one has
written or removed, and nothing else: no locks, no clocks, and no two runs ever write the same file.

A storage that cannot be asked has not said that the claim is gone. So an error is an UnreachableError; and where the
claim is missing, the checkpoint itself must be there: else its storage is away, or somebody has removed it all.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from datetime import UTC, datetime

from evenflow.errors import EvenflowError, TakenOverError, UnreachableError
from evenflow.state.files import Folder
from evenflow.state.naming import IDENTITY, RECORDS, RUNS, Run, claim_name, claim_of, record_of
from evenflow.state.records import Claim
from evenflow.state.storage import TEMPORARY


def claimed(folder: Folder) -> Run:
    """Take the checkpoint away from every run before; return the new run, unless a later one has come in between."""
    run = Run(_highest(folder) + 1, secrets.token_hex(4))
    try:
        folder.write_json(claim_name(run), Claim(socket.gethostname(), os.getpid(), time.time()))
    except UnreachableError as error:  # a later run may have taken this one, half-claimed, for dead
        if any(other > run for other in _claims(folder)):
            raise _taken_over(folder, run) from error
        raise
    if any(other > run for other in _claims(folder)):
        folder.delete([claim_name(run)])
        raise _taken_over(folder, run)
    # Also what a start that was killed has left half-written.
    folder.delete([name for name in folder.names(RUNS) if (claim_of(name) or run) < run])
    return run


def refuse_if_taken_over(folder: Folder, run: Run) -> None:
    """Raise if a later run has claimed the checkpoint; if not, everything written before this call counts."""
    if folder.exists(claim_name(run)):
        return
    if not folder.names(RUNS) and not folder.exists(IDENTITY):
        raise UnreachableError(
            f"checkpoint {folder.storage.address('')} is not there any more: neither the claim of this run, "
            f"{claim_name(run)}, nor {IDENTITY} is found. Is the storage mounted, or was the folder removed while the "
            f"query ran? The query has ended; see to the storage, then start it again."
        )
    raise _taken_over(folder, run)


def _highest(folder: Folder) -> int:
    """Return the highest number of any run that has left a trace, be it half a claim; 0 if none has."""
    records = (record_of(name) for kind in RECORDS for name in folder.names(kind))
    claims = (claim_of(name) for name in folder.names(RUNS))
    runs = [*(run for run in claims if run is not None), *(found[0] for found in records if found is not None)]
    return max((run.number for run in runs), default=0)


def _claims(folder: Folder) -> list[Run]:
    """Return the runs whose claims are there, the last to start at the end."""
    names = [name for name in folder.names(RUNS) if not name.endswith(TEMPORARY)]
    return sorted(run for run in map(claim_of, names) if run is not None)


def _taken_over(folder: Folder, run: Run) -> TakenOverError:
    """Return the error that says who has the checkpoint now."""
    address = folder.storage.address("")
    newest = max(_claims(folder), default=run)
    if newest <= run:
        return TakenOverError(
            f"checkpoint {address}: the claim of this run, {claim_name(run)}, is gone, and nobody else has claimed the "
            f"checkpoint. Was the folder removed or replaced while the query ran? The query has ended; start it again."
        )
    return TakenOverError(
        f"checkpoint {address} was taken over by another run of its query{_starter(folder, newest)}. This run has "
        f"ended; what it had not committed the other one carries out, so nothing is lost and nothing counts twice. The "
        f"last run to start goes on: see that the query is started in one place only, and not again while it runs."
    )


def _starter(folder: Folder, run: Run) -> str:
    """Say who has started a run, if it can still be read."""
    try:
        claim = folder.read_json(claim_name(run), Claim)
    except EvenflowError:
        return ""
    started = datetime.fromtimestamp(claim.started_at_s, UTC)
    return f" (process {claim.pid} on {claim.host}, started {started:%Y-%m-%d %H:%M:%S} UTC)"
