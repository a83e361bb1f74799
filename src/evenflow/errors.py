"""The exceptions evenflow raises, grouped by what the one who catches them would do.

::

    EvenflowError                 anything evenflow itself has to say
    ├── InputError                a value from outside is wrong: correct it and call again
    │   ├── UnknownNameError      a name that is in no registry: pick one of those listed
    │   ├── MissingNameError      a method or function that evenflow does not have: the message says what to use
    │   └── CheckpointMismatchError  a checkpoint of another query: change the query or the location
    ├── PolicyError               a policy proposed something that cannot be: mend the policy
    ├── OperatorError             an operator failed on the rows of a slot: mend the operator or the data
    ├── LaneFailedError           a lane stopped with an error: its message says what to mend
    ├── DamagedFileError          a file of the checkpoint is not what was written: restore it, or start over
    ├── TakenOverError            a later run of the query has its checkpoint: see that only one is started
    ├── UnreachableError          a location cannot be read or written now: mend it and start again
    ├── StoppedError              the query was stopped while something waited: nothing to do
    └── ProtocolError             an impossible step in the life of a move: a defect, report it

Every message says who complains, what was expected, what came, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class EvenflowError(Exception):
    """Base of all errors that evenflow raises on purpose."""


class InputError(EvenflowError, ValueError):
    """A value given by the user is not usable; nothing was changed."""


class UnknownNameError(InputError):
    """A name that is not registered; the message lists those that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Build the message for `name`, an unknown `kind` ("policy", "strategy", ...)."""
        names = sorted(known)
        close = get_close_matches(name, names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(f"there is no {kind} named {name!r}; known: {', '.join(names)}.{hint}")


class MissingNameError(InputError, AttributeError):
    """A name of Spark's that evenflow does not have, or a misspelt one; the message says what to use instead."""


class CheckpointMismatchError(InputError):
    """The checkpoint belongs to another query, or to this one before it was changed; it was not touched."""


class DamagedFileError(EvenflowError):
    """A file of the checkpoint is missing, cut short, altered or foreign; the message names it and what can be done."""


class TakenOverError(EvenflowError):
    """A later run of the query has taken its checkpoint over; this one has ended, and nothing is lost."""


class UnreachableError(EvenflowError):
    """A location cannot be reached, created, read or written; see to the storage and start again."""


class PolicyError(EvenflowError):
    """A policy proposed moves that cannot be carried out; none of them was."""


class OperatorError(EvenflowError):
    """An operator could not fold the rows of a slot; the state it held in memory must not be used any more."""

    def __init__(  # noqa: PLR0913, PLR0917 - each says where
        self,
        operator: str,
        slot: int | None,
        problem: str,
        key: str | None = None,
        stage: str | None = None,
        epoch: int | None = None,
    ) -> None:
        """Say which operator failed, where as far as that is known, and why."""
        super().__init__(operator, slot, problem, key, stage, epoch)
        self.operator, self.slot, self.problem, self.key = operator, slot, problem, key
        self.stage, self.epoch = stage, epoch

    def __str__(self) -> str:
        """Tell where it happened, and what."""
        parts = {"stage": self.stage, "key": self.key, "slot": self.slot, "epoch": self.epoch}
        where = "".join(f", {name} {value}" for name, value in parts.items() if value is not None)
        return f"operator {self.operator}{where}: {self.problem}"

    def __reduce__(self) -> tuple[type[OperatorError], tuple[str | int | None, ...]]:
        """Travel from a lane to the driver."""
        return type(self), (self.operator, self.slot, self.problem, self.key, self.stage, self.epoch)


class LaneFailedError(EvenflowError):
    """A lane could not go on; the message is the lane's, its traceback is attached as a note."""

    def __init__(self, lane: int, kind: str, message: str, detail: str = "") -> None:
        """Say which lane failed and with what."""
        super().__init__(f"lane {lane} failed: {kind}: {message}")
        self.lane, self.kind = lane, kind
        if detail:
            self.add_note(detail)


class ProtocolError(EvenflowError):
    """An event arrived that the life of a move does not allow."""


class StoppedError(EvenflowError):
    """The query was stopped; what waited for it does not wait any longer."""
