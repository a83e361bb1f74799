"""In which order moves are carried out: strategies cut a set of moves into steps.

A step is a set of moves that take effect together; the next begins when it is complete (LR-M8). All strategies
carry out the same moves, so all end in the same table (LR-M7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeAlias

from evenflow.errors import InputError
from evenflow.migration.matching import edge_colours
from evenflow.model import Epoch, Move, RoutingTable, SlotId
from evenflow.model.registry import build_named
from evenflow.model.signatures import takes

Step: TypeAlias = tuple[Move, ...]

DEFAULT_STRATEGY = "paced"


@dataclass(frozen=True, slots=True)
class Weights:
    """What strategies may weigh a slot by: its load (any unit) and the bytes of its state; 0 if not given.

    `seconds_per_byte` is what moving state has cost so far.
    """

    load: Mapping[SlotId, float] = field(default_factory=dict)
    state_bytes: Mapping[SlotId, int] = field(default_factory=dict)
    seconds_per_byte: float = 1e-8


class Strategy(Protocol):
    """Cuts moves into steps."""

    name: ClassVar[str]
    paper: ClassVar[str]
    summary: ClassVar[str]

    def steps(self, moves: Sequence[Move], weights: Weights) -> tuple[Step, ...]:
        """Return the steps in order; together they hold every move once."""


@dataclass(frozen=True, slots=True)
class Sudden:
    """All moves at once."""

    name: ClassVar[str] = "sudden"
    paper: ClassVar[str] = "latency-conscious reconfiguration"
    summary: ClassVar[str] = "all moves in one step: shortest in total, longest pause"

    def steps(self, moves: Sequence[Move], weights: Weights) -> tuple[Step, ...]:  # noqa: ARG002 - the interface
        """Return one step."""
        return (tuple(moves),) if moves else ()


@dataclass(frozen=True, slots=True)
class Fluid:
    """One move after the other."""

    name: ClassVar[str] = "fluid"
    paper: ClassVar[str] = "latency-conscious reconfiguration"
    summary: ClassVar[str] = "one move per step: shortest pauses, longest in total"

    def steps(self, moves: Sequence[Move], weights: Weights) -> tuple[Step, ...]:  # noqa: ARG002 - the interface
        """Return a step per move."""
        return tuple((move,) for move in moves)


@dataclass(frozen=True, slots=True)
class Batched:
    """As many moves per step as there are disjoint pairs of lanes: no lane is in two moves of a step (LR-A7)."""

    name: ClassVar[str] = "batched"
    paper: ClassVar[str] = "latency-conscious reconfiguration"
    summary: ClassVar[str] = "disjoint pairs of lanes per step: pauses of fluid, duration near sudden"

    def steps(self, moves: Sequence[Move], weights: Weights) -> tuple[Step, ...]:  # noqa: ARG002 - the interface
        """Return as many steps as the busiest lane has moves, where no lane both gives and takes."""
        colours = edge_colours([(move.source, move.target) for move in moves])
        steps: list[list[Move]] = [[] for _ in range(max(colours, default=-1) + 1)]
        for move, colour in zip(moves, colours, strict=True):
            steps[colour].append(move)
        return tuple(tuple(step) for step in steps)


@dataclass(frozen=True, slots=True)
class Paced:
    """The hottest slots first, and never more than `max_bytes_per_step` bytes in a step.

    With `max_added_latency` (seconds), a step also holds no more than can be moved in that time, by what moves have
    cost so far. A slot bigger than the bound is a step of its own: it has to move some time.
    """

    name: ClassVar[str] = "paced"
    paper: ClassVar[str] = "evenflow"
    summary: ClassVar[str] = "hottest slots first, a bound on the bytes per step; the default"

    max_bytes_per_step: int = 16 << 20
    max_added_latency: float | None = None

    def __post_init__(self) -> None:
        """Refuse a bound that lets nothing through."""
        if self.max_bytes_per_step < 1:
            raise InputError(f"paced: max_bytes_per_step must be at least 1, got {self.max_bytes_per_step}")
        if self.max_added_latency is not None and not self.max_added_latency > 0:
            raise InputError(f"paced: max_added_latency is in seconds, above 0, got {self.max_added_latency}")

    def steps(self, moves: Sequence[Move], weights: Weights) -> tuple[Step, ...]:
        """Return steps filled up to the bound, in order of falling load."""
        steps: list[list[Move]] = []
        room, most = 0, self._most_bytes(weights)
        for move in sorted(moves, key=lambda move: (-weights.load.get(move.slot, 0.0), move.slot)):
            size = weights.state_bytes.get(move.slot, 0)
            if not steps or size > room:
                steps.append([])
                room = most
            steps[-1].append(move)
            room -= size
        return tuple(tuple(step) for step in steps)

    def _most_bytes(self, weights: Weights) -> int:
        if self.max_added_latency is None or weights.seconds_per_byte <= 0:
            return self.max_bytes_per_step
        return max(1, int(min(self.max_bytes_per_step, self.max_added_latency / weights.seconds_per_byte)))


STRATEGIES: dict[str, Callable[..., Strategy]] = {
    strategy.name: strategy for strategy in (Paced, Batched, Sudden, Fluid)
}


def strategy_named(name: str, **options: Any) -> Strategy:
    """Return the strategy `name` with `options`; an unknown name or option is an error that lists the known ones."""
    return build_named("strategy", name, STRATEGIES, options)


def strategy_of(who: str, given: str | Strategy, max_added_latency: float | None = None) -> Strategy:
    """Return the strategy that a user named or made; refuse what is none. `who` stands in the message.

    `max_added_latency` is an option of `paced`, which may be given beside it.
    """
    strategy = strategy_named(given) if isinstance(given, str) else given
    expected = f"{who}: a strategy is one of {', '.join(STRATEGIES)}, or an object with a method steps(moves, weights)"
    if isinstance(strategy, type):
        raise InputError(f"{expected}, got the class {strategy.__name__} itself: call it, {strategy.__name__}()")
    if not callable(getattr(strategy, "steps", None)) or not takes(strategy.steps, 2):
        raise InputError(f"{expected}, got {strategy!r}")
    if max_added_latency is None:
        return strategy
    if not isinstance(strategy, Paced):
        name = getattr(strategy, "name", type(strategy).__name__)
        raise InputError(f"{who}: max_added_latency is for strategy 'paced', not for {name!r}; leave one of them out")
    return replace(strategy, max_added_latency=max_added_latency)


def steps_between(
    current: RoutingTable, wanted: RoutingTable, strategy: Strategy, weights: Weights | None = None
) -> tuple[Step, ...]:
    """Return the steps from one table to another; slots that stay where they are take none (LR-A2)."""
    return strategy.steps(current.difference(wanted), weights or Weights())


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """A step that must not begin before `not_before`: plans are made for future epochs (LR-M6)."""

    moves: Step
    not_before: Epoch = 0


def scheduled(steps: Sequence[Step], first_epoch: Epoch = 0, every: int = 1) -> tuple[QueuedStep, ...]:
    """Give each step its earliest epoch: the first at `first_epoch`, the others `every` epochs apart."""
    if every < 0 or first_epoch < 0:
        raise InputError(f"a plan needs epochs of 0 or more, got first_epoch={first_epoch}, every={every}")
    return tuple(QueuedStep(step, first_epoch + every * at) for at, step in enumerate(steps))
