"""Output files in both forms, and how they come from the checkpoint to a folder of results, on all kinds of storage."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenflow.errors import DamagedFileError
from evenflow.state import ARROW, FileRef, Folder, OutputFormat, Storage, output_name, read_output, write_output
from evenflow.state.outputs import PARQUET_ENDINGS, parquet_ending
from evenflow.state.placing import place, put
from tests.state.places import KINDS, local, object_store, remote
from tests.state.test_files import spoil

ROWS = pa.table(
    {
        "key": pa.array([1, 2, None], pa.int32()),
        "word": ["a", None, "b"],
        "at": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
    }
)
FORMS = [ARROW, *(OutputFormat(codec, {"about": "rows"}) for codec in PARQUET_ENDINGS)]


def written(folder: Folder, form: OutputFormat = FORMS[2], attempt: str = "3.1") -> FileRef:
    return write_output(folder, output_name(7, 1, attempt, form.ending), ROWS, form)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.ending)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_come_back_in_either_form(tmp_path: Path, kind: str, form: OutputFormat) -> None:
    folder = Folder(KINDS[kind](tmp_path))
    file = written(folder, form)
    assert file.name == f"outputs/000000000007-00001-3.1.{form.ending}"
    assert read_output(folder, file).equals(ROWS)
    assert parquet_ending(file) == (None if form is ARROW else form.ending)
    assert (tmp_path / file.name).stat().st_size == file.size


def test_a_parquet_output_is_a_file_for_others_to_read(tmp_path: Path) -> None:
    file = pq.ParquetFile(tmp_path / written(Folder(local(tmp_path)), OutputFormat("zstd", {"about": "rows"})).name)
    assert file.read().equals(ROWS)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.schema_arrow.metadata[b"about"] == b"rows"


@pytest.mark.parametrize("form", FORMS[:2], ids=lambda form: form.ending)
@pytest.mark.parametrize("flaw", ["missing", "cut", "flipped"])
def test_a_damaged_output_is_named(tmp_path: Path, form: OutputFormat, flaw: str) -> None:
    folder = Folder(local(tmp_path))
    file = written(folder, form)
    spoil(tmp_path / file.name, flaw)
    with pytest.raises(DamagedFileError, match=file.name):
        read_output(folder, file)


def ways() -> list[tuple[str, str]]:
    return [(here, there) for here in KINDS for there in KINDS]


@pytest.mark.parametrize(("here", "there"), ways())
def test_a_file_appears_whole_and_a_second_time_is_the_same(tmp_path: Path, here: str, there: str) -> None:
    source, target = Folder(KINDS[here](tmp_path / "checkpoint")), KINDS[there](tmp_path / "out")
    file = written(source)
    for _ in range(3):
        place(source, file, target, "part.parquet", "_hidden/part")
        assert pq.read_table(tmp_path / "out" / "part.parquet").equals(ROWS)
        left = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        assert left == [tmp_path / "out" / "part.parquet"], "nothing is left under the hidden name"
    renamed = here == there == "remote"
    assert (tmp_path / "checkpoint" / file.name).exists() != renamed


def test_on_one_machine_a_file_gets_a_second_name_and_no_byte_is_copied(tmp_path: Path) -> None:
    source, target = Folder(local(tmp_path / "checkpoint")), local(tmp_path / "out")
    file = written(source)
    place(source, file, target, "part.parquet", "_hidden/part")
    assert (tmp_path / "out/part.parquet").samefile(tmp_path / "checkpoint" / file.name)
    source.delete([file.name])
    assert pq.read_table(tmp_path / "out/part.parquet").equals(ROWS)


@pytest.mark.parametrize("why", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_between_two_disks_a_file_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: int) -> None:
    def refused(*_: object) -> None:
        raise OSError(why, os.strerror(why))

    monkeypatch.setattr(os, "link", refused)
    source, target = Folder(local(tmp_path / "checkpoint")), local(tmp_path / "out")
    file = written(source)
    for _ in range(2):
        place(source, file, target, "part.parquet", "_hidden/part")
    assert pq.read_table(tmp_path / "out/part.parquet").equals(ROWS)
    assert not list((tmp_path / "out/_hidden").iterdir())


@pytest.mark.parametrize("make", [local, remote, object_store])
def test_what_is_there_is_replaced(tmp_path: Path, make: Callable[[Path], Storage]) -> None:
    """A run before may have made it from the same rows with other settings."""
    for content in (b"first", b"second, longer", b"third"):
        put(content, make(tmp_path), "sub/part", "_hidden/part")
        assert (tmp_path / "sub/part").read_bytes() == content
    other = Folder(make(tmp_path / "checkpoint"))
    file = written(other)
    put(b"of another size", make(tmp_path), "part", "_hidden/part")
    place(other, file, make(tmp_path), "part", "_hidden/part")
    assert pq.read_table(tmp_path / "part").equals(ROWS)


@pytest.mark.parametrize("make", [local, remote, object_store])
def test_a_file_that_is_gone_is_an_error_that_names_it(tmp_path: Path, make: Callable[[Path], Storage]) -> None:
    source = Folder(make(tmp_path / "checkpoint"))
    file = written(source)
    (tmp_path / "checkpoint" / file.name).unlink()
    with pytest.raises((DamagedFileError, FileNotFoundError), match=file.name):
        place(source, file, make(tmp_path / "out"), "part", "_hidden/part")
    assert not (tmp_path / "out" / "part").exists()


def test_a_file_that_was_cut_is_not_published(tmp_path: Path) -> None:
    source = Folder(local(tmp_path / "checkpoint"))
    file = written(source)
    spoil(tmp_path / "checkpoint" / file.name, "cut")
    with pytest.raises(DamagedFileError, match=r"it has \d+ bytes, expected"):
        place(source, file, local(tmp_path / "out"), "part", "_hidden/part")
