"""Our MurmurHash3 is the one of everybody else."""

from __future__ import annotations

import mmh3
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenflow.policies.murmur import murmur3


@given(st.lists(st.text(max_size=20), max_size=30), st.integers(0, 2**32 - 1))
def test_it_is_murmur3_of_any_texts_and_seed(texts: list[str], seed: int) -> None:
    found = murmur3(texts, seed)
    assert found.dtype == np.int64
    assert found.tolist() == [mmh3.hash(text, seed) for text in texts]


def test_known_values() -> None:
    """The letters of DPA's own example, with its seed."""
    assert murmur3(["f", "d", "a", "b"], 1).tolist() == [-969434419, 488346356, 1485495528, 2006153799]


def test_a_generator_is_as_good_as_a_list() -> None:
    assert murmur3((f"{at}-0" for at in range(9, 12)), 7).tolist() == [mmh3.hash(f"{at}-0", 7) for at in (9, 10, 11)]
