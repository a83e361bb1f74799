"""What goes to the log: every line with its query, lane and epoch, what people want to know, nothing per epoch."""

from __future__ import annotations

import logging
import random
import re
from pathlib import Path

import pytest

from evenflow.control.journal import Decided, Refusal, Refused
from evenflow.log import QueryLog, Slow, label_of
from evenflow.model import Balance, Move, StageUnits, UnitNames
from evenflow.spark.telling import JournalLog, shown
from tests.engine.one_process import World


def lines(caplog: pytest.LogCaptureFixture, least: int = logging.INFO) -> list[str]:
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records if record.levelno >= least]


def matching(pattern: str, told: list[str]) -> list[str]:
    return [line for line in told if re.search(pattern, line)]


def test_moves_and_losses_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "evenflow")
    world = World(tmp_path, random.Random(1), lanes=2, max_lag=1, copy_ahead=(None,))
    world.run(world.rows())
    world.finish()
    world.shell.request([(0, 1 - int(world.shell.balancer.table.owners[0]))])
    world.run(world.rows())
    world.finish()
    world.links.kill(1)
    world.run(world.rows())
    world.finish()
    world.check()
    told = lines(caplog)
    assert matching(r"^INFO query, epoch 0: 1 moves are planned: slot 0 from lane . to . \(asked for by hand\)$", told)
    assert matching(r"^INFO query, epoch 1: 1 moves take effect: slot 0 from lane ", told)
    assert matching(r"^INFO query, epoch 1: 1 moves are done, ", told)
    assert matching(r"^WARNING query, lane 1, epoch \d: lost; it is started again", told)
    assert len(matching(r"^INFO query, lane 1: process 0 on here is there$", told)) == 2
    record = next(record for record in caplog.records if "lost" in record.getMessage())
    assert record.name == "evenflow.query"
    assert [getattr(record, name) for name in ("query", "lane", "epoch")] == ["query", 1, 2]


@pytest.mark.parametrize("policy", ["static", "even"])
def test_a_quiet_query_tells_nothing_per_epoch(tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "evenflow")
    world = World(tmp_path, random.Random(2), lanes=2, policy=policy, max_lag=1)
    caplog.clear()
    for _ in range(50):
        world.run(world.rows())
    world.finish()
    moves = {"take effect", "are done", "moves in", "refused", "is there"}
    assert [line for line in lines(caplog) if not any(word in line for word in moves)] == []
    assert len(lines(caplog)) < 10
    assert len(lines(caplog, logging.DEBUG)) >= 50, "whoever wants to know all gets it"


def test_what_lasts_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "evenflow")
    tell = JournalLog(QueryLog("totals"))
    even = Balance.of([1.0, 1.0], [1.0, 1.0], [1, 1])
    move = Move(3, 0, 1, "lane 0 is full")

    def decided(epoch: int, *slots: int, moves: tuple[Move, ...] = ()) -> Decided:
        return Decided(epoch, "even", moves, len(moves), slots, even, even, 0, "one key has it all")

    for epoch in range(30):
        tell(decided(epoch, 7))
        tell(Refused(epoch, Refusal.GAIN_TOO_SMALL, (move,), f"{epoch} s"))
        tell(Refused(epoch, Refusal.COOLING_DOWN, (), f"{epoch} more"))
        tell(Refused(epoch, Refusal.BAD_PROPOSAL, (), "there is no lane 9"))
    assert [line.partition(": ")[2].partition(":")[0] for line in lines(caplog)] == [
        "refused to move slot 3 from lane 0 to 1 (lane 0 is full)",
        "refused",
        "no move can relieve slot 7",
    ]
    tell(decided(31, 7, 9, moves=(move,)))
    tell(Refused(32, Refusal.GAIN_TOO_SMALL, (move,), "after moves it is told again"))
    tell(decided(33, 9))
    for epoch in range(34, 37):
        tell(decided(epoch, 7, 9))
    assert [line.split(" ", 1)[0] for line in lines(caplog)[3:]] == ["INFO", "INFO", "WARNING", "WARNING"]
    assert "slot 9:" in lines(caplog)[5], "three decisions in a row are no chance"
    assert "slot 7:" in lines(caplog)[6], "it was cured in between"


def test_slowness_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    slow = Slow(QueryLog(label_of(None, "0123456789")), "publishing an epoch", 5.0, clock=lambda: now[0])
    for epoch in range(130):
        now[0] += 1.0
        slow.took(1.0 if epoch < 5 else 7.25, epoch)
    assert lines(caplog) == [
        f"WARNING 01234567, epoch {epoch}: publishing an epoch took 7.2 s" for epoch in (5, 65, 125)
    ]


def test_many_moves_are_one_line() -> None:
    assert shown([Move(slot, 0, 1) for slot in range(7)], UnitNames()).endswith("slot 4 from lane 0 to 1, 2 more")
    assert shown((), UnitNames()) == ""


def test_moves_of_two_stages_are_told_by_stage_and_slot() -> None:
    names = UnitNames((StageUnits(0, 8), StageUnits(8, 4, 0)))
    moves = [Move(7, 0, 1), Move(8, 0, 1, "it is full")]
    assert shown(moves, names) == "stage 0 slot 7 from lane 0 to 1, stage 1 slot 0 from lane 0 to 1"
