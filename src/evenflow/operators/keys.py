"""The keys of a state: which row belongs to the key of each input row, and what the key of a row is.

A single key of at most 64 bits is its own identity in the index and is not stored again. All other keys are
identified by the hash that came with the row; the key itself is stored and compared, so that two keys with the same
hash stay two keys. Floats are normalised as Spark groups them: NaN equals NaN, -0.0 equals 0.0. Null is a key too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import Array, array_of, fixed_dtype, is_variable, whole
from evenflow.operators.base import HASH, SLOT
from evenflow.operators.key_columns import Encoded, bits_of, key_column_for
from evenflow.operators.key_index import KeyIndex

_IDENTITY_BYTES = 8
_BULK = 4  # an install of more than 1 / _BULK of what is there rebuilds the index instead of probing it
_PORTION = 1 << 20  # rows looked up at a time, which bounds the temporary arrays


def check_keys(schema: pa.Schema, keys: tuple[str, ...]) -> None:
    """Refuse keys that are missing, come twice, or have a type that cannot be a key."""
    if not keys:
        raise InputError("a keyed operator needs at least one key column, got none")
    for name in keys:
        if keys.count(name) > 1:
            raise InputError(f"key column {name!r} is given {keys.count(name)} times; once is enough")
        if schema.get_field_index(name) < 0:
            raise InputError(f"there is no key column {name!r}; the input has {', '.join(schema.names)}")
        kind = schema.field(name).type
        if fixed_dtype(kind) is None and not is_variable(kind):
            raise InputError(
                f"key column {name!r} has type {kind}, which cannot be a key; expected numbers, booleans, strings, "
                "binary, decimals, dates or timestamps: select the fields of a struct as keys of their own"
            )


def is_direct(schema: pa.Schema, keys: tuple[str, ...]) -> bool:
    """Tell whether the key is its own identity, so that no hash is needed."""
    dtype = fixed_dtype(schema.field(keys[0]).type)
    return len(keys) == 1 and dtype is not None and dtype.kind != "V" and dtype.itemsize <= _IDENTITY_BYTES


def keys_for(schema: pa.Schema, keys: tuple[str, ...], slots: int) -> Keys:
    """Return empty keys of these columns."""
    check_keys(schema, keys)
    kinds = {name: schema.field(name).type for name in keys}
    return DirectKeys(kinds, slots) if is_direct(schema, keys) else HashedKeys(kinds, slots)


class Keys(ABC):
    """The keys of all rows. Those that the index cannot tell by identity are loose rows there, found here by value."""

    def __init__(self, kinds: dict[str, pa.DataType], slots: int) -> None:
        """Start empty."""
        self.kinds = kinds
        self.index = KeyIndex(slots)
        self._loose: dict[Hashable, int] = {}

    @abstractmethod
    def find(self, table: pa.Table, slots: Array) -> IntArray:
        """Return the row of each key in `table`; unseen keys get new rows, at the end."""

    @abstractmethod
    def read(self, rows: IntArray) -> dict[str, pa.Array]:
        """Return the columns that say which keys these rows have, as state tables carry them."""

    @abstractmethod
    def _append(self, table: pa.Table, slots: Array) -> bool:
        """Append keys without probing if all are known to be new and different; tell whether that was done."""

    def load(self, state: pa.Table) -> IntArray:
        """Return the row of each key in a state table; new ones are added, in bulk where possible."""
        slots = whole(state, SLOT, pa.int32()).to_numpy()
        low = self.index.rows
        if self._is_fresh(slots) and self._append(state, slots):
            return np.arange(low, self.index.rows)
        starts = range(0, len(slots), _PORTION)
        found = [self.find(state.slice(at, _PORTION), slots[at : at + _PORTION]) for at in starts]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _is_fresh(self, slots: Array) -> bool:
        """Tell whether an install is large and of slots that have no rows yet."""
        coming = np.bincount(slots, minlength=len(self.index.slot_rows))
        return len(slots) * _BULK > self.index.rows and not ((coming > 0) & (self.index.slot_rows > 0)).any()

    def forget(self, rows: IntArray) -> None:
        """Remove rows."""
        if self._loose:
            gone = set(rows.tolist())
            self._loose = {key: row for key, row in self._loose.items() if row not in gone}
        self.index.forget(rows)

    def keep(self) -> IntArray:
        """Renumber the live rows from 0 and return their old numbers."""
        kept = self.index.keep()
        self._loose = {key: int(np.searchsorted(kept, row)) for key, row in self._loose.items()}
        return kept

    @property
    def nbytes(self) -> int:
        """The memory taken."""
        return self.index.nbytes

    def _find_loose(self, items: Sequence[Hashable], identities: IntArray, slots: Array) -> tuple[IntArray, IntArray]:
        """Return the loose row of each key, one by one, and the positions that made a new one."""
        rows, new = np.empty(len(items), np.int64), []
        for at, item in enumerate(items):
            row = self._loose.get(item)
            if row is None:
                row = self._loose[item] = int(self.index.append_loose(identities[at : at + 1], slots[at : at + 1])[0])
                new.append(at)
            rows[at] = row
        return rows, np.array(new, np.int64)


class DirectKeys(Keys):
    """One fixed-width key: its bits are the identity. The null key is a loose row."""

    def __init__(self, kinds: dict[str, pa.DataType], slots: int) -> None:
        """Start empty."""
        super().__init__(kinds, slots)
        self._name, self._kind = next(iter(kinds.items()))
        self._stored = fixed_dtype(self._kind)

    def find(self, table: pa.Table, slots: Array) -> IntArray:
        bits, valid = bits_of(whole(table, self._name, self._kind))
        identities = bits.astype(np.int64)
        if valid is None:
            return self.index.find(identities, slots)[0].astype(np.int64)
        present, null = np.flatnonzero(valid), np.flatnonzero(~valid)
        rows = np.empty(len(valid), np.int64)
        rows[present] = self.index.find(identities[present], slots[present])[0]
        rows[null] = self._find_loose([None], identities[null], slots[null])[0]
        return rows

    def read(self, rows: IntArray) -> dict[str, pa.Array]:
        identities = self.index.identities(rows)
        bits = identities.astype(f"i{self._stored.itemsize}") if self._stored is not None else identities
        valid = rows != self._loose[None] if self._loose else None
        return {self._name: array_of(bits, self._kind, valid)}

    def _append(self, table: pa.Table, slots: Array) -> bool:
        bits, valid = bits_of(whole(table, self._name, self._kind))
        identities = bits.astype(np.int64)
        if valid is not None or self.index.has_any(identities):
            return False
        self.index.append(identities, slots)
        return True


class HashedKeys(Keys):
    """Any other key: identified by its hash, stored column by column, compared.

    Of several keys with one hash one is in the index, the others are loose rows, looked up one at a time; of
    370,000 states with 10 million keys, one has such a pair. When the one in the index is removed, another takes its
    place there.
    """

    def __init__(self, kinds: dict[str, pa.DataType], slots: int) -> None:
        """Start empty."""
        super().__init__(kinds, slots)
        self._columns = {name: key_column_for(kind) for name, kind in kinds.items()}

    def find(self, table: pa.Table, slots: Array) -> IntArray:
        keys, hashes = self._encode(table), _hashes(table)
        found, new = self.index.find(hashes, slots)
        rows = found.astype(np.int64)
        self._store(keys, new)
        compared = np.ones(len(rows), np.bool_)
        compared[new] = False
        check = np.flatnonzero(compared)
        wrong = check[~self._same(keys, check, rows[check])]
        if len(wrong):
            rows[wrong], new = self._find_loose(self._items(keys, wrong), hashes[wrong], slots[wrong])
            self._store(keys, wrong[new])
        return rows

    def read(self, rows: IntArray) -> dict[str, pa.Array]:
        columns = {name: column.take(rows) for name, column in self._columns.items()}
        return {HASH: pa.array(self.index.identities(rows)), **columns}

    def forget(self, rows: IntArray) -> None:
        super().forget(rows)
        # Else a hash that leads nowhere would get a new row for a key that has a loose one.
        self._loose = {key: row for key, row in self._loose.items() if not self.index.tie(row)}

    def keep(self) -> IntArray:
        kept = super().keep()
        for column in self._columns.values():
            column.keep(kept)
        return kept

    @property
    def nbytes(self) -> int:
        """The memory taken."""
        return self.index.nbytes + sum(column.nbytes for column in self._columns.values())

    def _append(self, table: pa.Table, slots: Array) -> bool:
        hashes = _hashes(table)
        if self.index.has_any(hashes):
            return False
        self.index.append(hashes, slots)
        self._store(self._encode(table), None)
        return True

    def _encode(self, table: pa.Table) -> list[Encoded]:
        return [column.encode(whole(table, name, self.kinds[name])) for name, column in self._columns.items()]

    def _store(self, keys: list[Encoded], at: IntArray | None) -> None:
        """Append the keys at some positions, or all, for the rows that were just made."""
        for column, key in zip(self._columns.values(), keys, strict=True):
            column.append(key, at)

    def _same(self, keys: list[Encoded], at: IntArray, rows: IntArray) -> BoolArray:
        same = np.ones(len(at), np.bool_)
        for column, key in zip(self._columns.values(), keys, strict=True):
            same &= column.same(key, at, rows)
        return same

    def _items(self, keys: list[Encoded], at: IntArray) -> list[Hashable]:
        columns = zip(self._columns.values(), keys, strict=True)
        return list(zip(*(column.items(key, at) for column, key in columns), strict=True))


def _hashes(table: pa.Table) -> IntArray:
    hashes: IntArray = whole(table, HASH, pa.int64()).to_numpy()
    return hashes
