"""Whose checkpoint it is: what belongs to something else, or to another query, is refused and not touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evenflow.errors import CheckpointMismatchError
from evenflow.state import naming
from evenflow.state.files import Folder
from evenflow.state.ledger import Ledger
from evenflow.state.naming import IDENTITY, RECORDS, RUNS, claim_of, record_of
from evenflow.state.records import Identity, Record
from evenflow.state.storage import TEMPORARY
from evenflow.state.succession import Difference, differences

SUBFOLDER = "evenflow"

# What must be as it was when a query starts again from its checkpoint: what to call it, and how to change it back.
_COMPARED = {"output_mode": ("output mode", "give outputMode() the mode of before")}
_COMPARED_BY_STAGE = {
    "keys": ("key columns", "give keyed() the same columns in the same order"),
    "key_types": ("types of the key columns", "cast the keys to the types they had"),
    "slots": ("number of slots", "give balance() the same slots"),
}


def refuse_strangers(location: Folder, folder: Folder) -> None:
    """Refuse a location without an identity that holds anything."""
    inside = [name for top in ("", RUNS, *RECORDS, *naming.DATA) for name in folder.names(top)]
    files = [name for name in inside if not name.endswith(("/", TEMPORARY))]
    outside = [name for name in location.names() if name != f"{SUBFOLDER}/" and not name.startswith(".")]
    if folder.exists(IDENTITY):  # another driver has just created the checkpoint
        return
    if any(record_of(name) or claim_of(name) for name in files):
        raise folder.damaged(IDENTITY, "it is missing, although the checkpoint holds records")
    if files or outside:
        found = ", ".join(sorted([f"{SUBFOLDER}/{name}" for name in files] + outside)[:5])
        raise CheckpointMismatchError(
            f"checkpoint location {location.storage.address('')} belongs to something else: it holds {found} and no "
            f"checkpoint of evenflow. Choose an empty or new location; this one was not touched."
        )


def refuse_other(folder: Folder, stored: Identity, identity: Identity) -> None:
    """Refuse a query that is not the one that wrote the checkpoint, field by field."""
    found = [*_of_stages(stored, identity), *_compared(stored, identity, _COMPARED)]
    if not found:
        return
    whats, remedies = "; ".join(each.what for each in found), ", ".join(dict.fromkeys(each.remedy for each in found))
    raise CheckpointMismatchError(
        f"checkpoint {folder.storage.address('')} is of another query, or of this one before it was changed "
        f"({whats}). To go on from it, {remedies}; or start with a new checkpoint location. It was not touched."
    )


def _of_stages(stored: Identity, identity: Identity) -> Iterator[Difference]:
    """Yield what differs of the stages, one by one; of a query with several, each difference says of which."""
    if len(stored.stages) != len(identity.stages):
        what = f"number of stages: was {len(stored.stages)}, is {len(identity.stages)}"
        yield Difference(what, "chain the same stages in the same order")
        return
    for number, (was, now) in enumerate(zip(stored.stages, identity.stages, strict=True), 1):
        whose = f"stage {number}: " if len(stored.stages) > 1 else ""
        for each in (*_compared(was, now, _COMPARED_BY_STAGE), *differences(was.contents, now.contents)):
            yield Difference(f"{whose}{each.what}", each.remedy)


def _compared(was: Record, now: Record, what: Mapping[str, tuple[str, str]]) -> Iterator[Difference]:
    """Yield the fields that are not as they were."""
    for name, (called, remedy) in what.items():
        before, after = getattr(was, name), getattr(now, name)
        if before != after:
            yield Difference(f"{called}: was {_shown(before)}, is {_shown(after)}", remedy)


def as_of(created: Identity, ledger: Ledger) -> Identity:
    """Return the identity as it is now: the contents are those of the run that wrote last."""
    return created if ledger.contents is None else created.holding(ledger.contents)


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
