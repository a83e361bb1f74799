"""The hash of keys that a stage puts out: it decides in which slot of the next stage a row is.

Rows of a source are hashed by Spark, in the JVM. What a stage puts out is in a lane, so it is hashed here. The
two need not agree, since a stage gets all its rows from one of them. But a hash must be the same in every process, on
every machine and in every release: slots of a running query are found by it. So there is one definition:

- a key column is a sequence of 64-bit words: a number its value, sign-extended; a float its bits, -0.0 as 0.0 and one
  NaN for all; a decimal, or bytes of a fixed number, its bytes by eights, little-endian, the last eight filled up with
  zeros; a string or bytes of any number its length, then its bytes likewise. Where a value is null, a word of its own
  stands for each word that all values of the column have.
- a row begins with 0; each word w of each column, in order, makes h into ``mix((h ^ w) * M)``, in 64 bits, where M is
  0x9E3779B97F4A7C15 and `mix` is the finalizer of splitmix64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import is_variable, validity, whole
from evenflow.operators.key_columns import bits_of

_Words: TypeAlias = npt.NDArray[np.uint64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xA0761D6478BD642F)
_WORD = 8  # bytes


def hashes_of(rows: pa.Table, keys: Sequence[str]) -> IntArray:
    """Return the hash of each row's key."""
    hashes: _Words = np.zeros(rows.num_rows, np.uint64)
    for name in keys:
        _take_in(hashes, whole(rows, name, rows.schema.field(name).type))
    return hashes.view(np.int64)


def _take_in(hashes: _Words, column: pa.Array) -> None:
    """Take a column into the hashes of its rows."""
    valid = validity(column)
    if is_variable(column.type):
        _take_in_bytes(hashes, column, valid)
        return
    for word in _words_of(bits_of(column)[0]):
        hashes[:] = _mixed(hashes, word if valid is None else np.where(valid, word, _NULL))


def _words_of(bits: npt.NDArray[Any]) -> Iterator[_Words]:
    """Yield the words of fixed-width keys."""
    if bits.dtype.kind != "V":
        yield bits.astype(np.int64).view(np.uint64)
        return
    width = bits.dtype.itemsize
    filled = np.zeros((len(bits), -(-width // _WORD) * _WORD), np.uint8)
    filled[:, :width] = np.ascontiguousarray(bits).view(np.uint8).reshape(len(bits), width)
    for at in range(0, filled.shape[1], _WORD):
        yield np.ascontiguousarray(filled[:, at : at + _WORD]).view("<u8")[:, 0].astype(np.uint64)


def _take_in_bytes(hashes: _Words, column: pa.Array, valid: BoolArray | None) -> None:
    """Take strings or bytes in, eight bytes of all that are long enough at a time."""
    wide = column.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], "<i8", len(wide) + 1, wide.offset * _WORD) if len(wide) else np.zeros(1)
    offsets = offsets.astype(np.int64)
    starts, sizes = offsets[:-1], np.diff(offsets)
    if valid is not None:
        sizes = np.where(valid, sizes, 0)
    lengths = sizes.astype(np.uint64)
    hashes[:] = _mixed(hashes, lengths if valid is None else np.where(valid, lengths, _NULL))
    content = wide.buffers()[2]
    data = np.concatenate([np.frombuffer(content or b"", np.uint8), np.zeros(_WORD, np.uint8)])
    words = np.ndarray((len(data) - _WORD + 1,), "<u8", data.data, strides=(1,))  # one from each byte on
    left, done = np.flatnonzero(sizes > 0), 0
    while len(left):
        word = words[starts[left] + done].astype(np.uint64)
        there = np.minimum(sizes[left] - done, _WORD).astype(np.uint64)
        word &= np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(8) * (np.uint64(_WORD) - there))
        hashes[left] = _mixed(hashes[left], word)
        done += _WORD
        left = left[sizes[left] > done]


def _mixed(hashes: _Words, words: _Words) -> _Words:
    mixed = (hashes ^ words) * _MULTIPLIER
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
