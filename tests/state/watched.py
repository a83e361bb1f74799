"""A storage, and a sink, that know whether they are called under a lock; one call of theirs may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from evenflow.state import FileRef, Storage
from evenflow.state.storage import Write

Call = TypeVar("Call", bound=Callable[..., Any])


def refuse_under(changed: threading.Condition, what: str) -> None:
    """Fail if whoever calls holds the lock."""
    assert not changed._is_owned(), f"{what} under the lock"  # type: ignore[attr-defined]


def never_under(changed: threading.Condition, what: str, call: Call) -> Call:
    """Return a call that fails if whoever calls it holds the lock."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        refuse_under(changed, what)
        return call(*args, **kwargs)

    return checked  # type: ignore[return-value]


@dataclass
class Watched:
    """A storage, and a sink, that must not be called by whoever holds the engine's lock."""

    below: Storage
    changed: threading.Condition
    calls: list[str] = field(default_factory=list)
    hangs: str = ""  # the call that waits until it is let go
    entered: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    @property
    def location(self) -> str:
        return self.below.location

    def address(self, name: str) -> str:
        return self.below.address(name)

    def _reach(self, call: str) -> None:
        refuse_under(self.changed, call)
        self.calls.append(call)
        if self.hangs and call.startswith(self.hangs):
            self.entered.set()
            assert self.let_go.wait(60)

    @contextmanager
    def create(self, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        self._reach(f"create {name}")
        with self.below.create(name, exclusive=exclusive) as write:
            yield write

    def settle(self, folders: Iterable[str]) -> None:
        self._reach("settle")
        self.below.settle(folders)

    def open(self, name: str) -> pa.NativeFile:
        self._reach(f"open {name}")
        return self.below.open(name)

    def names(self, folder: str) -> list[str]:
        self._reach(f"list {folder}")
        return self.below.names(folder)

    def exists(self, name: str) -> bool:
        self._reach(f"look for {name}")
        return self.below.exists(name)

    def delete(self, names: Sequence[str]) -> None:
        self._reach("delete")
        self.below.delete(names)

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        self._reach(f"sink {epoch} {len(files)}")
