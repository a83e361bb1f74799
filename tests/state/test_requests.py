"""What a checkpoint costs on a store that is paid by the request: a few objects per lane and epoch, and no listing."""

from __future__ import annotations

import queue
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from evenflow.engine import Event
from evenflow.model import Move, RoutingTable
from evenflow.spark.route import Routed
from evenflow.state import Storage, files, storage_at
from evenflow.state.storage import Write
from tests.engine.calculations import SCHEMA, SLOTS, slot_of
from tests.engine.one_process import Source, World

LANES = 4
EPOCHS = 60


@dataclass
class Counted:
    """A storage that notes what is asked of it; to remove many files is one request."""

    below: Storage
    asked: list[tuple[str, str]]

    @property
    def location(self) -> str:
        return self.below.location

    def address(self, name: str) -> str:
        return self.below.address(name)

    @contextmanager
    def create(self, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        self.asked.append(("create", name))
        with self.below.create(name, exclusive=exclusive) as write:
            yield write

    def settle(self, folders: Iterable[str]) -> None:
        self.below.settle(folders)

    def open(self, name: str) -> pa.NativeFile:
        self.asked.append(("open", name))
        return self.below.open(name)

    def names(self, folder: str) -> list[str]:
        self.asked.append(("list", folder))
        return self.below.names(folder)

    def exists(self, name: str) -> bool:
        self.asked.append(("exists", name))
        return self.below.exists(name)

    def delete(self, names: Sequence[str]) -> None:
        self.asked.append(("delete", ""))
        self.below.delete(names)


@dataclass
class OnePerLane(Source):
    """A router that writes one block for each lane, as the shuffle exchange does."""

    def route(self, rows: pa.Table, epoch: int, table: RoutingTable) -> Routed:
        owners = table.owners[[slot_of(key) for key in rows["key"].to_pylist()]]
        parts = ((lane, rows.filter(pa.array(owners == lane))) for lane in table.lanes)
        return Routed(tuple(self._block(part, epoch, table, lane) for lane, part in parts if part.num_rows), ())


@dataclass
class Query:
    """A query of which every epoch has rows for every slot, and whose lanes' answers are committed together."""

    world: World
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    def __post_init__(self) -> None:
        shell = self.world.shell
        shell.intake.router = cast("Any", OnePerLane(shell.config.location, self.rng))
        shell._gathered = self.gathered  # type: ignore[method-assign]

    def gathered(self) -> list[Event]:
        events: list[Event] = []
        self.world.links.may_rest = True
        try:
            while True:
                events.append(self.world.links.get(timeout=60.0))
        except queue.Empty:
            return events

    def run(self) -> None:
        keys, epoch = list(range(3 * SLOTS)), self.world.epoch
        values = [1000 * epoch + at for at in range(len(keys))]
        self.world.run(pa.table([pa.array(keys, pa.int64()), pa.array(values, pa.int64())], schema=SCHEMA))
        self.world.shell.drain()

    def move(self) -> None:
        table = self.world.shell.balancer.table
        slots = self.rng.sample(range(SLOTS), 3)
        ways = [(slot, int(table.owners[slot])) for slot in slots]
        self.world.shell.request([Move(slot, lane, (lane + 1) % LANES) for slot, lane in ways])


def test_a_few_requests_per_lane_and_epoch_and_no_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def counted(location: str, *, durable: Any = True) -> Counted:
        return Counted(storage_at(location, durable=durable), asked)

    monkeypatch.setattr(files, "storage_at", counted)
    query = Query(World(tmp_path, random.Random(5), lanes=LANES, strategies=("sudden",), copy_ahead=(None,)))
    for _ in range(5):
        query.run()  # a start looks around; so does the first epoch after the first
    asked.clear()
    for epoch in range(EPOCHS):
        moves = epoch % 4 == 0
        if moves:
            query.move()
        before = len(asked)
        query.run()
        works = sum(what == "create" and name.startswith("work/") for what, name in asked[before:])
        # What has moved is folded when it has arrived, for itself.
        assert works <= LANES + 3 * moves, "one file per lane and epoch"
    kinds = Counter(what for what, _ in asked)
    assert kinds["list"] == 0
    assert sum(kinds.values()) <= (5 * LANES + 10) * EPOCHS
    commits = sum(what == "create" and name.startswith("commits/") for what, name in asked)
    moving = EPOCHS // 4
    assert commits <= EPOCHS + moving, "one record for all lanes that have answered together"
    query.world.finish()
    query.world.check()
