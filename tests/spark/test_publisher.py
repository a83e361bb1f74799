"""The publisher with a sink or a disk that hangs: nobody else waits for it. Without Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from evenflow.lane.faults import Faults
from evenflow.log import QueryLog
from evenflow.spark.publisher import Publisher
from evenflow.state import Checkpoint, Folder
from tests.state.places import local
from tests.state.test_checkpoint import run, started
from tests.state.watched import Watched


def made(place: Path, epochs: int = 3) -> tuple[Publisher, Watched]:
    """A publisher with some epochs to publish; what it touches from now on is watched."""
    checkpoint: Checkpoint = started(place)
    run(checkpoint, range(epochs))
    changed = threading.Condition(threading.RLock())
    watched = Watched(local(place / "evenflow"), changed)
    checkpoint.folder, checkpoint.lock = Folder(watched), changed
    publisher = Publisher(
        checkpoint=checkpoint,
        sink=watched,
        progress=Mock(),
        log=QueryLog("totals"),
        faults=Faults(),
        changed=changed,
        reading=threading.Lock(),
        stop=threading.Event(),
    )
    return publisher, watched


def test_neither_the_sink_nor_a_file_is_touched_under_the_lock(tmp_path: Path) -> None:
    publisher, watched = made(tmp_path)
    told: list[tuple[int, int, bool]] = []

    def tell(epoch: int, lag: int) -> None:
        told.append((epoch, lag, publisher.checkpoint.recover().last_published == epoch))

    publisher.progress.published = tell  # type: ignore[method-assign]
    publisher.publish_ready()
    assert [call for call in watched.calls if call.startswith("sink")] == [f"sink {epoch} 2" for epoch in range(3)]
    assert len([call for call in watched.calls if call.startswith("create published/")]) == 3
    assert "delete" in watched.calls
    assert told == [(0, 2, True), (1, 1, True), (2, 0, True)], "progress and checkpoint say the same at any moment"


@pytest.mark.parametrize("hangs", ["sink", "create published/", "delete", "look for runs/"])
def test_whatever_hangs_nobody_waits_for_the_lock(tmp_path: Path, hangs: str) -> None:
    """Others can look at the checkpoint and take it further; what was hung counts when it returns."""
    publisher, watched = made(tmp_path)
    watched.hangs = hangs
    thread = threading.Thread(target=publisher.publish_ready, daemon=True)
    thread.start()
    assert watched.entered.wait(60)
    assert publisher.changed.acquire(timeout=60), "the lock is free"
    publisher.changed.release()
    assert publisher.checkpoint.frontier == 2
    watched.hangs = ""
    watched.let_go.set()
    thread.join(60)
    assert publisher.checkpoint.recover().last_published == 2


def test_what_was_given_up_does_not_count(tmp_path: Path) -> None:
    publisher, watched = made(tmp_path)
    watched.hangs = "sink 1"
    thread = threading.Thread(target=publisher.publish_ready, daemon=True)
    thread.start()
    assert watched.entered.wait(60)
    publisher.give_up(0.0)
    watched.let_go.set()
    thread.join(60)
    assert publisher.checkpoint.recover().last_published == 0
    assert [epoch for epoch, _ in started(tmp_path).recover().unpublished] == [1, 2]


def test_an_error_of_the_sink_names_the_epoch(tmp_path: Path) -> None:
    publisher, _ = made(tmp_path)
    publisher.sink = Mock(publish=Mock(side_effect=RuntimeError("no room")))
    with pytest.raises(RuntimeError, match="no room") as raised:
        publisher.publish_ready()
    notes: list[Any] = raised.value.__notes__
    assert notes == ["This was when epoch 0 was published; after a restart it is published again."]
