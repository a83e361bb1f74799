"""Whose rows are in a folder: a mark beside them names the query that owns it, and the guests it shares it with.

::

    out/_evenflow/owner.json           the query that came first; of two that come at once, one creates it
    out/_evenflow/guests/<id>.json     a query that was told to share the folder (evenflow.shareOutput)

A query with a new checkpoint begins at epoch 0 of its own. In a folder with the rows of another one, or of itself
before it was started over, nobody could tell the two apart: so such a start is refused. Names that begin with `_` are
skipped by all who read folders of files, Spark among them. Rows of no query, say of a batch job, may be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from evenflow.errors import DamagedFileError, InputError, UnreachableError
from evenflow.state import NameTakenError, Retries, RetryingStorage, Storage, storage_at

OWN_FOLDER = "_evenflow"
_OWNER = f"{OWN_FOLDER}/owner.json"
_SPARKS_LOG = "_spark_metadata"


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a query says of itself in a folder: its id, its checkpoint's address without secrets, and since when."""

    query_id: str
    checkpoint: str
    claimed_at_s: float


@dataclass(frozen=True)
class OutputFolder:
    """A folder that queries write files to; `share`: with others, if there are any."""

    storage: Storage
    share: bool = False

    @classmethod
    def at(cls, path: str, *, share: bool = False, retries: Retries | None = None) -> OutputFolder:
        """Return the folder at a path or URI; nothing is made."""
        return cls(RetryingStorage(storage_at(path), retries or Retries()), share)

    def refuse_other(self, query_id: str | None) -> None:
        """Raise if a query may not write here; `query_id` is None for one without a checkpoint."""
        with self._reaching():
            if self.storage.exists(_SPARKS_LOG):
                raise InputError(
                    f"writeStream: folder {self._address} holds the output of a query of Spark's own: its readers see "
                    f"only the files that are listed in {_SPARKS_LOG}, and never ours. Choose another folder"
                )
            owner = self._read(_OWNER)
            if owner is None or self.share or query_id == owner.query_id:
                return
            if query_id is not None and self._read(_guest(query_id)) is not None:
                return
        since = datetime.fromtimestamp(owner.claimed_at_s, UTC)
        raise InputError(
            f"writeStream: folder {self._address} belongs to another query, {owner.query_id} with checkpoint "
            f"{owner.checkpoint} (since {since:%Y-%m-%d %H:%M:%S} UTC): rows of two queries would be mixed. Go on from "
            f"that checkpoint, choose another folder, or remove the old output with its folder {OWN_FOLDER}; if both "
            f"are to write here, set option('evenflow.shareOutput', 'true')"
        )

    def claim(self, mark: Mark) -> None:
        """Own the folder from now on, or be a guest if it is to be shared; raise if it belongs to another query."""
        with self._reaching():
            self._create(_OWNER, mark)
            owner = self._read(_OWNER)
            if self.share and owner is not None and owner.query_id != mark.query_id:
                self._create(_guest(mark.query_id), mark)
        self.refuse_other(mark.query_id)

    @property
    def _address(self) -> str:
        return self.storage.address("")

    def _create(self, name: str, mark: Mark) -> None:
        """Write a mark, unless there is one of this name."""
        with suppress(NameTakenError), self.storage.create(name, exclusive=True) as write:
            write(msgspec.json.encode(mark))

    def _read(self, name: str) -> Mark | None:
        if not self.storage.exists(name):
            return None
        try:
            with self.storage.open(name) as file:
                return msgspec.json.decode(file.read(), type=Mark)
        except FileNotFoundError:  # it has just been removed
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedFileError(
                f"writeStream: {self.storage.address(name)}, which says whose rows are in that folder, is damaged or "
                f"of something else: {error}. Restore it; or remove it, if no other query writes there"
            ) from error

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnreachableError(
                f"writeStream: cannot write to folder {self._address}: {error}. See that it can be reached, has room "
                f"and may be written by this user, then start again"
            ) from error


def _guest(query_id: str) -> str:
    return f"{OWN_FOLDER}/guests/{query_id}.json"
