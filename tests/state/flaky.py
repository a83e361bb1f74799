"""A storage whose calls fail now and then with errors that pass; some of them are carried out all the same."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from unittest.mock import patch

import pyarrow as pa

from evenflow.state import Retries, Storage, files
from evenflow.state.storage import Durable, Write, storage_at

_Result = TypeVar("_Result")


@contextmanager
def flaky_storage(rng: random.Random, rate: float) -> Iterator[None]:
    """Let every folder that is opened in this process fail at that rate; who tries again does not wait for it."""

    def flaky(location: str, *, durable: Durable = True) -> Storage:
        return Flaky(storage_at(location, durable=durable), rng, rate)

    at_once = partial(Retries, clock=lambda: 0.0, sleep=lambda _: None)
    with patch.object(files, "storage_at", flaky), patch.object(files, "Retries", at_once):
        yield


@dataclass
class Flaky:
    """Fails before or after what it does, as the dice fall."""

    below: Storage
    rng: random.Random
    rate: float

    @property
    def location(self) -> str:
        return self.below.location

    def address(self, name: str) -> str:
        return self.below.address(name)

    def _perhaps(self) -> None:
        if self.rng.random() < self.rate:
            raise OSError(errno.ESTALE, "Stale file handle")

    def _do(self, act: Callable[[], _Result]) -> _Result:
        self._perhaps()
        result = act()
        self._perhaps()
        return result

    @contextmanager
    def create(self, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        self._perhaps()
        with self.below.create(name, exclusive=exclusive) as write:
            yield write
            self._perhaps()
        self._perhaps()

    def settle(self, folders: Iterable[str]) -> None:
        self._do(lambda: self.below.settle(folders))

    def open(self, name: str) -> pa.NativeFile:
        return self._do(lambda: self.below.open(name))

    def names(self, folder: str) -> list[str]:
        return self._do(lambda: self.below.names(folder))

    def exists(self, name: str) -> bool:
        return self._do(lambda: self.below.exists(name))

    def delete(self, names: Sequence[str]) -> None:
        self._do(lambda: self.below.delete(names))
