"""Policies by name."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from evenflow.model import LoadView
from evenflow.model.registry import build_named
from evenflow.policies.autoflow import AutoFlow
from evenflow.policies.base import Proposal
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
