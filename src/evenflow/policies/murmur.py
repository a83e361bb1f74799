"""MurmurHash3 (x86, 32 bits) of many short texts at once: the hash of DPA's consistent-hashing ring."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from evenflow.model.slots import IntArray

_Words = npt.NDArray[np.uint32]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_N, _F1, _F2 = np.uint32(0xE6546B64), np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_WORD = 4  # bytes


def murmur3(texts: Iterable[str], seed: int) -> IntArray:
    """Return the hash of each text (UTF-8), as signed 32-bit numbers."""
    encoded = [text.encode() for text in texts]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    found = np.empty(len(encoded), np.int64)
    for length in np.unique(lengths).tolist():  # texts of one length are one matrix
        rows = np.flatnonzero(lengths == length)
        letters = np.frombuffer(b"".join(encoded[row] for row in rows.tolist()), np.uint8)
        found[rows] = _hash(letters.reshape(rows.size, length), seed).view(np.int32)
    return found


def _hash(letters: npt.NDArray[np.uint8], seed: int) -> _Words:
    """Return the hash of each row; numbers wrap around at 32 bits."""
    count, length = letters.shape
    rest = length % _WORD
    padded = np.zeros((count, length - rest + (_WORD if rest else 0)), np.uint8)
    padded[:, :length] = letters
    words = padded.view("<u4").astype(np.uint32)
    whole = length // _WORD
    found = np.full(count, seed, np.uint32)
    for at in range(whole):
        found ^= _scrambled(words[:, at])
        found = _rotated(found, 13) * np.uint32(5) + _N
    if rest:
        found ^= _scrambled(words[:, whole])
    found ^= np.uint32(length)
    found = (found ^ (found >> np.uint32(16))) * _F1
    found = (found ^ (found >> np.uint32(13))) * _F2
    return found ^ (found >> np.uint32(16))


def _scrambled(words: _Words) -> _Words:
    return _rotated(words * _C1, 15) * _C2


def _rotated(words: _Words, bits: int) -> _Words:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
