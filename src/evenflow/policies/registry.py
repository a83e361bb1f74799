"""Policies by name."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from evenflow.errors import InputError
from evenflow.model import LoadView
from evenflow.model.registry import build_named
from evenflow.model.signatures import takes
from evenflow.policies.autoflow import AutoFlow
from evenflow.policies.base import Policy, Proposal
from evenflow.policies.choices import Pkg, Uhlb, UhlbFresh
from evenflow.policies.clb import Clb, ClbMoment
from evenflow.policies.elb import Elb
from evenflow.policies.even import Even
from evenflow.policies.flux import FluxHybrid, FluxLoad, FluxMemory
from evenflow.policies.ring import DpaDoubling, DpaHalving
from evenflow.policies.static import Static

DEFAULT_POLICY = "even"


class NamedPolicy(Protocol):
    """A policy that comes with evenflow: it has a name, a source and a line about itself."""

    name: ClassVar[str]
    paper: ClassVar[str]
    summary: ClassVar[str]

    def propose(self, view: LoadView) -> Proposal:
        """See `Policy`."""


POLICIES: dict[str, type[NamedPolicy]] = {
    policy.name: policy
    for policy in (
        Even,
        Static,
        AutoFlow,
        FluxLoad,
        FluxMemory,
        FluxHybrid,
        Elb,
        Clb,
        ClbMoment,
        DpaHalving,
        DpaDoubling,
        Pkg,
        Uhlb,
        UhlbFresh,
    )
}


def policy_named(name: str, **options: Any) -> NamedPolicy:
    """Return the policy `name` with `options`; an unknown name or option is an error that lists the known ones."""
    return build_named("policy", name, POLICIES, options)


def policy_of(who: str, given: str | Policy) -> Policy:
    """Return the policy that a user named or made; refuse what cannot be asked. `who` stands in the message."""
    if isinstance(given, str):
        return policy_named(given)
    expected = f"{who}: a policy is a name, such as {DEFAULT_POLICY!r}, or an object with a method propose(view)"
    if isinstance(given, type):
        raise InputError(f"{expected}, got the class {given.__name__} itself: call it, {given.__name__}()")
    if not callable(getattr(given, "propose", None)):
        bare = ": make it the method propose of a class" if callable(given) else ""
        raise InputError(f"{expected}, got {given!r}{bare}")
    if not takes(given.propose, 1):
        raise InputError(f"{expected}; {type(given).__name__}.propose cannot be called with one argument, the view")
    return given
