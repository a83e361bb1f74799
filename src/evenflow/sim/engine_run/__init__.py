"""The real engine in virtual time: engine, balancer and ledger as on Spark; lanes are played, files kept in memory.

::

    source ──▶ query ──▶ Engine ──▶ query ──▶ lanes          everything that happens is on one agenda, by virtual time
               accepts    decides    carries     answer when their work, reading and writing would be done
               epochs                out

*Parts*: `agenda` (what happens when), `records` (the ledger, kept in memory), `files` (what lanes write), `prices`
(what things take), `operator` (what lanes calculate: rows counted, or a calculation of the caller's), `lane` (a lane's
answers to messages), `query` (the shell: events in, actions out), `books` (what came out, as a timeline), `scenario`
(a `Scenario` of the quantum level, run this way).

A played lane is refused what a real one refuses: to fold a slot that it does not hold, or from another version than it
has. What it loads is read from the files that the engine names, so a wrong file gives a wrong state. In the end the
rows in each slot's state are counted against those that came.
"""

from evenflow.sim.engine_run.operator import PlayedOperator, RowCounts, SlotState
from evenflow.sim.engine_run.prices import Pace, Prices
from evenflow.sim.engine_run.query import PlayedQuery, Source
from evenflow.sim.engine_run.scenario import Happenings, run_scenario
from evenflow.sim.engine_run.watching import Piece, Watcher

__all__ = [
    "Happenings",
    "Pace",
    "Piece",
    "PlayedOperator",
    "PlayedQuery",
    "Prices",
    "RowCounts",
    "SlotState",
    "Source",
    "Watcher",
    "run_scenario",
]
