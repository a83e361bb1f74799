"""Files of an epoch that is published twice, by two drivers of which each knows nothing of the other. Without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenflow.spark.filesink import FileSink, ParquetSink, QueryFiles
from evenflow.spark.sink import DeltaSink
from evenflow.state import Folder, output_name


@dataclass
class Frame:
    """As much of a DataFrame as is needed: it writes a file per part, and then lets something happen."""

    parts: list[str]
    then: Callable[[], object] = lambda: None
    by_letter: bool = False

    @property
    def write(self) -> Frame:
        return self

    def format(self, _kind: str) -> Frame:
        return self

    def options(self, **_: str) -> Frame:
        return self

    def partitionBy(self, *_names: str) -> Frame:  # noqa: N802 - Spark's name
        return replace(self, by_letter=True)

    def save(self, path: str) -> None:
        top = Path(path.removeprefix("file:"))
        top.mkdir(parents=True)
        (top / "_SUCCESS").touch()
        for number, part in enumerate(self.parts):
            folder = top / f"letter={part[0]}" if self.by_letter else top
            folder.mkdir(exist_ok=True)
            (folder / f"part-{number:05d}-{uuid.uuid4()}-c000.json").write_text(part)
        self.then()


def publish(
    place: Path, epoch: int, *parts: str, then: Callable[[], object] = lambda: None, query: str = "q", by: str = ""
) -> None:
    sink = FileSink("json", QueryFiles(str(place), query), partitions=[by] if by else [])
    sink(cast("Any", Frame(list(parts), then)), epoch)


def published(place: Path) -> dict[str, str]:
    """Return the files that readers see, with their folders."""
    found = [path for path in place.rglob("*") if path.is_file()]
    names = {str(path.relative_to(place)): path for path in found}
    return {name: path.read_text() for name, path in names.items() if not name.startswith("_")}


def staged(place: Path, query: str = "q") -> list[Path]:
    return list((place / "_evenflow" / "staged" / query).iterdir())


def test_a_second_time_replaces_the_first(tmp_path: Path) -> None:
    publish(tmp_path, 0, "a")
    publish(tmp_path, 1, "b", "c")
    before = published(tmp_path)
    assert sorted(before.values()) == ["a", "b", "c"]
    publish(tmp_path, 1, "b", "c")
    assert published(tmp_path) == before
    publish(tmp_path, 1, "bc")
    assert sorted(published(tmp_path).values()) == ["a", "bc"]
    assert staged(tmp_path) == []


def test_another_driver_has_published_the_epoch_meanwhile(tmp_path: Path) -> None:
    """The slow one finds its own files, and at no moment are those of the quick one gone."""
    publish(tmp_path, 4, "x", "y", then=lambda: publish(tmp_path, 4, "x", "y"))
    assert sorted(published(tmp_path).values()) == ["x", "y"]
    assert staged(tmp_path) == []


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
    assert staged(tmp_path) == []


@pytest.mark.parametrize("by", ["", "letter"])
def test_two_queries_in_one_folder_keep_all_their_rows(tmp_path: Path, by: str) -> None:
    """Each with epochs of its own; what one publishes again, or has left behind, is no business of the other."""

    def die() -> None:
        raise KeyboardInterrupt

    publish(tmp_path, 0, "a", "b", query="first", by=by)
    with pytest.raises(KeyboardInterrupt):
        publish(tmp_path, 1, "half", query="first", then=die)
    publish(tmp_path, 0, "c", query="second", by=by)
    publish(tmp_path, 0, "c", query="second", by=by)
    publish(tmp_path, 2, "d", query="second", by=by)
    assert sorted(published(tmp_path).values()) == ["a", "b", "c", "d"]
    assert len(staged(tmp_path, "first")) == 1
    publish(tmp_path, 0, "ab", query="first", by=by)
    assert sorted(published(tmp_path).values()) == ["ab", "c", "d"]


def test_partitions_are_folders_and_a_second_time_leaves_the_same_files(tmp_path: Path) -> None:
    for _ in range(2):
        publish(tmp_path, 3, "a1", "b1", "a2", by="letter")
        assert sorted(published(tmp_path)) == [
            "letter=a/part-epoch0000000003-q-00000.json",
            "letter=a/part-epoch0000000003-q-00001.json",
            "letter=b/part-epoch0000000003-q-00002.json",
        ]
    assert sorted(published(tmp_path).values()) == ["a1", "a2", "b1"]
    publish(tmp_path, 3, "a1", "b1", "a2")  # started again without partitions
    assert sorted(published(tmp_path)) == [f"part-epoch0000000003-q-{number:05d}.json" for number in range(3)]


def test_parquet_files_of_two_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is at an epoch that the other publishes meanwhile; a third has been killed at the one before."""
    out = tmp_path / "out"
    files = [
        Folder.at(str(tmp_path)).write_table(output_name(4, lane, "a"), pa.table({"n": [lane]})) for lane in (0, 1)
    ]
    killed, slow, quick = (ParquetSink(str(tmp_path), QueryFiles(str(out), "q")) for _ in range(3))
    write = pq.write_table

    def die(*args: Any, **how: Any) -> None:
        write(*args, **how)
        raise KeyboardInterrupt

    def be_overtaken(*args: Any, **how: Any) -> None:
        monkeypatch.setattr(pq, "write_table", write)
        write(*args, **how)
        quick.publish(4, files)

    monkeypatch.setattr(pq, "write_table", die)
    with pytest.raises(KeyboardInterrupt):
        killed.publish(3, files)
    assert len(staged(out)) == 1
    monkeypatch.setattr(pq, "write_table", be_overtaken)
    slow.publish(4, files)
    found = sorted(out.glob("part-*"))
    assert [path.name for path in found] == [f"part-epoch0000000004-q-{lane:05d}.snappy.parquet" for lane in (0, 1)]
    assert [pq.read_table(path)["n"].to_pylist() for path in found] == [[0], [1]]
    assert staged(out) == []


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
