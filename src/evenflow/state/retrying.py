"""Storage errors that may pass: what failed is tried again for a while, then the error comes out as it is.

A timeout, a throttled request, a server that restarts or a stale NFS handle says nothing about the checkpoint: the same
call may succeed a second later. A missing file, a missing right or a full disk does not pass by itself, so those are
raised at once. Pauses grow, with a random part, so that many lanes do not come back at the same moment.

A call that failed may have been carried out all the same: its answer was lost. Looking, reading and removing can simply
be done again. A file is written again as a whole; if its name is taken by just our bytes, the first try has succeeded.
"""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from evenflow.log import QueryLog
from evenflow.state.storage import NameTakenError, NotFlushedError, Storage, Write

PATIENCE_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_KEPT_BYTES = 64 << 20  # of a file that is being written; beyond, it is written as it comes and not again
_PASSING = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EINTR,
    errno.EIO,
    errno.ENETDOWN,
    errno.ENETRESET,
    errno.ENETUNREACH,
    errno.ENOBUFS,
    errno.ENOTCONN,
    errno.EPIPE,
    errno.EREMOTEIO,
    errno.ESHUTDOWN,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
# Clients of object stores raise errors without a number. In these words they say what no second try can mend.
_LASTING_WORDS = (
    "access denied",
    "access_denied",
    "accessdenied",
    "bucket does not exist",
    "credentials",
    "does not exist",
    "forbidden",
    "invalid_access_key_id",
    "invalidaccesskeyid",
    "no such bucket",
    "no such file",
    "no space left",
    "no_such_bucket",
    "no_such_key",
    "nosuchbucket",
    "nosuchkey",
    "not found",
    "permission",
    "quota exceeded",
    "resource_not_found",
    "signature_does_not_match",
    "signaturedoesnotmatch",
    "unauthorized",
)
_Result = TypeVar("_Result")


def may_pass(error: OSError) -> bool:
    """Return whether the same call may succeed a little later."""
    if isinstance(error, NotFlushedError):  # the system forgets what it could not flush, and says yes the second time
        return False
    if isinstance(error, TimeoutError | ConnectionError | InterruptedError | BlockingIOError):
        return True
    if error.errno is not None:
        return error.errno in _PASSING
    if type(error) is not OSError:
        return False
    words = str(error).lower()
    return not any(lasting in words for lasting in _LASTING_WORDS)


@dataclass(eq=False)
class Retries:
    """For how long a query tries again what a storage has refused, and how it tells of it.

    Once that time was spent in vain, each further call is tried once, until one succeeds: a query that ends because its
    storage is away does not wait for it again and again.
    """

    patience_s: float = PATIENCE_S
    query: str = "query"
    lane: int | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    _spent: bool = field(default=False, init=False)

    def carry_out(self, what: str, act: Callable[[], _Result]) -> _Result:
        """Return what `act` returns; it is called again if it raises what may pass. `what` it does is for the log."""
        began_s, tries = None, 0
        while True:
            try:
                result = act()
            except OSError as error:
                if not may_pass(error):
                    raise
                began_s = self.clock() if began_s is None else began_s
                pause_s = min(_FIRST_PAUSE_S * 2**tries, _LONGEST_PAUSE_S) * (1 + self.chance()) / 2
                spent_s, tries = self.clock() - began_s, tries + 1
                log = QueryLog(self.query, self.lane)
                if self._spent or spent_s + pause_s > self.patience_s:
                    self._spent = True
                    log.warning("cannot %s: %s. Given up after %d tries in %.1f s", what, error, tries, spent_s)
                    raise
                log.warning("cannot %s: %s. It is tried again in %.1f s", what, error, pause_s)
                self.sleep(pause_s)
            else:
                self._spent = False
                return result


@dataclass
class RetryingStorage:
    """A storage behind which errors that may pass are tried again."""

    below: Storage
    retries: Retries = field(default_factory=Retries)

    @property
    def location(self) -> str:
        return self.below.location

    def address(self, name: str) -> str:
        return self.below.address(name)

    @contextmanager
    def create(self, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        with ExitStack() as opened:

            def directly() -> Write:
                return self._do(
                    "write", name, lambda: opened.enter_context(self.below.create(name, exclusive=exclusive))
                )

            kept = _Kept(directly)
            yield kept.write
            if kept.through is None:
                self._place(name, kept.chunks, exclusive=exclusive)

    def settle(self, folders: Iterable[str]) -> None:
        names = list(folders)
        self._do("flush", ", ".join(names), lambda: self.below.settle(names))

    def open(self, name: str) -> pa.NativeFile:
        file = self._do("open", name, lambda: self.below.open(name))
        if isinstance(file, pa.MemoryMappedFile | pa.BufferReader):  # what is in memory does not fail to be read
            return file
        return pa.PythonFile(_RetriedFile(self, name, file), mode="r")

    def names(self, folder: str) -> list[str]:
        return self._do("list", folder, lambda: self.below.names(folder))

    def exists(self, name: str) -> bool:
        return self._do("look for", name, lambda: self.below.exists(name))

    def delete(self, names: Sequence[str]) -> None:
        what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"
        self._do("remove", what, lambda: self.below.delete(names))

    def _do(self, verb: str, name: str, act: Callable[[], _Result]) -> _Result:
        return self.retries.carry_out(f"{verb} {self.address(name)}", act)

    def _place(self, name: str, chunks: list[bytes], *, exclusive: bool) -> None:
        """Write a file; a try after one that failed first looks whether that one has written it all the same."""
        tried = False

        def place() -> None:
            nonlocal tried
            if tried and self._holds(name, chunks):
                return
            again, tried = tried, True
            try:
                with self.below.create(name, exclusive=exclusive) as write:
                    for chunk in chunks:
                        write(chunk)
            except NameTakenError:
                if not (again and self._holds(name, chunks)):
                    raise

        self._do("write", name, place)

    def _holds(self, name: str, chunks: list[bytes]) -> bool:
        """Return whether a file is there that holds just these bytes; if so, its name survives a power cut."""
        if not self.below.exists(name):
            return False
        try:
            with self.below.open(name) as file:
                content = memoryview(file.read_buffer())
        except FileNotFoundError:  # it has just been removed
            return False
        at = 0
        for chunk in chunks:
            if content[at : at + len(chunk)] != chunk:
                return False
            at += len(chunk)
        if at != content.nbytes:
            return False
        self.below.settle([name.rpartition("/")[0]])
        return True


class _Kept:
    """What has been written to a file so far; beyond a limit it goes `directly` to the storage."""

    def __init__(self, directly: Callable[[], Write]) -> None:
        self.chunks: list[bytes] = []
        self.through: Write | None = None
        self._size = 0
        self._directly = directly

    def write(self, data: Any) -> int:
        if self.through is None and self._size + len(data) > _KEPT_BYTES:
            self.through = self._directly()
            for chunk in self.chunks:
                self.through(chunk)
            self.chunks.clear()
        if self.through is None:
            self.chunks.append(bytes(data))  # whoever wrote it may use the memory again
            self._size += len(data)
        else:
            self.through(data)
        return len(data)


class _RetriedFile:
    """A file for Arrow to read; a part that could not be read is read again from the file opened anew."""

    closed = False

    def __init__(self, storage: RetryingStorage, name: str, file: pa.NativeFile) -> None:
        self._storage, self._name, self._file = storage, name, file
        self._size = storage._do("read", name, file.size)  # noqa: SLF001 - the other half of this module
        self._at = 0
        self._failed = False
        self._lock = threading.Lock()

    def read_buffer(self, size: int) -> pa.Buffer:
        with self._lock:
            content = self._storage._do("read", self._name, lambda: self._part(size))  # noqa: SLF001
            self._at += content.size
            return content

    def _part(self, size: int) -> pa.Buffer:
        if self._failed:
            self._file = self._storage.below.open(self._name)
        self._failed = True
        self._file.seek(self._at)
        content = self._file.read_buffer(size)
        self._failed = False
        return content

    def read(self, size: int) -> bytes:
        content: bytes = self.read_buffer(size).to_pybytes()
        return content

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._file.close()
        self.closed = True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True
