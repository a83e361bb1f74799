"""The assignment is the best there is, and the very one that scipy finds."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from evenflow.policies.assignment import best_assignment


@st.composite
def matrices(draw: st.DrawFn) -> np.typing.NDArray[np.float64]:
    """Return square matrices of whole numbers, most with many ties."""
    size = draw(st.integers(0, 12))
    highest = draw(st.sampled_from([0, 1, 3, 10**6, 2**52]))
    rows = st.lists(st.integers(-highest, highest), min_size=size, max_size=size)
    return np.array(draw(st.lists(rows, min_size=size, max_size=size)), np.float64).reshape(size, size)


@given(matrices())
def test_it_is_scipys_in_every_row(gain: np.typing.NDArray[np.float64]) -> None:
    assert best_assignment(gain).tolist() == linear_sum_assignment(gain, maximize=True)[1].tolist()


@given(matrices().filter(lambda gain: len(gain) <= 5))
def test_no_other_has_a_higher_sum(gain: np.typing.NDArray[np.float64]) -> None:
    rows = range(len(gain))
    found = best_assignment(gain).tolist()
    assert sorted(found) == list(rows)
    most = max(sum(gain[row, column] for row, column in zip(rows, way, strict=True)) for way in permutations(rows))
    assert sum(gain[row, column] for row, column in zip(rows, found, strict=True)) == most


@pytest.mark.parametrize("size", [40, 200])
def test_it_is_scipys_for_many_lanes_too(size: int) -> None:
    """As `clb` asks it: state that sets and lanes have in common, most entries 0."""
    rng = np.random.default_rng(size)
    gain = np.zeros((size, size))
    np.add.at(gain, tuple(rng.integers(0, size, (2, 20 * size))), rng.integers(1, 10**9, 20 * size))
    assert best_assignment(gain).tolist() == linear_sum_assignment(gain, maximize=True)[1].tolist()
