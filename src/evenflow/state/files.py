"""Checked files: what was written comes back, or an error says which file is damaged and what can be done.

Tables are Arrow IPC files. Records are JSON in an envelope that says the format, the file's own name and the checksum
of what it holds, so that a record put in the place of another one is noticed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from evenflow.errors import DamagedFileError, UnreachableError
from evenflow.state.retrying import Retries, RetryingStorage
from evenflow.state.storage import Durable, Storage, Write, storage_at

FORMAT = 5
_ALIGNED = 64

_ADVICE = (
    "Restore it from a copy of the checkpoint, or start with a new checkpoint location; the query then reads its "
    "source from the beginning. Nothing was changed."
)
_Value = TypeVar("_Value")


class FileRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that was written, or a range of one: its name below the folder, its bytes, their checksum, the first."""

    name: str
    size: int
    crc32: int
    start: int = 0


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a record is wrapped in; `crc32` is that of the payload's bytes."""

    format: int
    name: str
    crc32: int
    payload: msgspec.Raw


class _Format(msgspec.Struct, frozen=True):
    """The part of the envelope that all formats share."""

    format: int


@dataclass(frozen=True, slots=True)
class Folder:
    """Reads and writes checked files below one root."""

    storage: Storage

    @classmethod
    def at(cls, location: str, *, durable: Durable = True, retries: Retries | None = None) -> Folder:
        """Return the folder at a path or URI; with `durable`, files in a local one survive a power cut.

        With "content" they do so once `settle` was called, by whoever lets them count. `retries` says how long errors
        that may pass are tried again.
        """
        return cls(RetryingStorage(storage_at(location, durable=durable), retries or Retries()))

    @property
    def location(self) -> str:
        """What `at` takes to find this folder from another process."""
        return self.storage.location

    def write_bytes(self, name: str, data: bytes | pa.Buffer, *, exclusive: bool = False) -> FileRef:
        """Write a file that appears whole or not at all; with `exclusive`, one that is there stays: NameTakenError."""
        with self._writing(name), self.storage.create(name, exclusive=exclusive) as write:
            write(data)
        return FileRef(name, len(data), zlib.crc32(data))

    def settle(self, names: Iterable[str]) -> None:
        """Let files written with durable="content" survive a power cut; a flush per folder, however many files."""
        folders = sorted({name.rpartition("/")[0] for name in names})
        with self._reaching("flush", ", ".join(folders)):
            self.storage.settle(folders)

    def read_bytes(self, ref: FileRef) -> bytes:
        """Return what was written."""
        content: bytes = self._checked(ref).to_pybytes()
        return content

    def check(self, ref: FileRef) -> None:
        """Raise unless a file is there and holds as many bytes as were written, no others; they are not read."""
        with self._reading(ref.name), self.storage.open(ref.name) as file:
            size = file.size()
        if (ref.start, ref.size) != (0, size):
            raise self.damaged(ref.name, f"it has {size} bytes, expected {ref.start + ref.size}")

    def write_table(self, name: str, table: pa.Table) -> FileRef:
        """Write a table, one record batch per chunk; let no chunk be empty where batches are counted."""
        with self._writing_arrow(name, table.schema) as (writer, sink):
            writer.write_table(table)
        return FileRef(name, sink.size, sink.crc32)

    def write_tables(self, name: str, tables: Sequence[pa.Table]) -> list[FileRef]:
        """Write tables, of any schemas, one after the other into one file; return the range of each."""
        refs: list[FileRef] = []
        end = 0
        with self._writing(name), self.storage.create(name) as write:
            for table in tables:
                if (
                    gap := -end % _ALIGNED
                ):  # Arrow reads memory maps in place: what is in a range is aligned as in a file
                    write(bytes(gap))
                sink = _ChecksumSink(write)
                with _arrow_file(sink, table.schema) as writer:
                    writer.write_table(table)
                refs.append(FileRef(name, sink.size, sink.crc32, end + gap))
                end += gap + sink.size
        return refs

    def write_batches(self, name: str, batches: Iterable[pa.RecordBatch]) -> FileRef | None:
        """Write record batches of one schema as they come, none kept; without any, no file is made."""
        coming = iter(batches)
        batch = next(coming, None)
        if batch is None:
            return None
        with self._writing_arrow(name, batch.schema) as (writer, sink):
            while batch is not None:
                writer.write_batch(batch)
                batch = next(coming, None)
        return FileRef(name, sink.size, sink.crc32)

    def read_table(self, ref: FileRef, *, verify: bool = True) -> pa.Table:
        """Return a table; from a local folder it is memory-mapped, not copied."""
        with self._decoding(ref):
            return self._reader(ref, verify=verify).read_all()

    def read_batches(self, ref: FileRef, indices: Iterable[int], *, verify: bool = True) -> list[pa.RecordBatch]:
        """Return some record batches of a table; without `verify` only these are fetched."""
        with self._decoding(ref):
            reader = self._reader(ref, verify=verify)
            return [reader.get_batch(index) for index in indices]

    def flaw(self, ref: FileRef) -> str | None:
        """Return what is wrong with a file, None if it is as it was written."""
        try:
            self._checked(ref)
        except DamagedFileError as error:
            return str(error).partition(" is damaged: ")[2].removesuffix(f" {_ADVICE}").rstrip(".")
        return None

    def write_json(self, name: str, value: msgspec.Struct, *, exclusive: bool = False) -> FileRef:
        """Write a record in its envelope; with `exclusive`, one that is there stays: NameTakenError."""
        payload = msgspec.json.encode(value)
        envelope = _Envelope(FORMAT, name, zlib.crc32(payload), msgspec.Raw(payload))
        return self.write_bytes(name, msgspec.json.encode(envelope), exclusive=exclusive)

    def read_json(self, name: str, kind: type[_Value]) -> _Value:
        """Return a record; one of a newer format is refused, as is one that belongs under another name."""
        content = self._content(name).to_pybytes()
        try:
            return msgspec.json.decode(self._payload(name, content), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.damaged(name, f"it is not a record of the expected kind: {error}") from error

    def names(self, folder: str = "") -> list[str]:
        """Return the files in a folder, ascending, and its folders with a slash at the end; none if it is missing."""
        with self._reaching("list", folder):
            return sorted(self.storage.names(folder))

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        with self._reaching("look for", name):
            return self.storage.exists(name)

    def delete(self, names: Iterable[str]) -> int:
        """Remove files, all in one go; those that are not there are fine. Return how many were asked for."""
        asked = list(names)
        if asked:
            with self._reaching("remove", asked[0] if len(asked) == 1 else f"{asked[0]} and {len(asked) - 1} others"):
                self.storage.delete(asked)
        return len(asked)

    def damaged(self, name: str, what: str) -> DamagedFileError:
        """Return the error that says what is wrong with a file."""
        return DamagedFileError(f"checkpoint file {self.storage.address(name)} is damaged: {what}. {_ADVICE}")

    def _payload(self, name: str, content: bytes) -> bytes:
        """Return what an envelope holds, after all checks."""
        written = msgspec.json.decode(content, type=_Format).format
        if written > FORMAT:
            raise self.damaged(
                name, f"it has format {written}, and this evenflow reads formats up to {FORMAT}; use a newer evenflow"
            )
        envelope = msgspec.json.decode(content, type=_Envelope)
        payload = bytes(envelope.payload)
        if envelope.format != FORMAT:
            raise self.damaged(name, f"it has format {envelope.format}, which no release has written")
        if zlib.crc32(payload) != envelope.crc32:
            raise self.damaged(name, f"its checksum is {zlib.crc32(payload)}, expected {envelope.crc32}")
        if envelope.name != name:
            raise self.damaged(name, f"it was written as {envelope.name}")
        return payload

    def _reader(self, ref: FileRef, *, verify: bool) -> Any:
        """Open a table for reading; its bytes are checked with `verify`, else only how many there are."""
        with self._reading(ref.name):
            file = self.storage.open(ref.name)
            if not verify and file.size() == ref.size:
                return pa.ipc.open_file(file)
        return pa.ipc.open_file(self._range(ref, file, verify=verify))

    def _checked(self, ref: FileRef) -> pa.Buffer:
        """Return the bytes of a range if they are those that were written."""
        with self._reading(ref.name):
            file = self.storage.open(ref.name)
        return self._range(ref, file, verify=True)

    def _range(self, ref: FileRef, file: pa.NativeFile, *, verify: bool) -> pa.Buffer:
        """Return the bytes of a range of an open file."""
        with self._reading(ref.name):
            size = file.size()
            file.seek(min(ref.start, size))
            content = file.read_buffer(ref.size)
        if ref.start + ref.size > size:
            raise self.damaged(ref.name, f"it has {size} bytes, expected {ref.start + ref.size}")
        found = zlib.crc32(content) if verify else ref.crc32
        if found != ref.crc32:
            raise self.damaged(ref.name, f"its checksum is {found}, expected {ref.crc32}")
        return content

    def _content(self, name: str) -> pa.Buffer:
        with self._reading(name):
            return self.storage.open(name).read_buffer()

    @contextmanager
    def _decoding(self, ref: FileRef) -> Iterator[None]:
        try:
            with self._reaching("read", ref.name):
                yield
        except pa.ArrowException as error:
            raise self.damaged(ref.name, f"it is not the Arrow file that was written: {error}") from error

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            with self._reaching("read", name):
                yield
        except UnreachableError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise self.damaged(name, "it is missing") from error.__cause__
            raise

    @contextmanager
    def _writing_arrow(self, name: str, schema: pa.Schema) -> Iterator[tuple[Any, _ChecksumSink]]:
        """Open an Arrow file for writing; size and checksum are known when it is closed."""
        with self._writing(name), self.storage.create(name) as write:
            sink = _ChecksumSink(write)
            with _arrow_file(sink, schema) as writer:
                yield writer, sink

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        with self._reaching("write", name):
            yield

    @contextmanager
    def _reaching(self, verb: str, name: str) -> Iterator[None]:
        """Say what the system could not do, and to which file."""
        try:
            yield
        except OSError as error:
            raise UnreachableError(
                f"checkpoint: cannot {verb} {self.storage.address(name)}: {error}. "
                f"See that the location exists, has room and may be written by this user, then start again."
            ) from error


@contextmanager
def _arrow_file(sink: _ChecksumSink, schema: pa.Schema) -> Iterator[Any]:
    """Give a writer of one Arrow file."""
    options = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
    with pa.PythonFile(sink, mode="w") as file, pa.ipc.new_file(file, schema, options=options) as writer:
        yield writer


class _ChecksumSink:
    """A file object for Arrow's writer that adds up size and checksum on the way."""

    closed = False

    def __init__(self, write: Write) -> None:
        self._write = write
        self.size = 0
        self.crc32 = 0

    def write(self, data: Any) -> int:
        self.crc32 = zlib.crc32(data, self.crc32)
        self._write(data)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Leave it to the storage, which flushes once at the end."""

    def close(self) -> None:
        """Leave it to the storage."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


__all__ = ["FORMAT", "FileRef", "Folder"]
