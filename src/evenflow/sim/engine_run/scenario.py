"""A scenario of the quantum level, run by the real engine: the same arrivals, speeds and prices, row by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from evenflow.control import Balancer
from evenflow.errors import InputError, ProtocolError
from evenflow.model import Epoch, LaneId
from evenflow.model.slots import FloatArray, IntArray
from evenflow.sim.engine_run.books import Books
from evenflow.sim.engine_run.operator import RowCounts
from evenflow.sim.engine_run.prices import Prices, SpeedsInSteps
from evenflow.sim.engine_run.query import PlayedQuery
from evenflow.sim.quantum.handover import Way
from evenflow.sim.quantum.scenario import Scenario
from evenflow.sim.quantum.timeline import Timeline

_WAYS = {Way.AT_ONCE: "at once", Way.AT_TIMESTAMP: "at the timestamp"}


@dataclass(frozen=True, slots=True)
class Happenings:
    """What happens beside what the scenario says: lanes that are started, when and how many, and lanes that die.

    `max_lag` bounds how many epochs may be accepted and not be finished; None for no bound.
    """

    lanes_at: tuple[tuple[float, int], ...] = ()
    kills_at: tuple[tuple[float, LaneId], ...] = ()
    max_lag: int | None = None


def run_scenario(
    scenario: Scenario, balancer: Balancer, seed: int = 1, happenings: Happenings | None = None
) -> Timeline:
    """Run it; the same seed gives the same timeline, of the arrivals that `quantum.simulate` draws with it."""
    happens = happenings or Happenings()
    query, books = query_of(scenario, balancer, seed, happens.max_lag)
    for at_s, count in happens.lanes_at:
        query.agenda.at(at_s, partial(query.add_lanes, count))
    for at_s, lane in happens.kills_at:
        query.agenda.at(at_s, partial(query.kill, lane))
    row_s = scenario.epoch_s * scenario.row_epochs
    query.start()
    for row in range(scenario.steps // (scenario.epoch_steps * scenario.row_epochs)):
        query.run((row + 1) * row_s)
        books.end_row(query)
    refuse_if_lost(query)
    return books.timeline(query, row_s)


def query_of(
    scenario: Scenario, balancer: Balancer, seed: int, max_lag: int | None = None
) -> tuple[PlayedQuery, Books]:
    """Return the query of a scenario before it starts, and the books of what it comes to."""
    _refuse_what_is_not_played(scenario)
    books, handover, network = Books(scenario.slots), scenario.handover, scenario.network
    query = PlayedQuery(
        balancer,
        Drawn(scenario, np.random.default_rng(seed)),
        RowCounts(scenario.per_slot("seconds_per_record"), scenario.per_slot("state_bytes")),
        epoch_s=scenario.epoch_s,
        handover="at once" if handover.way is Way.AT_ONCE else "at the timestamp",
        max_lag=max_lag,
        prices=Prices(
            handover.extract_s,
            handover.extract_s_per_byte,
            handover.install_s,
            handover.install_s_per_byte,
            transfer_s=network.latency_s,
            transfer_s_per_byte=1 / network.point_to_point,
            shared_s_per_byte=1 / network.cross_section,
            start_s=scenario.lane_start_s,
        ),
        pace=SpeedsInSteps(scenario.speeds, scenario.step_s),
        watcher=books,
    )
    books.hears(query)
    return query, books


def refuse_if_lost(query: PlayedQuery) -> None:
    """Raise if the state of a slot does not hold the rows that came up to its version: all of them, each once."""
    source = query.source
    if not isinstance(source, Drawn):
        raise TypeError(f"the rows of {type(source).__name__} were not counted as they came")
    for lane in query.lanes.values():
        for slot, held in lane.held.items():
            came, folded = source.rows_up_to(slot, held.version), RowCounts.rows_in(held.state)
            if came != folded:
                raise ProtocolError(
                    f"lane {lane.lane}: slot {slot} is at epoch {held.version}, up to which {came} rows came; "
                    f"{folded} were folded"
                )


@dataclass
class Drawn:
    """The rows of a scenario, drawn step by step as the quantum level draws them."""

    scenario: Scenario
    rng: np.random.Generator
    _step: int = 0
    _rest: FloatArray = field(init=False)  # parts of rows that have not become a whole one
    _epochs: list[IntArray] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with nothing drawn."""
        self._rest = np.zeros(self.scenario.slots)

    def take(self, epoch: Epoch, since_s: float, until_s: float) -> IntArray:  # noqa: ARG002 - the interface
        """Draw the steps up to a moment."""
        scenario, came = self.scenario, self._rest
        while (self._step + 1) * scenario.step_s <= until_s + scenario.step_s * 1e-6:
            expected = scenario.arrivals.rates(self._step * scenario.step_s) * scenario.step_s
            came = came + (self.rng.poisson(expected) if scenario.poisson else expected)
            self._step += 1
        whole = np.floor(came + 1e-9)
        self._rest = came - whole
        rows: IntArray = whole.astype(np.int64)
        self._epochs.append(rows)
        return rows

    def rows_up_to(self, slot: int, epoch: Epoch) -> int:
        """Return how many rows of a slot came up to an epoch."""
        return int(sum(rows[slot] for rows in self._epochs[: epoch + 1]))


def _refuse_what_is_not_played(scenario: Scenario) -> None:
    """Refuse what only the quantum level can do."""
    if scenario.handover.way not in _WAYS:
        raise InputError(
            f"the real engine hands over {' or '.join(map(repr, _WAYS.values()))}, "
            f"not {scenario.handover.way.value!r}; choose one of these, or the engine 'quantum'"
        )
    known = {
        "flow": scenario.flow is not None,
        "memory": scenario.memory is not None,
        "queue_records": scenario.queue_records is not None,
        "important": scenario.important is not None,
        "stretch": scenario.stretch,
        "stateless": scenario.stateless,
        "streams": scenario.handover.streams,
    }
    asked = [name for name, given in known.items() if given]
    if asked:
        raise InputError(f"the real engine does not play {', '.join(asked)}; leave it out, or use the engine 'quantum'")
