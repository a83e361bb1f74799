"""Whose checkpoint it is: what belongs to something else, or to another query, is refused and not touched."""

from __future__ import annotations

import msgspec

from evenflow.errors import CheckpointMismatchError
from evenflow.state import naming
from evenflow.state.files import Folder
from evenflow.state.ledger import Ledger
from evenflow.state.naming import IDENTITY, RECORDS, RUNS, claim_of, record_of
from evenflow.state.records import Identity
from evenflow.state.storage import TEMPORARY
from evenflow.state.succession import Difference, differences

SUBFOLDER = "evenflow"

# What must be as it was when a query starts again from its checkpoint: what to call it, and how to change it back.
_COMPARED = {
    "keys": ("key columns", "give keyed() the same columns in the same order"),
    "key_types": ("types of the key columns", "cast the keys to the types they had"),
    "slots": ("number of slots", "give balance() the same slots"),
    "output_mode": ("output mode", "give outputMode() the mode of before"),
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
    found = [
        Difference(f"{what}: was {_shown(getattr(stored, name))}, is {_shown(getattr(identity, name))}", remedy)
        for name, (what, remedy) in _COMPARED.items()
        if getattr(stored, name) != getattr(identity, name)
    ]
    found += differences(stored.contents, identity.contents)
    if not found:
        return
    whats, remedies = "; ".join(each.what for each in found), ", ".join(dict.fromkeys(each.remedy for each in found))
    raise CheckpointMismatchError(
        f"checkpoint {folder.storage.address('')} is of another query, or of this one before it was changed "
        f"({whats}). To go on from it, {remedies}; or start with a new checkpoint location. It was not touched."
    )


def as_of(created: Identity, ledger: Ledger) -> Identity:
    """Return the identity as it is now: the contents are those of the run that wrote last."""
    return created if ledger.contents is None else msgspec.structs.replace(created, contents=ledger.contents)


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
