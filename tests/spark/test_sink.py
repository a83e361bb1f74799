"""Files of an epoch that is published twice, by two drivers of which each knows nothing of the other. Without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenflow.spark.sink import DeltaSink, FileSink, ParquetSink
from evenflow.state import Folder, output_name


@dataclass
class Frame:
    """As much of a DataFrame as is needed: it writes a file per part, and then lets something happen."""

    parts: list[str]
    then: Callable[[], object] = lambda: None

    @property
    def write(self) -> Frame:
        return self

    def format(self, _kind: str) -> Frame:
        return self

    def options(self, **_: str) -> Frame:
        return self

    def save(self, path: str) -> None:
        Path(path).mkdir(parents=True)
        (Path(path) / "_SUCCESS").touch()
        for number, part in enumerate(self.parts):
            (Path(path) / f"part-{number:05d}-{uuid.uuid4()}-c000.json").write_text(part)
        self.then()


def publish(place: Path, epoch: int, *parts: str, then: Callable[[], object] = lambda: None) -> None:
    FileSink("json", str(place))(cast("Any", Frame(list(parts), then)), epoch)


def published(place: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in place.iterdir() if path.is_file()}


def test_a_second_time_replaces_the_first(tmp_path: Path) -> None:
    publish(tmp_path, 0, "a")
    publish(tmp_path, 1, "b", "c")
    before = published(tmp_path)
    assert sorted(before.values()) == ["a", "b", "c"]
    publish(tmp_path, 1, "b", "c")
    assert published(tmp_path) == before
    publish(tmp_path, 1, "bc")
    assert sorted(published(tmp_path).values()) == ["a", "bc"]
    assert list((tmp_path / "_evenflow").iterdir()) == []


def test_another_driver_has_published_the_epoch_meanwhile(tmp_path: Path) -> None:
    """The slow one finds its own files, and at no moment are those of the quick one gone."""
    publish(tmp_path, 4, "x", "y", then=lambda: publish(tmp_path, 4, "x", "y"))
    assert sorted(published(tmp_path).values()) == ["x", "y"]
    assert list((tmp_path / "_evenflow").iterdir()) == []


def test_a_driver_that_slept_for_long_leaves_all_as_it_is(tmp_path: Path) -> None:
    def meanwhile() -> None:
        publish(tmp_path, 4, "x", "y")
        publish(tmp_path, 5, "z")

    with pytest.raises(FileNotFoundError):
        publish(tmp_path, 4, "x", "y", then=meanwhile)
    assert sorted(published(tmp_path).values()) == ["x", "y", "z"]


def test_what_a_killed_driver_has_left_is_removed(tmp_path: Path) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(tmp_path, 4, "half", then=die)
    assert published(tmp_path) == {}
    publish(tmp_path, 4, "half")
    publish(tmp_path, 5, "z")
    assert sorted(published(tmp_path).values()) == ["half", "z"]
    assert list((tmp_path / "_evenflow").iterdir()) == []


def test_parquet_files_of_two_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is at an epoch that the other publishes meanwhile; a third has been killed at it, and at the one before."""
    files = [
        Folder.at(str(tmp_path)).write_table(output_name(4, lane, "a"), pa.table({"n": [lane]})) for lane in (0, 1)
    ]
    killed, slow, quick = (ParquetSink(str(tmp_path), str(tmp_path / "out")) for _ in range(3))
    write = pq.write_table

    def die(*_: object, **__: object) -> None:
        write(pa.table({"n": [9]}), f"{tmp_path}/out/.part-epoch0000000003-00000.snappy.parquet.{killed._driver}")
        raise KeyboardInterrupt

    def be_overtaken(*args: Any, **how: Any) -> None:
        monkeypatch.setattr(pq, "write_table", write)
        write(*args, **how)
        quick.publish(4, files)

    monkeypatch.setattr(pq, "write_table", die)
    with pytest.raises(KeyboardInterrupt):
        killed.publish(4, files)
    monkeypatch.setattr(pq, "write_table", be_overtaken)
    slow.publish(4, files)
    found = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in found] == [f"part-epoch0000000004-{lane:05d}.snappy.parquet" for lane in (0, 1)]
    assert [pq.read_table(path)["n"].to_pylist() for path in found] == [[0], [1]]


@dataclass
class Asked:
    """A DataFrame that only notes down how it is to be written."""

    how: dict[str, str]

    @property
    def write(self) -> Asked:
        return self

    def format(self, kind: str) -> Asked:
        return Asked(self.how | {"format": kind})

    def options(self, **options: str) -> Asked:
        return Asked(self.how | options)

    def mode(self, mode: str) -> Asked:
        return Asked(self.how | {"mode": mode})


@pytest.mark.parametrize(("replaces", "mode"), [(False, "append"), (True, "overwrite")])
def test_delta_is_told_which_epoch_of_which_query_it_gets(replaces: bool, mode: str) -> None:
    """By its own means it then skips one that it has."""
    written: list[Any] = []
    DeltaSink(written.append, "query", {"mergeSchema": "true"}, replaces)(cast("Any", Asked({})), 7)
    once = {"txnAppId": "query", "txnVersion": "7"}
    assert [asked.how for asked in written] == [{"format": "delta", "mergeSchema": "true", "mode": mode, **once}]
