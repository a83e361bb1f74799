"""Whose rows are in a folder: the marks that queries leave there. Without Spark."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from evenflow.errors import DamagedFileError, InputError, UnreachableError
from evenflow.spark.owners import Mark, OutputFolder
from tests.state.places import KINDS


def claim(place: Path, query: str, *, share: bool = False) -> None:
    OutputFolder.at(str(place), share=share).claim(Mark(query, f"/checkpoints/{query}", 1_800_000_000.0))


def marks(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


def test_the_first_query_owns_the_folder_and_may_come_again(tmp_path: Path) -> None:
    claim(tmp_path / "out", "first")
    claim(tmp_path / "out", "first")
    OutputFolder.at(str(tmp_path / "out")).refuse_other("first")
    OutputFolder.at(f"file:{tmp_path}/out/").refuse_other("first")
    assert marks(tmp_path) == ["out/_evenflow/owner.json"]


@pytest.mark.parametrize("query", ["second", None])
def test_another_query_is_told_whose_rows_are_there_and_what_to_do(tmp_path: Path, query: str | None) -> None:
    claim(tmp_path, "first")
    with pytest.raises(
        InputError, match=r"belongs to another query, first with checkpoint /checkpoints/first"
    ) as raised:
        OutputFolder.at(str(tmp_path)).refuse_other(query)
    assert "since 2027-01-15 08:00:00 UTC" in str(raised.value)
    for way_out in ("Go on from that checkpoint", "another folder", "remove the old output", "evenflow.shareOutput"):
        assert way_out in str(raised.value)
    with pytest.raises(InputError, match="belongs to another query"):
        claim(tmp_path, "second")
    assert marks(tmp_path) == ["_evenflow/owner.json"]


def test_a_guest_stays_one_and_lets_nobody_else_in(tmp_path: Path) -> None:
    claim(tmp_path, "first")
    claim(tmp_path, "second", share=True)
    claim(tmp_path, "second")  # started again, without the option
    claim(tmp_path, "first")
    assert marks(tmp_path) == ["_evenflow/guests/second.json", "_evenflow/owner.json"]
    with pytest.raises(InputError, match="belongs to another query, first"):
        claim(tmp_path, "third")


def test_who_would_share_an_empty_folder_owns_it(tmp_path: Path) -> None:
    claim(tmp_path, "first", share=True)
    assert marks(tmp_path) == ["_evenflow/owner.json"]
    with pytest.raises(InputError, match="belongs to another query, first"):
        claim(tmp_path, "second")


def test_of_many_that_start_at_the_same_moment_one_wins(tmp_path: Path) -> None:
    refused, together = [], threading.Barrier(8)

    def start(query: str) -> None:
        together.wait()
        try:
            claim(tmp_path, query)
        except InputError:
            refused.append(query)

    threads = [threading.Thread(target=start, args=(f"query{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7
    (winner,) = {f"query{number}" for number in range(8)} - set(refused)
    assert msgspec.json.decode((tmp_path / "_evenflow/owner.json").read_bytes(), type=Mark).query_id == winner


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b'{"query_id": 3}', b'{"name": "of something else"}', b"[]"]
)
@pytest.mark.parametrize("query", ["first", "second", None])
def test_a_mark_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, query: str | None) -> None:
    claim(tmp_path, "first")
    (tmp_path / "_evenflow/owner.json").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"_evenflow/owner\.json, which says whose .* Restore it; or remove it"):
        OutputFolder.at(str(tmp_path)).refuse_other(query)


def test_a_folder_of_sparks_own_sink_is_refused(tmp_path: Path) -> None:
    """Its readers see only what is listed there."""
    (tmp_path / "_spark_metadata").mkdir()
    for share in (False, True):
        with pytest.raises(InputError, match=r"output of a query of Spark's own.*never ours\. Choose another folder"):
            OutputFolder.at(str(tmp_path), share=share).refuse_other(None)


def test_rows_of_no_query_may_be_there(tmp_path: Path) -> None:
    (tmp_path / "part-00000.parquet").write_bytes(b"rows")
    claim(tmp_path, "first")


def test_a_folder_that_cannot_be_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnreachableError, match=r"cannot write to folder .*file.* start again"):
        claim(tmp_path / "file", "first")


@pytest.mark.parametrize("kind", KINDS)
def test_marks_on_stores_of_all_kinds(tmp_path: Path, kind: str) -> None:
    """And no message shows the keys to one."""
    storage = KINDS[kind](tmp_path)
    for query in ("first", "first"):
        OutputFolder(storage).claim(Mark(query, "/checkpoints/first", 0.0))
    with pytest.raises(InputError, match="belongs to another query, first") as raised:
        OutputFolder(storage).claim(Mark("second", "/checkpoints/second", 0.0))
    assert "secret" not in str(raised.value)
    OutputFolder(storage, share=True).claim(Mark("second", "/checkpoints/second", 0.0))
    OutputFolder(storage).refuse_other("second")
