"""What the state of a query is made of, as its checkpoint remembers it."""

from __future__ import annotations

from dataclasses import dataclass

from evenflow.model.slots import Epoch


@dataclass(frozen=True, slots=True)
class HeldAggregate:
    """An aggregate over values of type `kind`; rows of epochs before `since` do not count for it."""

    name: str
    aggregate: str
    kind: str
    since: Epoch = 0


@dataclass(frozen=True, slots=True)
class Contents:
    """The operator whose state it is, and all that decides whether another one can go on from it.

    `version` is that of a user's own state, `reads_older` says that the operator can read older ones, `source` tells
    one text of its class from another (empty: not known). `inputs` are the value columns it is given: (name, type).
    """

    operator: str
    version: int = 1
    reads_older: bool = False
    source: str = ""
    aggregates: tuple[HeldAggregate, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
