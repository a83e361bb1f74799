"""Files of an epoch that is published twice, by two drivers of which each knows nothing of the other. Without Spark."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from evenflow.errors import UnreachableError
from evenflow.spark import filesink, owners
from evenflow.spark.filesink import FileSink, ParquetSink, QueryFiles
from evenflow.spark.sink import DeltaSink, shared_out
from evenflow.spark.table import partition_spec
from evenflow.state import (
    ARROW,
    Checkpoint,
    FileRef,
    Folder,
    LaneCommit,
    OutputFormat,
    Retries,
    files,
    output_name,
    write_output,
)
from evenflow.state.storage import RemoteStorage
from tests.state.places import Handler
from tests.state.test_checkpoint import lane_commit, record, started


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


# --- Parquet files, which lanes have written ---------------------------------------------------------------------

PARQUET = OutputFormat("snappy", {"about": "rows"})


def outputs(place: Path, epoch: int, lanes: int = 2, form: OutputFormat = PARQUET) -> list[FileRef]:
    folder = Folder.at(str(place / "checkpoint"))
    return [
        write_output(folder, output_name(epoch, lane, "a", form.ending), pa.table({"n": [epoch, lane]}), form)
        for lane in range(lanes)
    ]


def parquet_sink(place: Path, form: OutputFormat = PARQUET) -> ParquetSink:
    return ParquetSink(str(place / "checkpoint"), QueryFiles(str(place / "out"), "q"), form)


def numbers(place: Path) -> dict[str, list[int]]:
    found = sorted((place / "out").glob("part-*"))
    return {path.name.removeprefix("part-epoch000000000"): pq.read_table(path)["n"].to_pylist() for path in found}


def test_parquet_files_of_two_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is at an epoch that the other publishes meanwhile; a third has been killed at the one before."""
    killed, slow, quick = (parquet_sink(tmp_path) for _ in range(3))
    replace_file = Path.replace

    def die(*_: Any) -> Path:
        raise KeyboardInterrupt

    def be_overtaken(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace_file)
        quick.publish(4, now)
        return path.replace(target)

    before, now = outputs(tmp_path, 3), outputs(tmp_path, 4)
    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        killed.publish(3, before)
    assert len(staged(tmp_path / "out")) == 1
    monkeypatch.setattr(Path, "replace", be_overtaken)
    slow.publish(4, now)
    assert numbers(tmp_path) == {"4-q-00000.snappy.parquet": [4, 0], "4-q-00001.snappy.parquet": [4, 1]}
    assert staged(tmp_path / "out") == []


def test_a_replay_publishes_the_committed_files_of_before_whatever_its_lanes_and_options_are(tmp_path: Path) -> None:
    """The first try dies before it is noted. The second has other lanes, and another compression."""
    first = started(tmp_path / "checkpoint")
    home = first.folder.location

    def committed(checkpoint: Checkpoint, epoch: int, lanes: dict[int, set[int]], form: OutputFormat) -> None:
        checkpoint.accept(record(checkpoint, epoch, lanes=tuple(lanes), owners=tuple(_owners(lanes))))
        checkpoint.commit([_commit(checkpoint, epoch, lane, slots, form) for lane, slots in lanes.items()])

    def sink(form: OutputFormat) -> ParquetSink:
        return ParquetSink(home, QueryFiles(str(tmp_path / "out"), "q"), form)

    committed(first, 0, {0: {0}, 1: {1}, 2: {2, 3}}, PARQUET)
    (ready,) = first.recover().unpublished
    sink(PARQUET).publish(*ready)
    before = numbers(tmp_path)
    assert list(before) == [f"0-q-0000{part}.snappy.parquet" for part in range(3)]
    second, zstd = started(tmp_path / "checkpoint"), OutputFormat("zstd")
    second.sweep_orphans()
    committed(second, 1, {0: {0, 1, 2, 3}}, zstd)
    again = sink(zstd)
    assert second.recover().unpublished[0] == ready, "the files of an epoch up to the frontier do not change"
    for epoch, ready_now in second.recover().unpublished:
        again.publish(epoch, ready_now)
        second.publish(epoch)
        second.sweep()
    assert numbers(tmp_path) == {**before, "1-q-00000.zstd.parquet": [1, 0]}


def _owners(lanes: dict[int, set[int]]) -> list[int]:
    return [next(lane for lane, own in lanes.items() if slot in own) for slot in range(4)]


def _commit(checkpoint: Checkpoint, epoch: int, lane: int, slots: set[int], form: OutputFormat) -> LaneCommit:
    rows = pa.table({"n": [epoch, lane]})
    file = write_output(checkpoint.folder, output_name(epoch, lane, "a1", form.ending), rows, form)
    return lane_commit(checkpoint, epoch, lane, slots, outputs=((epoch, file),))


def test_parts_that_are_not_published_again_vanish(tmp_path: Path) -> None:
    """A run before has published the epoch by Spark, in more parts and with other names."""
    publish(tmp_path / "out", 0, "of the epoch before")
    publish(tmp_path / "out", 1, "a", "b", "c")
    parquet_sink(tmp_path).publish(1, outputs(tmp_path, 1))
    assert sorted(path.name for path in (tmp_path / "out").glob("part-*")) == [
        "part-epoch0000000000-q-00000.json",
        "part-epoch0000000001-q-00000.snappy.parquet",
        "part-epoch0000000001-q-00001.snappy.parquet",
    ]


def test_outputs_that_were_written_for_another_sink_become_parquet(tmp_path: Path) -> None:
    """The query was started again with this one, and its last epoch was not published yet."""
    for _ in range(2):
        parquet_sink(tmp_path, OutputFormat("gzip")).publish(2, outputs(tmp_path, 2, form=ARROW))
        assert numbers(tmp_path) == {"2-q-00000.gz.parquet": [2, 0], "2-q-00001.gz.parquet": [2, 1]}
    assert staged(tmp_path / "out") == []


# --- what it costs -----------------------------------------------------------------------------------------------


class Counting(Handler):
    """A filesystem that notes down what is asked of it."""

    def __init__(self, asked: list[str]) -> None:
        super().__init__()
        self.asked = asked

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        self.asked.append("look")
        return super().get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        self.asked.append(f"list {selector.base_dir}")
        return super().get_file_info_selector(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self.asked.append("make")
        super().create_dir(path, recursive)

    def move(self, source: str, target: str) -> None:
        self.asked.append("move")
        super().move(source, target)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the filesystem on which both the checkpoint and the output lie."""
    calls: list[str] = []
    filesystem = fs.PyFileSystem(Counting(calls))

    def storage(location: str, *, durable: object = True) -> RemoteStorage:  # noqa: ARG001 - it takes what the real one takes
        return RemoteStorage(filesystem, location, location)

    for module in (filesink, owners, files):
        monkeypatch.setattr(module, "storage_at", storage)
    monkeypatch.setattr(filesink, "filesystem_at", lambda path, _what: (filesystem, path))
    return calls


def test_a_running_query_never_lists_its_output_folder(tmp_path: Path, asked: list[str]) -> None:
    sink = parquet_sink(tmp_path)
    for epoch in range(5):
        ready = outputs(tmp_path, epoch, lanes=3)
        asked.clear()
        sink.publish(epoch, ready)
        listed = [call for call in asked if call.startswith("list")]
        assert len(listed) == (2 if epoch == 0 else 0), "leftovers are looked for once"
    assert sorted(asked) == sorted(["look", "move"] * 3), "two requests for each file"
    assert len(numbers(tmp_path)) == 15


def test_what_spark_writes_is_listed_where_it_was_staged_only(tmp_path: Path, asked: list[str]) -> None:
    sink = FileSink("json", QueryFiles(str(tmp_path), "q"))
    for epoch in range(3):
        asked.clear()
        sink(cast("Any", Frame(["a", "b"])), epoch)
    listed = [call for call in asked if call.startswith("list")]
    assert len(listed) == 1
    assert "/_evenflow/staged/q/epoch0000000002-" in listed[0]
    assert len(published(tmp_path)) == 6


def test_errors_that_pass_are_tried_again_and_others_name_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, slept = os.link, list[float]()
    failing = [OSError(errno.ESTALE, "Stale file handle"), OSError(errno.EIO, "Input/output error")]

    def linked(*paths: Any) -> None:
        if failing:
            raise failing.pop()
        link(*paths)

    monkeypatch.setattr(os, "link", linked)
    sink = parquet_sink(tmp_path)
    sink.files.retries = Retries(query="totals", clock=lambda: 0.0, sleep=slept.append)
    sink.publish(0, outputs(tmp_path, 0))
    assert len(slept) == 2
    assert len(numbers(tmp_path)) == 2
    failing.append(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(UnreachableError, match=r"the sink's path .*/out: cannot publish epoch 1: .*No space left"):
        sink.publish(1, outputs(tmp_path, 1))


def test_files_are_shared_out_in_order() -> None:
    some = [FileRef(str(number), 1, 0) for number in range(10)]
    assert shared_out(some, 64) == [[file] for file in some]
    assert shared_out(some, 10) == [[file] for file in some]
    parts = shared_out(some, 4)
    assert [file for part in parts for file in part] == some
    assert sorted(map(len, parts)) == [2, 2, 3, 3]


@pytest.mark.parametrize(
    ("folder", "spec"),
    [
        ("kind=a", "`kind` = 'a'"),
        ("Kind=is%2F1/n=3", "`Kind` = 'is/1', `n` = '3'"),
        ("k=__HIVE_DEFAULT_PARTITION__", "`k` = NULL"),
        ("k=it%27s %5C %25", "`k` = 'it\\'s \\\\ %'"),
        ("a=b%3Dc", "`a` = 'b=c'"),
    ],
)
def test_a_new_partition_is_named_to_the_catalog(folder: str, spec: str) -> None:
    assert partition_spec(folder) == spec


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
