"""Storage errors that may pass, played: what is tried again, how often, and what counts as our own earlier success."""

from __future__ import annotations

import errno
import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from evenflow.errors import DamagedFileError, TakenOverError, UnreachableError
from evenflow.state import Checkpoint, Folder, NameTakenError, Retries, RetryingStorage, Storage
from evenflow.state import retrying as module
from evenflow.state.retrying import may_pass
from evenflow.state.storage import NotFlushedError, Write
from tests.state.places import KINDS, identity, local, remote

IO = OSError(errno.EIO, "Input/output error")
FULL = OSError(errno.ENOSPC, "No space left on device")


@dataclass
class Played:
    """A storage that fails as its script says: `call` or `call, after` (it was carried out, the answer was lost)."""

    below: Storage
    script: deque[tuple[str, OSError]] = field(default_factory=deque)
    calls: list[str] = field(default_factory=list)

    @property
    def location(self) -> str:
        return self.below.location

    def address(self, name: str) -> str:
        return self.below.address(name)

    def _reach(self, point: str) -> None:
        if self.script and self.script[0][0] == point:
            raise self.script.popleft()[1]

    @contextmanager
    def create(self, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        self.calls.append("create")
        self._reach("create")
        with self.below.create(name, exclusive=exclusive) as write:
            yield write
            self._reach("create, within")
        self._reach("create, after")

    def settle(self, folders: Iterable[str]) -> None:
        self.calls.append("settle")
        self._reach("settle")
        self.below.settle(folders)

    def open(self, name: str) -> pa.NativeFile:
        self.calls.append("open")
        self._reach("open")
        return (
            _PlayedFile(self, self.below.open(name))
            if any(p == "read" for p, _ in self.script)
            else self.below.open(name)
        )

    def names(self, folder: str) -> list[str]:
        self.calls.append("names")
        self._reach("names")
        return self.below.names(folder)

    def exists(self, name: str) -> bool:
        self.calls.append("exists")
        self._reach("exists")
        return self.below.exists(name)

    def delete(self, names: Sequence[str]) -> None:
        self.calls.append("delete")
        self._reach("delete")
        self.below.delete(names)
        self._reach("delete, after")


class _PlayedFile:
    """A file whose reads fail as the script says."""

    def __init__(self, played: Played, file: pa.NativeFile) -> None:
        self._played, self._file = played, file

    def size(self) -> int:
        return int(self._file.size())

    def seek(self, at: int) -> None:
        self._file.seek(at)

    def read_buffer(self, size: int) -> pa.Buffer:
        self._played._reach("read")
        return self._file.read_buffer(size)

    def close(self) -> None:
        self._file.close()


@dataclass
class Time:
    """A clock that only sleeping moves."""

    now_s: float = 0.0
    slept_s: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


def made(
    place: Path, *script: tuple[str, OSError], below: Storage | None = None, patience_s: float = 60.0
) -> tuple[Folder, Played, Time]:
    played, time = Played(below or local(place), deque(script)), Time()
    retries = Retries(patience_s, "totals", clock=lambda: time.now_s, sleep=time.sleep, chance=lambda: 1.0)
    return Folder(RetryingStorage(played, retries)), played, time


PASSING = [
    IO,
    OSError(errno.ESTALE, "Stale file handle"),
    OSError(errno.EAGAIN, "Resource temporarily unavailable"),
    TimeoutError("timed out"),
    ConnectionResetError("Connection reset by peer"),
    OSError("When reading information for key 'x' in bucket 'b': AWS Error SLOW_DOWN during HeadObject operation"),
    OSError("When completing multiple part upload: AWS Error NETWORK_CONNECTION during CompleteMultipartUpload"),
    OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)"),
    OSError("503 Service Unavailable"),
]
LASTING = [
    FULL,
    PermissionError(errno.EACCES, "Permission denied"),
    FileNotFoundError(errno.ENOENT, "No such file or directory"),
    FileNotFoundError("key/x"),
    IsADirectoryError(errno.EISDIR, "Is a directory"),
    NotFlushedError(errno.EIO, "Input/output error"),
    OSError("When reading information for key 'x': AWS Error ACCESS_DENIED during HeadObject operation"),
    OSError("When creating key 'x': AWS Error NO_SUCH_BUCKET during PutObject operation"),
    OSError("google::cloud::Status(PERMISSION_DENIED: no access)"),
    OSError("No space left on device"),
]


@pytest.mark.parametrize("error", PASSING, ids=str)
def test_what_may_pass_is_tried_again(tmp_path: Path, error: OSError) -> None:
    assert may_pass(error)
    folder, _, time = made(tmp_path, ("create", error), ("create", error))
    folder.write_bytes("a", b"x")
    assert folder.read_bytes(folder.write_bytes("a", b"x")) == b"x"
    assert time.slept_s == [0.1, 0.2]


@pytest.mark.parametrize("error", LASTING, ids=str)
def test_what_lasts_is_raised_at_once(tmp_path: Path, error: OSError) -> None:
    assert not may_pass(error)
    folder, played, time = made(tmp_path, ("create", error))
    with pytest.raises(UnreachableError) as raised:
        folder.write_bytes("a", b"x")
    assert raised.value.__cause__ is error
    assert (time.slept_s, played.calls) == ([], ["create"])


@pytest.mark.parametrize("point", ["names", "exists", "delete", "delete, after", "open", "settle", "create, within"])
def test_every_call_is_tried_again(tmp_path: Path, point: str) -> None:
    folder, played, time = made(tmp_path, (point, IO), (point, IO))
    ref = folder.write_bytes("d/a", b"x")
    assert (folder.names("d"), folder.exists("d/a"), folder.read_bytes(ref)) == (["d/a"], True, b"x")
    folder.settle(["d/a"])
    folder.delete(["d/a"])
    assert not folder.exists("d/a")
    assert not played.script
    assert len(time.slept_s) == 2


def test_pauses_grow_up_to_a_limit_and_end_with_the_patience(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, _, time = made(tmp_path, *[("exists", IO)] * 50)
    with pytest.raises(UnreachableError, match=r"cannot look for .*/a: .*Input/output error"):
        folder.exists("a")
    assert time.slept_s == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0]
    assert [record.message for record in caplog.records] == [
        *(
            f"totals: cannot look for {tmp_path}/a: [Errno 5] Input/output error. It is tried again in {pause:.1f} s"
            for pause in time.slept_s
        ),
        f"totals: cannot look for {tmp_path}/a: [Errno 5] Input/output error. Given up after 12 tries in 52.7 s",
    ]


def test_once_given_up_nobody_waits_again_until_the_storage_answers(tmp_path: Path) -> None:
    folder, _, time = made(tmp_path, *[("exists", IO)] * 5, patience_s=0.15)
    for _ in range(3):
        with pytest.raises(UnreachableError):
            folder.exists("a")
    assert time.slept_s == [0.1]
    folder.names("")
    assert not folder.exists("a")
    assert time.slept_s == [0.1, 0.1]


def test_pauses_have_a_random_part() -> None:
    lowest, highest = (_pause_with(chance) for chance in (0.0, 1.0))
    assert (lowest, highest) == (0.05, 0.1)


def _pause_with(chance: float) -> float:
    slept: list[float] = []
    failing = deque([IO])

    def act() -> None:
        if failing:
            raise failing.popleft()

    Retries(clock=lambda: 0.0, sleep=slept.append, chance=lambda: chance).carry_out("look", act)
    return slept[0]


# --- a try that failed has succeeded all the same ----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exclusive", [True, False])
def test_a_retry_that_finds_its_own_file_is_content(tmp_path: Path, kind: str, exclusive: bool) -> None:
    """Also where a rename refuses to replace, as on HDFS."""
    folder, played, _ = made(tmp_path, *[("create, after", IO)] * 2, below=KINDS[kind](tmp_path))
    ref = folder.write_bytes("d/a", b"ours", exclusive=exclusive)
    assert folder.read_bytes(ref) == b"ours"
    assert played.calls.count("create") == 1
    assert "settle" in played.calls, "its name was perhaps not flushed"
    assert folder.names("d") == ["d/a"]


@pytest.mark.parametrize("theirs", [b"theirs", b"our", b"ours and more", b""])
def test_a_retry_that_finds_the_name_taken_by_another_says_so(tmp_path: Path, theirs: bytes) -> None:
    folder, _, _ = made(tmp_path, ("create", IO))
    Folder(local(tmp_path)).write_bytes("a", theirs)
    with pytest.raises(NameTakenError):
        folder.write_bytes("a", b"ours", exclusive=True)
    assert (tmp_path / "a").read_bytes() == theirs


def test_a_name_that_was_taken_before_the_first_try_is_taken_whatever_it_holds(tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path)
    folder.write_bytes("a", b"ours", exclusive=True)
    with pytest.raises(NameTakenError):
        folder.write_bytes("a", b"ours", exclusive=True)


def test_a_file_that_is_replaced_is_replaced_by_the_retry(tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, ("create", IO))
    Folder(local(tmp_path)).write_bytes("a", b"before")
    folder.write_bytes("a", b"after")
    assert (tmp_path / "a").read_bytes() == b"after"


# --- large files, and reading ------------------------------------------------------------------------------------


def test_a_large_file_is_written_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_BYTES", 10)
    folder, played, _ = made(tmp_path, ("create", IO))
    with folder.storage.create("a") as write:
        for _ in range(5):
            write(b"1234")
    assert (tmp_path / "a").read_bytes() == b"1234" * 5
    played.script.append(("create, within", IO))
    with pytest.raises(OSError, match="Input/output"), folder.storage.create("b") as write:
        write(b"1234" * 5)
    assert folder.names("") == ["a"]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (1 << 20, 3):
        monkeypatch.setattr(module, "_KEPT_BYTES", limit)
        folder, _, _ = made(tmp_path)
        with pytest.raises(ZeroDivisionError), folder.storage.create("a") as write:
            write(b"1234") and write(b"5" * (1 // 0))
        assert folder.names("") == []


@pytest.mark.parametrize("verify", [True, False])
def test_a_read_that_fails_is_read_again(tmp_path: Path, verify: bool) -> None:
    table = pa.table({"key": range(1000), "text": [str(row) for row in range(1000)]})
    folder, played, _ = made(tmp_path, below=remote(tmp_path))
    ref = folder.write_table("t", table)
    played.script.extend([("read", IO), ("read", IO)])
    assert folder.read_table(ref, verify=verify).equals(table)
    assert not played.script
    (tmp_path / "t").unlink()
    with pytest.raises(DamagedFileError, match="it is missing"):
        folder.read_table(ref, verify=verify)


def test_retries_travel_to_lanes() -> None:
    there = pickle.loads(pickle.dumps(Retries(3.0, "totals", 1)))  # noqa: S301 - our own
    assert (there.patience_s, there.query, there.lane) == (3.0, "totals", 1)


# --- whose checkpoint it is --------------------------------------------------------------------------------------


def owned(place: Path) -> tuple[Checkpoint, Played, Time]:
    """A checkpoint that was taken over, on a storage that can be played with from now on."""
    checkpoint = Checkpoint.open(str(place), identity(), durable=False)
    checkpoint.take_over()
    checkpoint.folder, played, time = made(place / "evenflow")
    return checkpoint, played, time


def test_a_storage_that_cannot_be_asked_is_not_taken_over(tmp_path: Path) -> None:
    checkpoint, played, time = owned(tmp_path)
    played.script.extend([("exists", IO)] * 3)
    checkpoint.refuse_if_taken_over()
    assert len(time.slept_s) == 3
    played.script.extend([("exists", IO)] * 50)
    with pytest.raises(UnreachableError, match="Input/output error"):
        checkpoint.refuse_if_taken_over()


def test_a_missing_claim_counts_only_if_the_folder_can_be_listed(tmp_path: Path) -> None:
    checkpoint, played, _ = owned(tmp_path)
    other = Checkpoint.open(str(tmp_path), identity(), durable=False)
    other.take_over()
    played.script.extend([("names", IO)] * 50)
    with pytest.raises(UnreachableError, match="cannot list"):
        checkpoint.refuse_if_taken_over()
    played.script.clear()
    with pytest.raises(TakenOverError, match="was taken over by another run"):
        checkpoint.refuse_if_taken_over()


def test_a_checkpoint_that_is_not_there_any_more_is_unreachable(tmp_path: Path) -> None:
    """An unmounted disk is an empty folder."""
    checkpoint, _, _ = owned(tmp_path)
    (tmp_path / "evenflow").rename(tmp_path / "elsewhere")
    with pytest.raises(UnreachableError, match=r"not there any more: neither the claim .* Is the storage mounted"):
        checkpoint.refuse_if_taken_over()
    (tmp_path / "elsewhere").rename(tmp_path / "evenflow")
    checkpoint.refuse_if_taken_over()
