"""Files brought from the checkpoint to a folder of results: each appears there whole, and a second time is the same.

================================================  ==================================================================
both on this machine's folders                    a second name for the same file (a hard link), renamed into place
both in one object store                          copied by the store itself
both on another filesystem, such as HDFS          renamed; a file that has gone and is there has been renamed before
anything else                                     read and written again, under a hidden name first, then renamed
================================================  ==================================================================

Except where a file is renamed away, the checkpoint keeps it until the epoch is noted as published.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs

from evenflow.state.files import FileRef, Folder
from evenflow.state.retrying import RetryingStorage
from evenflow.state.storage import NO_LINKS, LocalStorage, RemoteStorage, Storage, make_folder

_NOT_HERE = {*NO_LINKS, errno.EXDEV, errno.EMLINK}  # no link from that folder to this one


def place(source: Folder, file: FileRef, target: Storage, name: str, hidden: str) -> None:
    """Let a file of the checkpoint appear as `name` in `target`; `hidden` is a name there that readers do not see."""
    here, there = _bare(source.storage), _bare(target)
    if isinstance(here, LocalStorage) and isinstance(there, LocalStorage):
        source.check(file)
        done = _link(Path(here.address(file.name)), there, name, hidden)
    elif isinstance(here, RemoteStorage) and isinstance(there, RemoteStorage):
        done = here.filesystem.equals(there.filesystem) and _hand_over(here, file, there, name)
    else:
        done = False
    if not done:
        put(source.read_bytes(file), target, name, hidden)


def put(content: bytes | pa.Buffer, target: Storage, name: str, hidden: str) -> None:
    """Write a file that readers see when it is whole; one that is there is replaced."""
    there = _bare(target)
    if isinstance(there, RemoteStorage) and there.whole_uploads:
        with target.create(name) as write:
            write(content)
        return
    with target.create(hidden) as write:
        write(content)
    if isinstance(there, LocalStorage):
        _rename(there, hidden, name)
    elif isinstance(there, RemoteStorage):
        _make_parent(there.filesystem, f"{there.root}/{name}")
        move(there.filesystem, f"{there.root}/{hidden}", f"{there.root}/{name}")


def move(filesystem: fs.FileSystem, source: str, target: str) -> None:
    """Rename a file, in place of one that is there; what an earlier try has renamed stays."""
    try:
        filesystem.move(source, target)
    except FileNotFoundError:
        if not _is_there(filesystem, target):
            raise
    except OSError:  # HDFS does not replace
        if not (_is_there(filesystem, source) and _is_there(filesystem, target)):
            raise
        filesystem.delete_file(target)
        filesystem.move(source, target)


def _link(path: Path, there: LocalStorage, name: str, hidden: str) -> bool:
    """Give a file a second name; return whether the two folders allow it."""
    beside = Path(there.address(hidden))
    make_folder(beside.parent)
    try:
        os.link(path, beside)
    except FileExistsError:  # by an earlier try
        beside.unlink()
        os.link(path, beside)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    _rename(there, hidden, name)
    return True


def _rename(there: LocalStorage, hidden: str, name: str) -> None:
    beside, path = Path(there.address(hidden)), Path(there.address(name))
    make_folder(path.parent)
    beside.replace(path)
    beside.unlink(missing_ok=True)  # two names of one file: then nothing is renamed


def _hand_over(here: RemoteStorage, file: FileRef, there: RemoteStorage, name: str) -> bool:
    """Let the filesystem itself copy or rename a file."""
    path, target = f"{here.root}/{file.name}", f"{there.root}/{name}"
    if there.whole_uploads:
        there.filesystem.copy_file(path, target)
        return True
    found = there.filesystem.get_file_info(target)
    if found.type == fs.FileType.File and found.size == file.size:
        return True
    try:
        move(there.filesystem, path, target)
    except FileNotFoundError:  # the file, or the folder it goes to
        if not _is_there(there.filesystem, path):
            raise
        _make_parent(there.filesystem, target)
        move(there.filesystem, path, target)
    return True


def _make_parent(filesystem: fs.FileSystem, path: str) -> None:
    filesystem.create_dir(str(PurePosixPath(path).parent), recursive=True)


def _is_there(filesystem: fs.FileSystem, path: str) -> bool:
    return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)


def _bare(storage: Storage) -> Storage:
    return storage.below if isinstance(storage, RetryingStorage) else storage
