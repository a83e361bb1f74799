from __future__ import annotations

import errno
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import DamagedFileError, InputError, UnreachableError
from evenflow.state import FileRef, Folder, block_name, read_slots, write_slots
from evenflow.state.files import FORMAT
from evenflow.state.storage import LocalStorage, NameTakenError, RemoteStorage, storage_at
from tests.state.places import KINDS, Killed


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    number: int | None = None


class Other(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    elsewhere: int


@pytest.fixture(params=sorted(KINDS))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(KINDS[request.param](tmp_path / "root"))


def path_of(folder: Folder, name: str) -> Path:
    storage = folder.storage
    assert isinstance(storage, LocalStorage | RemoteStorage)
    return Path(storage.root) / name


def table(rows: int = 100) -> pa.Table:
    return pa.table(
        {
            "key": pa.array(np.arange(rows)),
            "text": pa.array([None if row % 7 == 0 else f"row {row}" for row in range(rows)], pa.string()),
            "kind": pa.array([f"k{row % 3}" for row in range(rows)], pa.string()).dictionary_encode(),
        }
    )


def test_bytes_come_back(folder: Folder) -> None:
    for name, data in {"a/b.bin": b"some bytes", "empty": b""}.items():
        ref = folder.write_bytes(name, data)
        assert (ref.name, ref.size) == (name, len(data))
        assert folder.read_bytes(ref) == data


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_tables_come_back(folder: Folder, rows: int, verify: bool) -> None:
    ref = folder.write_table("t/x.arrow", table(rows))
    assert ref.size == path_of(folder, ref.name).stat().st_size
    assert folder.read_table(ref, verify=verify).equals(table(rows))


@pytest.mark.parametrize("verify", [True, False])
def test_chunks_are_batches(folder: Folder, verify: bool) -> None:
    plain = table().select(["key", "text"])
    ref = folder.write_table("x.arrow", pa.concat_tables([plain.slice(0, 30), plain.slice(30)]))
    first, second = folder.read_batches(ref, [1, 0], verify=verify)
    assert (first.num_rows, second.num_rows) == (70, 30)
    assert pa.Table.from_batches([second, first]).equals(plain.combine_chunks())


def test_chunks_with_dictionaries_of_their_own(folder: Folder) -> None:
    parts = [pa.table({"c": pa.array([word]).dictionary_encode()}) for word in "abc"]
    ref = folder.write_table("x.arrow", pa.concat_tables(parts))
    assert folder.read_table(ref)["c"].to_pylist() == ["a", "b", "c"]


def test_a_local_table_is_mapped_not_copied(tmp_path: Path) -> None:
    folder = Folder.at(str(tmp_path))
    ref = folder.write_table("x.arrow", pa.table({"key": np.arange(100_000)}))
    before = pa.total_allocated_bytes()
    read = folder.read_table(ref)
    assert read.nbytes == 800_000
    assert pa.total_allocated_bytes() - before < 100_000


def test_slots_share_a_file(folder: Folder) -> None:
    plain = table()
    refs = dict(write_slots(folder, "s.arrow", 7, {3: plain.slice(0, 10), 1: plain.slice(10, 0), 2: plain.slice(10)}))
    assert {ref.version for ref in refs.values()} == {7}
    third, first, second = read_slots(folder, [refs[3], refs[1], refs[2]])
    assert (third.num_rows, first.num_rows) == (10, 0)
    assert second.to_pylist() == plain.slice(10).to_pylist()
    assert write_slots(folder, "none.arrow", 7, {}) == ()
    assert not folder.exists("none.arrow")


@given(text=st.text(), number=st.none() | st.integers(-(2**63), 2**63 - 1))
def test_records_come_back(text: str, number: int | None, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = Folder.at(str(tmp_path_factory.mktemp("json")), durable=False)
    folder.write_json("n.json", Note(text, number))
    assert folder.read_json("n.json", Note) == Note(text, number)


def test_names_and_removal(folder: Folder) -> None:
    for name in ("b/2", "b/1", "a"):
        folder.write_bytes(name, b"x")
    assert folder.names() == ["a", "b/"]
    assert folder.names("b") == ["b/1", "b/2"]
    assert folder.names("nowhere") == []
    assert folder.exists("b/1")
    assert folder.delete(["b/1", "b/1", "b/never"]) == 3
    assert not folder.exists("b/1")
    assert folder.names("b") == ["b/2"]


def test_an_exclusive_name_is_given_once(folder: Folder) -> None:
    folder.write_json("d/note.json", Note("first"), exclusive=True)
    before = folder.names("d")
    for _ in range(2):
        with pytest.raises(NameTakenError):
            folder.write_json("d/note.json", Note("second"), exclusive=True)
    assert folder.read_json("d/note.json", Note) == Note("first")
    assert folder.names("d") == before


@pytest.mark.parametrize("links", [True, False], ids=["links", "a filesystem without links"])
def test_of_two_who_create_a_name_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """Both have looked and found nothing. Without links the second must look again, right before it takes the name."""

    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refused)
    storage = LocalStorage(str(tmp_path))

    def create_twice() -> None:
        with storage.create("name", exclusive=True) as slow:
            slow(b"slow")
            with storage.create("name", exclusive=True) as quick:
                quick(b"quick")

    with pytest.raises(NameTakenError):
        create_twice()
    assert (tmp_path / "name").read_bytes() == b"quick"
    assert storage.names("") == ["name"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "disk full"), Killed()])
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_failed_write_leaves_no_file(
    where: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    folder = Folder.at(str(tmp_path))
    monkeypatch.setattr(os if where == "fsync" else Path, where, fail)
    with pytest.raises((UnreachableError, Killed)):
        folder.write_bytes("name", b"data")
    monkeypatch.undo()
    assert not folder.exists("name")
    left = folder.names()
    # Whoever lives to see the error cleans up; who is killed leaves a name that nobody reads.
    assert left == [] if isinstance(error, OSError) else [name.endswith(".tmp") for name in left] == [True]


def test_a_table_that_cannot_be_written_leaves_no_file(folder: Folder) -> None:
    broken = pa.Table.from_batches([], pa.schema([pa.field("x", pa.int64())]))
    with pytest.raises(AttributeError):
        folder.write_table("x", [broken])
    if not isinstance(folder.storage, RemoteStorage) or not folder.storage.whole_uploads:
        assert folder.names() == []


FLAWS = ["cut", "longer", "emptied", "flipped", "missing", "foreign"]


def spoil(path: Path, flaw: str, at: float = 0.5) -> None:
    """Damage a file in one of six ways."""
    data = bytearray(path.read_bytes())
    path.unlink()
    match flaw:
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "longer":
            path.write_bytes(data + b"x")
        case "emptied":
            path.write_bytes(b"")
        case "flipped":
            data[int(at * (len(data) - 1))] ^= 0x04
            path.write_bytes(data)
        case "foreign":
            path.write_bytes(b"PAR1" * (len(data) // 4) + b"#" * (len(data) % 4))


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_damaged_file_is_named(folder: Folder, flaw: str) -> None:
    data = folder.write_bytes("d/data.bin", b"0123456789")
    arrow = folder.write_table("d/table.arrow", table())
    folder.write_json("d/note.json", Note("hello", 3))
    reads: dict[str, Callable[[], object]] = {
        "d/data.bin": lambda: folder.read_bytes(data),
        "d/table.arrow": lambda: folder.read_table(arrow),
        "d/note.json": lambda: folder.read_json("d/note.json", Note),
    }
    for name, read in reads.items():
        spoil(path_of(folder, name), flaw)
        if flaw == "longer" and not name.endswith(".json"):  # a range of a file is checked, whatever comes after it
            assert read()
            continue
        with pytest.raises(DamagedFileError, match=re.escape(folder.storage.address(name))) as caught:
            read()
        assert "new checkpoint location" in str(caught.value)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("flaw", sorted({*FLAWS} - {"flipped", "longer"}))
def test_without_verification_only_a_flipped_bit_goes_unnoticed(folder: Folder, flaw: str) -> None:
    ref = folder.write_table("t.arrow", table())
    spoil(path_of(folder, "t.arrow"), flaw)
    with pytest.raises(DamagedFileError):
        folder.read_table(ref, verify=False)


def test_every_flipped_bit_of_a_record_is_noticed(tmp_path: Path) -> None:
    folder = Folder.at(str(tmp_path), durable=False)
    folder.write_json("n.json", Note("hello", 3))
    path = tmp_path / "n.json"
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
            with pytest.raises(DamagedFileError):
                folder.read_json("n.json", Note)


def test_a_record_in_the_place_of_another_is_noticed(folder: Folder) -> None:
    folder.write_json("one.json", Note("one"))
    folder.write_json("two.json", Note("two"))
    path_of(folder, "one.json").replace(path_of(folder, "two.json"))
    with pytest.raises(DamagedFileError, match=r"two\.json is damaged: it was written as one\.json"):
        folder.read_json("two.json", Note)


def test_a_record_of_another_kind_is_noticed(folder: Folder) -> None:
    folder.write_json("x.json", Other(1))
    with pytest.raises(DamagedFileError, match="not a record of the expected kind"):
        folder.read_json("x.json", Note)


def test_a_newer_format_asks_for_a_newer_evenflow(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'{"format":%d,"sealed":{}}' % (FORMAT + 1))
    with pytest.raises(DamagedFileError, match=f"format {FORMAT + 1}.* use a newer evenflow"):
        Folder.at(str(tmp_path)).read_json("x.json", Note)


def test_a_format_of_before_the_first_release_is_not_guessed_at(tmp_path: Path) -> None:
    Folder.at(str(tmp_path)).write_json("x.json", Note("x"))
    written = (tmp_path / "x.json").read_bytes()
    (tmp_path / "x.json").write_bytes(written.replace(b'"format":%d' % FORMAT, b'"format":1'))
    with pytest.raises(DamagedFileError, match="format 1, which no release has written"):
        Folder.at(str(tmp_path)).read_json("x.json", Note)


def test_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spaced = f"{tmp_path}/with space"
    cases = {"rel": f"{tmp_path}/rel", spaced: spaced, f"file://{tmp_path}/a b%20c/": f"{tmp_path}/a b%20c"}
    for location, root in {**cases, f"file:{tmp_path}/c": f"{tmp_path}/c"}.items():
        assert storage_at(location) == LocalStorage(root)


def test_a_folder_is_found_from_another_process(folder: Folder) -> None:
    ref = folder.write_bytes("x", b"1")
    assert pickle.loads(pickle.dumps(folder)).read_bytes(ref) == b"1"  # noqa: S301
    if isinstance(folder.storage, LocalStorage):
        assert Folder.at(folder.location).read_bytes(ref) == b"1"


@pytest.mark.parametrize("location", ["nosuch://host/path", "hdfs://nowhere.invalid:1/path"])
def test_an_unknown_place_is_unreachable(location: str) -> None:
    with pytest.raises(UnreachableError, match=f"checkpoint location {location.rstrip('/')}.* cannot be reached"):
        Folder.at(location)


def test_a_place_that_cannot_be_written_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = Folder.at(f"{tmp_path}/file/below")
    with pytest.raises(UnreachableError, match=r"cannot write .*file/below/x.* start again"):
        folder.write_bytes("x", b"")
    with pytest.raises(UnreachableError, match="cannot list"):
        folder.names("x")


def test_attempts_have_plain_names() -> None:
    assert block_name(7, "a1-2.b_c", 3) == "blocks/000000000007-00003-a1-2.b_c.arrow"
    with pytest.raises(InputError, match=r"'\.\./x'"):
        block_name(7, "../x", 3)


def test_a_reference_to_a_file_never_written(folder: Folder) -> None:
    with pytest.raises(DamagedFileError, match="it is missing"):
        folder.read_table(FileRef("t.arrow", 1, 1))
