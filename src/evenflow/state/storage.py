"""Where files lie: a local folder, or one on any filesystem that pyarrow reaches. Knows bytes, not what they mean.

A file appears whole or not at all, and is never overwritten in place:

=============================  ===================================================================================
local                          written beside its place, flushed to disk, renamed; the folder is flushed as well,
                               at once or, for many files that count together, by `settle`
HDFS and other filesystems     written beside its place, renamed
object stores                  one upload, which shows only when it is complete
=============================  ===================================================================================

Of two who create the same name with `exclusive`, one gets it: locally always (it is linked, not renamed), elsewhere
unless both do it at the same moment.

Errors of the system below come out as they are; `Folder` says what they mean.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from evenflow.errors import UnreachableError

TEMPORARY = ".tmp"
Write: TypeAlias = Callable[[Any], object]
# What survives a power cut when `create` ends: the file (True), what is in it but perhaps not its name, nothing.
Durable: TypeAlias = Literal["content"] | bool

_WRITE_BUFFER = 1 << 16
_DELETIONS = 16  # at the same time
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:")
# What Spark users write for the stores that Arrow calls otherwise.
_SPARK_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_LOGINS = {"s3", "s3a", "s3n", "gs", "gcs"}  # here a user's key may stand before the bucket; Hadoop refuses it
_WHOLE_UPLOADS = {"s3", "gcs", "abfs"}
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}  # what filesystems without hard links say


class NameTakenError(Exception):
    """There is a file of the name that was to be created."""


class NotFlushedError(OSError):
    """A folder's new names could not be flushed to disk: whether they survive a power cut is not known."""


class Storage(Protocol):
    """A tree of files below one root; names are relative to it and use slashes."""

    @property
    def location(self) -> str:
        """What `storage_at` takes to find this storage from another process."""

    def address(self, name: str) -> str:
        """Return the full address of a name, for people: without credentials."""

    def create(self, name: str, *, exclusive: bool = False) -> AbstractContextManager[Write]:
        """Open a new file; it appears when the block ends, or never if the block fails.

        With `exclusive`, a file that is there is not replaced: NameTakenError.
        """

    def settle(self, folders: Iterable[str]) -> None:
        """Let the names of all files in these folders survive a power cut, whoever wrote them."""

    def open(self, name: str) -> pa.NativeFile:
        """Open a file for reading at any place."""

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder, in any order, its folders with a slash at the end; a missing one is empty."""

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""

    def delete(self, names: Sequence[str]) -> None:
        """Remove files, in one go where that can be done; those that are not there are fine."""


def storage_at(location: str, *, durable: Durable = True) -> Storage:
    """Return the storage at a path or URI (`file:`, `hdfs://`, `s3://`, `gs://`, ...); nothing is created yet."""
    filesystem, root = filesystem_at(location, "checkpoint location")
    if isinstance(filesystem, fs.LocalFileSystem):
        return LocalStorage(root, durable)
    return RemoteStorage(filesystem, root, location, filesystem.type_name in _WHOLE_UPLOADS)


def filesystem_at(location: str, what: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem of a path or URI, as Spark's users write it, and the path there. `what` is it for?"""
    if _SCHEME.match(location) is None:
        return fs.LocalFileSystem(), str(Path(location).absolute())
    uri = _as_uri(location)
    try:
        filesystem, root = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        shown = _without_secrets(uri)
        raise UnreachableError(
            f"{what} {shown} cannot be reached: {str(error).replace(uri, shown)}. Expected a local path "
            f"or a URI that pyarrow.fs knows: file:///path, hdfs://host:port/path, s3://bucket/path, gs://bucket/path"
        ) from error
    return filesystem, root.rstrip("/")


def has_scheme(location: str) -> bool:
    """Return whether a location is a URI; if not, it is a path."""
    return _SCHEME.match(location) is not None


def below(location: str, name: str) -> str:
    """Return the location of a file or folder in another one; a URI may end in options, which stay at the end."""
    path, options = _parted(location)
    return f"{path.rstrip('/')}/{name}{options}"


def spark_path(location: str) -> str:
    """Return how Spark calls a location: without what is said to Arrow only, options and keys to a store.

    A path without a scheme is local, whatever Hadoop takes for its default filesystem.
    """
    if _SCHEME.match(location) is None:
        return f"file:{Path(location).absolute()}"
    scheme, rest = _parted(location)[0].rstrip("/").split(":", 1)
    host, slash, path = rest.removeprefix("//").partition("/")
    login, at, server = host.rpartition("@")
    if scheme in _LOGINS:
        at = login = ""
    # What is left before the @ is a user, or a container of Azure's; a password or key after the colon is for Arrow.
    return f"{scheme}:{'//' if rest.startswith('//') else ''}{login.partition(':')[0]}{at}{server}{slash}{path}"


def _parted(location: str) -> tuple[str, str]:
    """Return a location's path and its options; only URIs have some, in a path a question mark is a letter."""
    path, mark, options = location.partition("?") if _SCHEME.match(location) else (location, "", "")
    return path, f"{mark}{options}"


def _as_uri(location: str) -> str:
    """Return a URI that Arrow reads: Hadoop writes file:/tmp as well, and takes every letter of a path as it is."""
    head, options = _parted(location)
    scheme, rest = head.split(":", 1)
    host, slash, path = (rest if rest.startswith("//") else f"//{rest}").removeprefix("//").partition("/")
    return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{host}{slash}{quote(path)}{options}"


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A folder of this machine, or one that all machines mount; read through memory maps."""

    root: str
    durable: Durable = True

    @property
    def location(self) -> str:
        return self.root

    def address(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    @contextmanager
    def create(self, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        path = Path(self.address(name))
        temporary = Path(_temporary(str(path)))
        try:
            with os.fdopen(_open_new(temporary), "wb", buffering=_WRITE_BUFFER) as file:
                yield file.write
                file.flush()
                if self.durable:
                    os.fsync(file.fileno())
            if exclusive:
                _place_new(temporary, path)
            else:
                temporary.replace(path)
        except Exception:
            with suppress(OSError):
                temporary.unlink()
            raise
        if self.durable is True:
            _flush_folder(path.parent)

    def settle(self, folders: Iterable[str]) -> None:
        if self.durable is True:
            for folder in folders:
                with suppress(FileNotFoundError):  # it has no names to keep
                    _flush_folder(Path(self.address(folder)))

    def open(self, name: str) -> pa.NativeFile:
        path = Path(self.address(name))
        # A memory map cannot be empty.
        return pa.memory_map(str(path)) if path.stat().st_size else pa.BufferReader(b"")

    def names(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        try:
            with os.scandir(self.address(folder)) as entries:
                return [f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}" for entry in entries]
        except FileNotFoundError:
            return []

    def exists(self, name: str) -> bool:
        try:
            Path(self.address(name)).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(f"{self.root}/{name}")  # noqa: PTH108 - a Path takes longer to make than the file to go


@dataclass(frozen=True, slots=True)
class RemoteStorage:
    """A folder on a filesystem of pyarrow's; `location` is how its user calls it.

    `whole_uploads`: a file that is written shows only when it is complete, so that it need not be renamed.
    """

    filesystem: fs.FileSystem
    root: str
    location: str
    whole_uploads: bool = False

    def address(self, name: str) -> str:
        shown = _without_secrets(self.location)
        return f"{shown}/{name}" if name else shown

    @contextmanager
    def create(self, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        path = f"{self.root}/{name}"
        if exclusive and self.exists(name):
            raise NameTakenError(name)
        if self.whole_uploads:
            with self.filesystem.open_output_stream(path) as stream:
                yield stream.write
            return
        temporary = _temporary(path)
        self.filesystem.create_dir(str(PurePosixPath(path).parent), recursive=True)
        try:
            with self.filesystem.open_output_stream(temporary) as stream:
                yield stream.write
            self.filesystem.move(temporary, path)
        except Exception:
            with suppress(OSError):
                self.filesystem.delete_file(temporary)
            raise

    def settle(self, folders: Iterable[str]) -> None:
        """Do nothing: such a filesystem keeps what it has taken."""

    def open(self, name: str) -> pa.NativeFile:
        return self.filesystem.open_input_file(f"{self.root}/{name}")

    def names(self, folder: str) -> list[str]:
        top = f"{self.root}/{folder}" if folder else self.root
        found = self.filesystem.get_file_info(fs.FileSelector(top, allow_not_found=True))
        ends = {fs.FileType.Directory: "/"}
        return [info.path.removeprefix(f"{self.root}/") + ends.get(info.type, "") for info in found]

    def exists(self, name: str) -> bool:
        return bool(self.filesystem.get_file_info(f"{self.root}/{name}").type != fs.FileType.NotFound)

    def delete(self, names: Sequence[str]) -> None:
        """Remove files side by side: Arrow has no call for several."""
        if len(names) == 1:
            self._delete(names[0])
        elif names:
            with ThreadPoolExecutor(min(_DELETIONS, len(names))) as pool:
                list(pool.map(self._delete, names))

    def _delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(f"{self.root}/{name}")


def _temporary(path: str) -> str:
    """Return a name beside `path` that no other writer picks, not even one that was left behind."""
    return f"{path}.{secrets.token_hex(4)}{TEMPORARY}"


def _open_new(path: Path) -> int:
    """Open a new file for writing; make its folder if that is missing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        make_folder(path.parent)
        return os.open(path, flags, 0o666)


def _place_new(temporary: Path, path: Path) -> None:
    """Give a file its name, unless another one has it: of two who try, one succeeds."""
    try:
        os.link(temporary, path)
        temporary.unlink()
    except FileExistsError:
        raise NameTakenError(str(path)) from None
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if path.exists():
            raise NameTakenError(str(path)) from None
        temporary.replace(path)


def make_folder(path: Path) -> None:
    """Make a folder that survives a power cut, and all those above it."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        _flush_folder(path.parent)


def _flush_folder(path: Path) -> None:
    """Make what was made or renamed in a folder survive a power cut."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError as error:
        raise NotFlushedError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(folder)


def _without_secrets(uri: str) -> str:
    """Return a URI without user, password and options, fit for a message."""
    scheme, _, rest = uri.partition("://")
    host, slash, path = rest.partition("?")[0].rstrip("/").partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
