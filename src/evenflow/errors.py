"""The exceptions evenflow raises, grouped by what the one who catches them would do.

::

    EvenflowError                 anything evenflow itself has to say
    ├── InputError                a value from outside is wrong: correct it and call again
    │   └── UnknownNameError      a name that is in no registry: pick one of those listed
    ├── PolicyError               a policy proposed something that cannot be: mend the policy
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


class PolicyError(EvenflowError):
    """A policy proposed moves that cannot be carried out; none of them was."""


class ProtocolError(EvenflowError):
    """An event arrived that the life of a move does not allow."""
