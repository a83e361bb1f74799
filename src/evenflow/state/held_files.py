"""Which data files are needed: records name ranges of files, later ones do without them; what is left is garbage.

Ranges have small numbers, so that columns can refer to them; the number of one that is not needed any more is used
again. A file goes when none of its ranges is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from evenflow.model import Epoch
from evenflow.model.slots import BoolArray, IntArray
from evenflow.state.files import FileRef
from evenflow.state.naming import epoch_of


@dataclass(slots=True)
class HeldFiles:
    """The ranges that are needed, by number, and the files that nobody needs."""

    refs: list[FileRef | None] = field(default_factory=list)
    garbage: dict[str, None] = field(default_factory=dict)  # in the order in which they became useless
    _numbers: dict[FileRef, int] = field(default_factory=dict)
    _unused: list[int] = field(default_factory=list)  # numbers
    _ranges: Counter[str] = field(default_factory=Counter)  # of each file

    def number(self, ref: FileRef) -> int:
        """Return the number of a range; it is needed from now on, until `keep_only` is told otherwise."""
        found = self._numbers.get(ref)
        if found is not None:
            return found
        if self._unused:
            number = self._unused.pop()
            self.refs[number] = ref
        else:
            number = len(self.refs)
            self.refs.append(ref)
        self._numbers[ref] = number
        self._ranges[ref.name] += 1
        self.garbage.pop(ref.name, None)
        return number

    def ref(self, number: int) -> FileRef:
        """Return the range that a number stands for."""
        found = self.refs[number]
        if found is None:
            raise KeyError(number)
        return found

    def keep_only(self, used: BoolArray) -> None:
        """Forget all ranges but those that are used; files without any are garbage."""
        for number in np.flatnonzero(~used).tolist():
            ref = self.refs[number]
            if ref is None:
                continue
            self.refs[number] = None
            del self._numbers[ref]
            self._unused.append(number)
            self._ranges[ref.name] -= 1
            if not self._ranges[ref.name]:
                del self._ranges[ref.name]
                self.garbage[ref.name] = None

    def discard(self, names: Iterable[str]) -> None:
        """Take files for garbage that no record needs; those that one needs stay."""
        self.garbage.update(dict.fromkeys(name for name in names if name not in self._ranges))

    def wasteful(self, needed: IntArray, before: Epoch) -> BoolArray:
        """Return which ranges lie in files from before an epoch of which less than half the bytes are needed."""
        bytes_needed, sizes = Counter[str](), Counter[str]()
        for ref, count in zip(self.refs, needed.tolist(), strict=True):
            if ref is not None:
                bytes_needed[ref.name] += count
                sizes[ref.name] = max(sizes[ref.name], ref.start + ref.size)
        found = {
            name for name, size in sizes.items() if 2 * bytes_needed[name] < size and (epoch_of(name) or 0) < before
        }
        return np.array([ref is not None and ref.name in found for ref in self.refs], dtype=bool)

    def __contains__(self, name: str) -> bool:
        """Tell whether a file is needed."""
        return name in self._ranges

    def __iter__(self) -> Iterator[str]:
        """Go through the names of the files that are needed."""
        return iter(self._ranges)
