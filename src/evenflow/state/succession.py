"""Whether a query that was changed can go on from its checkpoint, and what the checkpoint holds then.

State is never rewritten for it: a file says itself which aggregates it holds, since when and in which type, and which
version of a user's state. What an older file lacks is as if no row had come yet; what is not wanted any more is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from evenflow.model import Contents, Epoch, HeldAggregate

_WIDER = (("int8", "int16", "int32", "int64"), ("float", "double"))  # from left to right
_DECIMAL = re.compile(r"decimal128\((\d+), (-?\d+)\)")


class Difference(NamedTuple):
    """What cannot be carried over, and what to do about it."""

    what: str
    remedy: str


def differences(held: Contents, wanted: Contents) -> list[Difference]:
    """Return what of the state that is held the wanted operator cannot go on from."""
    if held.operator != wanted.operator:
        what = f"operator: was {held.operator}, is {wanted.operator}"
        renamed = f'; if it is the same one renamed, declare name = "{held.operator}" in its class'
        return [Difference(what, f"use the operator of before{renamed if _is_own(held) and _is_own(wanted) else ''}")]
    return [*_of_version(held, wanted), *_of_aggregates(held, wanted), *_of_inputs(held, wanted)]


def succeeded(held: Contents, wanted: Contents, first: Epoch) -> Contents:
    """Return what is held from now on; what is new counts from epoch `first` on."""
    known = {(each.name, each.aggregate): each for each in held.aggregates}
    return replace(
        wanted,
        aggregates=tuple(
            replace(
                each, since=known[each.name, each.aggregate].since if (each.name, each.aggregate) in known else first
            )
            for each in wanted.aggregates
        ),
    )


def remarks(held: Contents, after: Contents) -> Iterator[str]:
    """Yield what whoever changed the query should know."""
    if held.version == after.version and held.source and after.source and held.source != after.source:
        yield (
            f"the code of {after.operator} was changed, its version is {after.version} as before: if the state has "
            f"another shape now, raise version and define upgrade(state, version)"
        )
    names_before, names_after = ({each.name for each in these.aggregates} for these in (held, after))
    for each in after.aggregates:
        if each.name not in names_before:
            yield f"{_shown(each)} is new: it counts rows from epoch {each.since} on"
    for each in held.aggregates:
        if each.name not in names_after:
            yield f"{_shown(each)} is no longer kept: what it came to is lost"


def _is_own(contents: Contents) -> bool:
    """Tell whether it is an operator of the user's own."""
    return not contents.aggregates


def _of_version(held: Contents, wanted: Contents) -> Iterator[Difference]:
    what = f"version of {held.operator}: was {held.version}, is {wanted.version}"
    if held.version > wanted.version:
        yield Difference(what, f"run the program with version {held.version}, an older one cannot read newer state")
    elif held.version < wanted.version and not wanted.reads_older:
        yield Difference(what, f"define upgrade(state, version) in {wanted.operator}, which reads older state")


def _of_aggregates(held: Contents, wanted: Contents) -> Iterator[Difference]:
    before = {each.name: each for each in held.aggregates}
    for each in wanted.aggregates:
        old = before.get(each.name)
        if old is None:
            continue
        if old.aggregate != each.aggregate:
            what = f"aggregate {each.name}: was {old.aggregate}, is {each.aggregate}"
            yield Difference(what, f"give {each.aggregate} a name of its own, then it starts from now on")
        elif not is_as_wide(old.kind, each.kind):
            yield Difference(
                f"values of {_shown(each)}: were {old.kind}, are {each.kind}",
                f"cast the column to {old.kind} or wider",
            )


def _of_inputs(held: Contents, wanted: Contents) -> Iterator[Difference]:
    before = dict(held.inputs)
    for name, kind in wanted.inputs:
        if name in before and not is_as_wide(before[name], kind):
            yield Difference(f"column {name}: was {before[name]}, is {kind}", f"cast {name} to {before[name]} or wider")


def is_as_wide(before: str, now: str) -> bool:
    """Tell whether a type holds all values of another one, and its sums are of the same sort."""
    if before == now:
        return True
    for ladder in _WIDER:
        if before in ladder and now in ladder:
            return ladder.index(before) < ladder.index(now)
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(now)
    if old is None or new is None:
        return False
    digits, scale, more_digits, more_scale = int(old[1]), int(old[2]), int(new[1]), int(new[2])
    return more_scale >= scale and more_digits - more_scale >= digits - scale


def _shown(held: HeldAggregate) -> str:
    return f"{held.name}={held.aggregate}"
