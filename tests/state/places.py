"""Storages for the tests: all kinds of them on local disk, and one that dies at a chosen step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import fs

from evenflow.model import Contents, HeldAggregate
from evenflow.state import CheckpointOptions, Identity, StageIdentity
from evenflow.state.storage import TEMPORARY, LocalStorage, RemoteStorage, Storage, Write

OFTEN = CheckpointOptions(base_bytes=0, base_ratio=0.0)  # records are summed up with every sweep

MakeStorage = Callable[[Path], Storage]


def local(root: Path) -> Storage:
    return LocalStorage(str(root), durable=False)


def durable(root: Path) -> Storage:
    return LocalStorage(str(root), durable=True)


def remote(root: Path) -> Storage:
    """A filesystem of pyarrow's that is not known to be local: written beside, then renamed."""
    return RemoteStorage(fs.PyFileSystem(Handler()), str(root), f"test://user:secret@host{root}?region=x")


def object_store(root: Path) -> Storage:
    """One whose uploads are whole: no temporary names, no folders to be made."""
    return RemoteStorage(fs.PyFileSystem(UploadHandler()), str(root), f"s3://bucket{root}", whole_uploads=True)


KINDS: dict[str, MakeStorage] = {"local": local, "durable": durable, "remote": remote, "object store": object_store}


class Handler(fs.FileSystemHandler):  # type: ignore[misc]
    """The local filesystem, seen through pyarrow's interface for foreign ones."""

    def __init__(self) -> None:
        self.below = fs.LocalFileSystem()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def get_type_name(self) -> str:
        return "test"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        found: list[fs.FileInfo] = self.below.get_file_info(paths)
        return found

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        found: list[fs.FileInfo] = self.below.get_file_info(selector)
        return found

    def create_dir(self, path: str, recursive: bool) -> None:
        self.below.create_dir(path, recursive=recursive)

    def delete_file(self, path: str) -> None:
        self.below.delete_file(path)

    def move(self, source: str, target: str) -> None:
        if Path(target).exists():
            raise OSError(f"{target} is there, and HDFS does not replace")
        self.below.move(source, target)

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self.below.open_input_file(path)

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        return self.below.open_output_stream(path, metadata=metadata)

    def _not_used(self, *_: object) -> None:
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        self.below.delete_dir(path)

    def copy_file(self, source: str, target: str) -> None:
        raise NotImplementedError("HDFS does not copy")

    delete_dir_contents = delete_root_dir_contents = _not_used
    open_input_stream = open_append_stream = _not_used


class UploadHandler(Handler):
    """A store without folders."""

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        self.below.create_dir(str(Path(path).parent), recursive=True)
        return super().open_output_stream(path, metadata)

    def move(self, source: str, target: str) -> None:
        raise AssertionError(f"{source} to {target}: an object store does not rename")

    def copy_file(self, source: str, target: str) -> None:
        self.below.create_dir(str(Path(target).parent), recursive=True)
        self.below.copy_file(source, target)


class Killed(BaseException):
    """The process is gone: nothing after it runs, no clean-up either."""


@dataclass
class Fuse:
    """Blows at the n-th step from now; None is never."""

    steps: int | None = None

    def step(self) -> None:
        if self.steps is None:
            return
        self.steps -= 1
        if self.steps <= 0:
            self.steps = None
            raise Killed


@dataclass
class MortalStorage:
    """A local storage whose process can be killed before, within and after each write and each removal."""

    root: str
    fuse: Fuse = field(default_factory=Fuse)

    def __post_init__(self) -> None:
        self.below = LocalStorage(self.root, durable=False)

    @property
    def location(self) -> str:
        return self.root

    def address(self, name: str) -> str:
        return self.below.address(name)

    @contextmanager
    def create(self, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        self.fuse.step()
        with self.below.create(name, exclusive=exclusive) as write:
            yield write
            try:
                self.fuse.step()
            except Killed:
                left = Path(f"{self.address(name)}.dead{TEMPORARY}")
                left.parent.mkdir(parents=True, exist_ok=True)
                left.write_bytes(b"{half of it")
                raise
        self.fuse.step()

    def settle(self, folders: Iterable[str]) -> None:
        self.fuse.step()
        self.below.settle(folders)

    def open(self, name: str) -> pa.NativeFile:
        return self.below.open(name)

    def names(self, folder: str) -> list[str]:
        return self.below.names(folder)

    def exists(self, name: str) -> bool:
        return self.below.exists(name)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.fuse.step()
            self.below.delete([name])


def identity(slots: int = 4, **other: Any) -> Identity:
    """A query of one stage; `other` fields of the stage or of the query."""
    stage = StageIdentity(
        keys=("auction", "bidder"),
        key_types=("bigint", "string"),
        slots=slots,
        contents=Contents("aggregates", aggregates=(HeldAggregate("total", "sum(price)", "int32"),)),
    )
    of_stage = {name: other.pop(name) for name in stage.__struct_fields__ if name in other}
    query = Identity("q-1", (msgspec.structs.replace(stage, **of_stage),), output_mode="update", created_at_s=1.5)
    return msgspec.structs.replace(query, **other)
