"""After a power cut, whatever files are gone: the query goes on with the right totals, or says exactly what is lost."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from evenflow.errors import DamagedFileError
from evenflow.state import Checkpoint, EpochRecord, Folder, SparkLog
from tests.engine.one_process import World
from tests.engine.ownership import WatchedCheckpoint
from tests.state.places import identity
from tests.state.test_checkpoint import lane_commit, rebuilt, record, run, started

FLAWS = ("missing", "cut", "emptied", "zeroed")


@dataclass
class Planned:
    """A source that can hand over everything again."""

    unknown: set[int] = field(default_factory=set)
    again: list[int] = field(default_factory=list)

    def address(self, epoch: int) -> str:
        return f"offsets/{epoch}"

    def has_planned(self, epoch: int) -> bool:
        return epoch not in self.unknown

    def hand_over_again(self, first: int) -> None:
        self.again.append(first)


def spoil(path: Path, flaw: str) -> None:
    size = path.stat().st_size
    path.unlink()
    if flaw != "missing":
        path.write_bytes({"cut": b"x" * (size // 2), "emptied": b"", "zeroed": bytes(size)}[flaw])


def accepted(place: Path, epochs: int, *, reached: int) -> Checkpoint:
    """A checkpoint of which all slots have reached one epoch, and some more are accepted."""
    checkpoint = started(place)
    run(checkpoint, range(reached + 1))
    for epoch in range(reached + 1, epochs):
        checkpoint.accept(record(checkpoint, epoch))
    return checkpoint


def block_of(checkpoint: Checkpoint, epoch: int) -> Path:
    return Path(checkpoint.folder.location) / checkpoint.pending[epoch].blocks[0].file.name


@pytest.mark.parametrize("reached", [-1, 1])
@pytest.mark.parametrize("flaw", FLAWS)
@pytest.mark.parametrize("broken", [{2}, {3}, {4}, {2, 4}, {2, 3, 4}])
def test_epochs_whose_blocks_are_gone_are_given_back(tmp_path: Path, broken: set[int], flaw: str, reached: int) -> None:
    before = accepted(tmp_path, 5, reached=reached)
    for epoch in broken:
        spoil(block_of(before, epoch), flaw)
    source, after = Planned(), Checkpoint.open(str(tmp_path), identity(), durable=False)
    after.refuse_if_lost(source)
    assert source.again == []
    (remark,) = after.take_over(source)
    first = min(broken)
    assert source.again == [first]
    assert re.search(
        rf"epochs? {first} .*given back: .*as after a power cut.* hands {5 - first} rows over again", remark
    )
    assert (after.recover().last_accepted, list(after.pending)) == (first - 1, list(range(reached + 1, first)))
    after.sweep_orphans()
    for epoch in range(first, 5):
        after.accept(record(after, epoch, attempt="again"))
    after.commit([lane_commit(after, 4, 0, range(4), attempt="again")])
    assert [rebuilt(Checkpoint.open(str(tmp_path), identity()), slot) for slot in range(4)] == [[0, 1, 2, 3, 4]] * 4


def test_a_start_that_dies_after_it_told_the_source_gives_back_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(block_of(accepted(tmp_path, 4, reached=1), 3), "missing")
    source, dying = Planned(), Checkpoint.open(str(tmp_path), identity(), durable=False)
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write_json", raise_if_a_record(Folder.write_json))
        with pytest.raises(KeyboardInterrupt):
            dying.take_over(source)
    after = Checkpoint.open(str(tmp_path), identity(), durable=False)
    after.take_over(source)
    assert (source.again, after.recover().last_accepted) == ([3, 3], 2)


def raise_if_a_record(write: Any) -> Any:
    def write_json(folder: Folder, name: str, *args: Any, **how: Any) -> Any:
        if name.startswith("epochs/"):
            raise KeyboardInterrupt
        return write(folder, name, *args, **how)

    return write_json


@pytest.mark.parametrize("flaw", FLAWS)
def test_what_a_slot_has_passed_cannot_be_given_back(tmp_path: Path, flaw: str) -> None:
    before = accepted(tmp_path, 4, reached=1)
    before.commit([lane_commit(before, 2, 1, {2, 3})])
    spoil(block_of(before, 2), flaw)
    left = sorted(path for path in tmp_path.rglob("*"))
    after = Checkpoint.open(str(tmp_path), identity(), durable=False)
    said = (
        r"blocks/000000000002-.* is damaged .*as after a power cut. 2 of 4 slots have committed epoch 2 already, so "
        r"that Spark cannot hand it over again; 1 rows of epoch 2 are lost, .*new checkpoint location.*Nothing was"
    )
    with pytest.raises(DamagedFileError, match=said):
        after.refuse_if_lost(Planned())
    assert sorted(path for path in tmp_path.rglob("*")) == left


def test_a_block_that_nobody_needs_any_more_may_be_gone(tmp_path: Path) -> None:
    before = accepted(tmp_path, 4, reached=1)
    before.commit([lane_commit(before, 2, 0, {0, 1, 2})])  # the only row of the block is one of slot 0
    spoil(block_of(before, 2), "missing")
    after = Checkpoint.open(str(tmp_path), identity(), durable=False)
    assert after.take_over(Planned()) == []


def test_epochs_that_spark_does_not_know_are_given_back_or_refused(tmp_path: Path) -> None:
    accepted(tmp_path, 4, reached=1)
    looking = Checkpoint.open(str(tmp_path), identity(), durable=False)
    with pytest.raises(DamagedFileError, match=r"epoch 1 was accepted, but Spark's own part .*offsets/1 is missing"):
        looking.refuse_if_lost(Planned(unknown={1, 2, 3}))
    source = Planned(unknown={3})
    (remark,) = looking.take_over(source)
    assert "epoch 3 is given back: Spark's offsets/3 is missing" in remark
    assert source.again == [3]


def test_sparks_log_is_cut_so_that_it_hands_over_again(tmp_path: Path) -> None:
    def left() -> dict[str, list[str]]:
        return {kind: sorted(path.name for path in (tmp_path / kind).iterdir()) for kind in ("offsets", "commits")}

    for kind, count in (("offsets", 5), ("commits", 4)):
        (tmp_path / kind).mkdir()
        for number in range(count):
            (tmp_path / kind / str(number)).write_text("v1\n{}\n{}")
            (tmp_path / kind / f".{number}.crc").write_text("sum")
    log = SparkLog.at(str(tmp_path))
    assert [log.has_planned(number) for number in (0, 4, 5)] == [True, True, False]
    for _ in range(2):
        log.hand_over_again(2)
        assert left() == {
            "offsets": [".0.crc", ".1.crc", ".2.crc", "0", "1", "2"],
            "commits": [".0.crc", ".1.crc", "0", "1"],
        }
    (tmp_path / "offsets" / "2").write_text("")
    assert not log.has_planned(2)
    log.hand_over_again(2)
    assert left()["offsets"] == [".0.crc", ".1.crc", "0", "1"]


@pytest.mark.parametrize("seed", range(12))
def test_the_totals_are_right_or_the_loss_is_named(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query in the middle of its life loses its process and some of its blocks; Spark replays what is given back."""
    rng, source = random.Random(seed), Planned()

    def take_over(self: WatchedCheckpoint, _: object = None) -> list[str]:
        return Checkpoint.take_over(self, source)

    monkeypatch.setattr(WatchedCheckpoint, "take_over", take_over)
    world = World(tmp_path, rng, lanes=3, max_lag=3)
    batches: list[pa.Table] = []
    for epoch in range(12):
        batches.append(world.rows())
        if epoch % 3 == 0:
            world.ask_for_moves()
        world.run(batches[-1])
    pending: list[EpochRecord] = world.shell.checkpoint.recover().pending
    blocks = [(each.epoch, block.file.name) for each in pending for block in each.blocks]
    for _, name in rng.sample(blocks, min(len(blocks), rng.randint(1, 3))):
        spoil(tmp_path / "evenflow" / name, rng.choice(FLAWS))
    try:
        world.restart()
    except DamagedFileError as error:
        said = str(error)
        assert re.search(r"slots have committed epoch \d+ already.*\d+ rows of epoch \d+ are lost", said)
        return
    for epoch in range(source.again[0] if source.again else 12, 12):
        world.shell.on_batch(cast("Any", batches[epoch]), epoch)
    world.finish()
    world.check()
