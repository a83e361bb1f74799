"""DPA's consistent-hashing ring and its two policies: halve the tokens of one lane, or double all others'.

Readings: token text ``{i}-{j}`` by default, as only that reproduces Table 1 (DP-A1); a minimum queue length
as an option (A2); the maximum over all lanes is tested, since a view holds them all, and `overloaded` can
also test a single reporter (A3); lanes never heard of count as 0 (A4); halving at 1 token does nothing and
says so (A12); equal hashes go to the lower node, a key that hits a token goes to the next one (A13); exactly
the allowed rounds are used (M11).

A slot is hashed as its decimal number. The ring is not known to anybody else, so a table may differ from it: a query
may start with any table, a restart forgets the ring, moves are refused or made by hand. A slot that lies elsewhere than
the ring has it stays there until its lane is overloaded; then it goes where the ring has it, together with those that
the change of the ring takes away. On the ring's own table (`initial_table`) these are the rounds of the paper.
Lanes that come join the ring with the initial tokens and claim their slots at once (DP-F1), lanes that go
leave it; a call that finds other lanes does nothing else, for its queues tell nothing about the new ring.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from evenflow.errors import InputError
from evenflow.model import LaneId, LoadView, Move, RoutingTable, SlotId
from evenflow.model.slots import BoolArray, IntArray
from evenflow.policies.base import Proposal
from evenflow.policies.murmur import murmur3

TOKEN_TEXT = "{i}-{j}"  # noqa: S105 - a place on a ring, not a secret
SEED = 1


@dataclass(frozen=True, slots=True)
class Ring:
    """An immutable ring: each node has tokens 0 to T-1, a key goes to the first token clockwise of its hash.

    `tokens` are pairs (node, T). Positions are 32-bit x86 Murmur3 hashes, signed.
    """

    tokens: tuple[tuple[LaneId, int], ...]
    token_text: str = TOKEN_TEXT
    seed: int = SEED

    def __post_init__(self) -> None:
        """Sort the nodes; refuse rings that own nothing and texts that make tokens equal."""
        tokens = tuple(sorted(self.tokens))
        if not tokens:
            raise InputError("a ring needs at least 1 node, got none")
        if len(dict(tokens)) != len(tokens):
            raise InputError(f"a ring names each node once, got {list(self.nodes)}")
        if any(count < 1 for _, count in tokens):
            raise InputError(f"a ring needs at least 1 token per node, got {dict(tokens)}")
        _refuse_bad_hashing("a ring", self.token_text, self.seed)
        object.__setattr__(self, "tokens", tokens)

    @classmethod
    def even(cls, nodes: Iterable[LaneId], tokens: int, token_text: str = TOKEN_TEXT, seed: int = SEED) -> Ring:
        """Return the ring on which every node has the same number of tokens."""
        return cls(tuple((node, tokens) for node in nodes), token_text, seed)

    @property
    def nodes(self) -> tuple[LaneId, ...]:
        """The nodes, ascending."""
        return tuple(node for node, _ in self.tokens)

    @property
    def counts(self) -> dict[LaneId, int]:
        """The number of tokens of each node."""
        return dict(self.tokens)

    def halved(self, node: LaneId) -> Ring:
        """Return the ring without the upper half of the node's tokens; the last token stays (DP-A12)."""
        self._refuse_stranger(node)
        return self._with({node: max(1, self.counts[node] // 2)})

    def doubled(self, node: LaneId, limit: int | None = None) -> Ring:
        """Return the ring with twice the tokens for all nodes but this one, up to `limit` each."""
        self._refuse_stranger(node)
        return self._with(
            {
                other: 2 * count if limit is None else max(count, min(2 * count, limit))
                for other, count in self.tokens
                if other != node
            }
        )

    def joined(self, nodes: Collection[LaneId], tokens: int) -> Ring:
        """Return the ring of exactly these nodes: those it had keep their tokens, new ones get `tokens`."""
        counts = self.counts
        return replace(self, tokens=tuple((node, counts.get(node, tokens)) for node in nodes))

    def lookup(self, key: str) -> LaneId:
        """Return the node of a key."""
        return int(self.owners([key])[0])

    def owners(self, keys: Iterable[str]) -> IntArray:
        """Return the node of each key, in O(log T) each."""
        return self._owners_at(murmur3(keys, self.seed))

    def slot_owners(self, slots: int) -> IntArray:
        """Return the node of each slot."""
        return self._owners_at(slot_positions(slots, self.seed))

    def table(self, slots: int) -> RoutingTable:
        """Return the routing table that puts every slot where the ring has it."""
        return RoutingTable(self.slot_owners(slots), self.nodes)

    def _owners_at(self, positions: IntArray) -> IntArray:
        token_positions, token_nodes = _circle(self)
        following = np.searchsorted(token_positions, positions, side="right")
        return token_nodes[following % token_nodes.size]

    def _with(self, counts: Mapping[LaneId, int]) -> Ring:
        return replace(self, tokens=tuple({**self.counts, **counts}.items()))

    def _refuse_stranger(self, node: LaneId) -> None:
        if node not in self.counts:
            raise InputError(f"node {node} is not on the ring; its nodes are {list(self.nodes)}")


@dataclass(frozen=True, slots=True)
class RingMemory:
    """What the policies remember: the ring, and how often it was changed for the sake of each lane."""

    ring: Ring
    rounds: tuple[tuple[LaneId, int], ...] = ()

    def after_round(self, lane: LaneId, ring: Ring) -> RingMemory:
        """Return the memory after one more round for `lane`."""
        rounds = dict(self.rounds)
        rounds[lane] = rounds.get(lane, 0) + 1
        return RingMemory(ring, tuple(sorted(rounds.items())))


def overloaded(
    queues: Mapping[LaneId, int], tau: float, reporter: LaneId | None = None, min_queue: int = 0
) -> LaneId | None:
    """Return the lane whose queue exceeds all others by more than `tau` (equation 1), None if there is none.

    With a `reporter`, only that lane is tested (DP-A3). Lanes that are left out count as empty (A4).
    """
    if not queues and reporter is None:
        return None
    tested = max(sorted(queues), key=lambda lane: queues[lane]) if reporter is None else reporter
    longest = queues.get(tested, 0)
    second = max((length for lane, length in queues.items() if lane != tested), default=0)
    return tested if longest > second * (1 + tau) and longest >= min_queue else None


@dataclass(frozen=True, slots=True)
class _RingPolicy(ABC):
    """The queue-length policy of section 4.1; how the ring changes is the subclass's business."""

    name: ClassVar[str]
    paper: ClassVar[str] = "DPA load balancer"

    tokens: int = 1
    tau: float = 0.2
    min_queue: int = 0
    rounds_per_lane: int | None = None
    rounds_total: int | None = None
    token_text: str = TOKEN_TEXT
    seed: int = SEED

    def __post_init__(self) -> None:
        """Refuse options that make no ring or no test."""
        if self.tokens < 1:
            raise InputError(f"{self.name}: tokens must be at least 1, got {self.tokens}")
        if not 0 <= self.tau < float("inf"):
            raise InputError(f"{self.name}: tau must be 0 or more, got {self.tau}")
        for option in ("min_queue", "rounds_per_lane", "rounds_total"):
            value = getattr(self, option)
            if value is not None and value < 0:
                raise InputError(f"{self.name}: {option} must be 0 or more, got {value}")
        _refuse_bad_hashing(self.name, self.token_text, self.seed)

    @abstractmethod
    def redistribute(self, ring: Ring, lane: LaneId) -> Ring:
        """Return the ring that relieves `lane`, the same ring if nothing is left to do."""

    @abstractmethod
    def exhausted(self, lane: LaneId) -> str:
        """Say why nothing is left to do for `lane`."""

    def initial_ring(self, lanes: Iterable[LaneId]) -> Ring:
        """Return the ring that the policy starts from."""
        return Ring.even(lanes, self.tokens, self.token_text, self.seed)

    def initial_table(self, slots: int, lanes: Iterable[LaneId]) -> RoutingTable:
        """Return the routing table that a query balanced by this policy starts with."""
        return self.initial_ring(lanes).table(slots)

    def propose(self, view: LoadView) -> Proposal:
        """Test equation 1 on the newest queues, and let the slots follow the ring."""
        lanes = view.table.lanes
        memory = view.memory if isinstance(view.memory, RingMemory) else RingMemory(self.initial_ring(lanes))
        if memory.ring.nodes != lanes:
            return self._admit(view, memory)
        if len(lanes) == 1:
            return Proposal(memory=memory, note="there is only one lane")
        queues = {load.lane: load.queue for load in view.last.lanes}
        lane = overloaded(queues, self.tau, min_queue=self.min_queue)
        if lane is None:
            return Proposal(memory=memory, note="no queue exceeds all others by more than tau")
        return self._relieve(view, memory, lane, queues[lane])

    def _admit(self, view: LoadView, memory: RingMemory) -> Proposal:
        """Adapt the ring to the lanes that there are now."""
        ring = memory.ring.joined(view.table.lanes, self.tokens)
        reason = f"the ring now has lanes {', '.join(map(str, ring.nodes))}"
        came = [lane for lane in ring.nodes if lane not in memory.ring.counts]
        claimed = np.isin(ring.slot_owners(view.table.slots), came)
        return Proposal(
            _moves_to(view.table, ring, claimed, reason),
            memory=replace(memory, ring=ring),
            note=reason,
        )

    def _relieve(self, view: LoadView, memory: RingMemory, lane: LaneId, queue: int) -> Proposal:
        """Change the ring for the sake of `lane`, if it may still be changed."""
        not_curable = _hot_slot(view, lane, queue)
        ring = memory.ring if self._used_up(memory, lane) else self.redistribute(memory.ring, lane)
        owners = view.table.owners
        free = (owners == memory.ring.slot_owners(owners.size)) | (owners == lane)
        reason = f"lane {lane} has {queue} records waiting, more than {1 + self.tau:g} times any other"
        moves = _moves_to(view.table, ring, free, reason)
        if ring == memory.ring:
            why = "its rounds are used up" if self._used_up(memory, lane) else self.exhausted(lane)
            note = f"lane {lane} is overloaded, with {queue} records waiting, but {why}"
            return Proposal(moves, not_curable=not_curable, memory=memory, note=note)
        return Proposal(moves, not_curable=not_curable, memory=memory.after_round(lane, ring), note=reason)

    def _used_up(self, memory: RingMemory, lane: LaneId) -> bool:
        rounds = dict(memory.rounds)
        own, total = rounds.get(lane, 0), sum(rounds.values())
        return (self.rounds_per_lane is not None and own >= self.rounds_per_lane) or (
            self.rounds_total is not None and total >= self.rounds_total
        )


@dataclass(frozen=True, slots=True)
class DpaHalving(_RingPolicy):
    """Take half of the tokens from the lane with the longest queue: only its slots move, none to it."""

    name: ClassVar[str] = "dpa-halving"
    summary: ClassVar[str] = "halves the ring tokens of the lane with the longest queue"

    tokens: int = 64

    def redistribute(self, ring: Ring, lane: LaneId) -> Ring:
        """Halve the tokens of `lane`."""
        return ring.halved(lane)

    def exhausted(self, lane: LaneId) -> str:
        """Say that one token cannot be halved."""
        return f"lane {lane} has run out of halving: it is down to 1 token"


@dataclass(frozen=True, slots=True)
class DpaDoubling(_RingPolicy):
    """Double the tokens of all lanes but the one with the longest queue: slots move among the others as well.

    The paper sets no bound. On a load that no ring can even out, doubling would go on for ever and the ring
    would grow without end; no node gets more than `max_tokens`.
    """

    name: ClassVar[str] = "dpa-doubling"
    summary: ClassVar[str] = "doubles the ring tokens of all lanes but the one with the longest queue"

    max_tokens: int = 1024

    def __post_init__(self) -> None:
        """Refuse a bound below the start, too."""
        _RingPolicy.__post_init__(self)  # bare super() does not know a class rebuilt with slots
        if self.max_tokens < self.tokens:
            raise InputError(f"{self.name}: max_tokens must be at least tokens ({self.tokens}), got {self.max_tokens}")

    def redistribute(self, ring: Ring, lane: LaneId) -> Ring:
        """Double the tokens of all lanes but `lane`."""
        return ring.doubled(lane, self.max_tokens)

    def exhausted(self, lane: LaneId) -> str:
        """Say that the bound is reached."""
        return f"every lane but {lane} has reached {self.max_tokens} tokens"


@lru_cache(maxsize=8)
def slot_positions(slots: int, seed: int = SEED) -> IntArray:
    """Return the place of each slot on the ring, read-only; kept, because every decision needs them twice."""
    positions = murmur3(map(str, range(slots)), seed)
    positions.setflags(write=False)
    return positions


@lru_cache(maxsize=64)
def _circle(ring: Ring) -> tuple[IntArray, npt.NDArray[np.int64]]:
    """Return the positions of all tokens, ascending, and the node of each; equal ones by node (DP-A13)."""
    nodes = np.repeat(ring.nodes, list(ring.counts.values())).astype(np.int64)
    texts = (ring.token_text.format(i=node, j=j) for node, count in ring.tokens for j in range(count))
    positions = murmur3(texts, ring.seed)
    order = np.lexsort((nodes, positions))
    return positions[order], nodes[order]


def _moves_to(table: RoutingTable, ring: Ring, free: BoolArray, reason: str) -> tuple[Move, ...]:
    """Return the moves that bring the `free` slots where the ring has them."""
    sources, targets = table.owners, ring.slot_owners(table.slots)
    slots = np.flatnonzero(free & (sources != targets))
    return tuple(
        Move(slot, source, target, reason)
        for slot, source, target in zip(slots.tolist(), sources[slots].tolist(), targets[slots].tolist(), strict=True)
    )


def _hot_slot(view: LoadView, lane: LaneId, queue: int) -> tuple[SlotId, ...]:
    """Return the slot that holds more than half of the lane's queue: it takes it along wherever it goes."""
    slots = view.table.slots_of(lane)
    return tuple(slots[2 * view.last.slots.pending[slots] > queue].tolist())


def _refuse_bad_hashing(who: str, token_text: str, seed: int) -> None:
    try:
        texts = {token_text.format(i=i, j=j) for i, j in ((1, 1), (1, 2), (2, 1))}
    except (KeyError, IndexError, ValueError) as error:
        raise InputError(f"{who}: token_text may hold {{i}} and {{j}} only, got {token_text!r}") from error
    if len(texts) < 3:  # noqa: PLR2004 - the three tokens above
        raise InputError(f"{who}: token_text must hold both {{i}} and {{j}}, got {token_text!r}")
    if not 0 <= seed < 2**32:
        raise InputError(f"{who}: seed must be a 32-bit number from 0, got {seed}")
