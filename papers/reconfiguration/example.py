"""LR-E4: the dog and the cat of section 2.3, replayed word for word at message level."""

from __future__ import annotations

from papers.experiment import Check, Experiment, Outcome, Settings
from papers.reconfiguration.protocol import Reconfigurable, example_of_2_3
from papers.reconfiguration.rules import E4 as RULE
from papers.reconfiguration.rules import EXACTLY

_MOVED = [(150, "dog", 0, 1, 10), (200, "cat", 0, 1, 5)]
_APPLIED = [(100, "dog", 0), (100, "cat", 0), (200, "dog", 1), (200, "cat", 1)]


def run_e4(settings: Settings) -> Outcome:
    """Replay the example and compare what every step leaves behind."""
    system, course = Reconfigurable(2), []
    for arrival in example_of_2_3():
        system.take(arrival)
        course.append({"arrival": str(arrival), "states": [dict(state) for state in system.states]})
    system.finish()
    moved = [(one.time, str(one.key), one.source, one.target, one.state) for one in system.moved]
    applied = [(one.datum.time, str(one.datum.key), one.worker) for one in system.applied]
    at_100 = [one for one in applied if one[0] == 100]  # noqa: PLR2004 - the paper's timestamp
    checks = (
        _exactly("data at 100 are applied on worker 0", _APPLIED[:2], at_100),
        _exactly("state that moves, as (time, key, from, to, state)", _MOVED, moved),
        _exactly("all data, as (time, key, worker)", _APPLIED, applied),
        _exactly("workers at the end", [{}, {"dog": 23, "cat": 28}], [dict(state) for state in system.states]),
    )
    return Outcome(checks, data={"course": course, "moved": moved, "applied": applied}, seeds=(settings.seed,))


def _exactly(what: str, published: object, ours: object) -> Check:
    return EXACTLY.check((ours, published), str(published), str(ours), "the protocol differs from the text", what)


E4 = Experiment("LR-E4", "2.3", "The dog and cat example", RULE, run_e4)
