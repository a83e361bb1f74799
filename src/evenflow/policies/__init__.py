"""Which slots should move where: pure functions from a load view to proposed moves."""

from evenflow.policies.base import Policy, Proposal, proposal_of, starting_table
from evenflow.policies.registry import DEFAULT_POLICY, POLICIES, policy_named, policy_of

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "Policy",
    "Proposal",
    "policy_named",
    "policy_of",
    "proposal_of",
    "starting_table",
]
