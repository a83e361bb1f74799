"""The measures of balance, on numbers worked out by hand, and where they are 0/0."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.model import Balance, RoutingTable
from evenflow.model.balance import max_over_mean, moved_state, skew, spread, utilisation_ratio, variance

loads = st.lists(st.floats(0, 1e9), min_size=1, max_size=20)


def test_each_formula_by_hand() -> None:
    assert spread([4, 1, 3]) == 0.75  # AF: (4 - 1) / 4
    assert max_over_mean([4, 1, 1]) == 2  # 4 / 2
    assert variance([10, 2]) == 16  # GZ eq. 1: ((10 - 6)^2 + (2 - 6)^2) / 2
    assert skew([40, 20, 40, 0]) == pytest.approx(0.20)  # DP eq. 2: (40 - 25) / (100 - 25), Table 1, WL1 doubling
    assert skew([81, 0, 19, 0]) == pytest.approx(0.75, abs=0.005)  # WL3 doubling
    assert utilisation_ratio([0.9, 0.3]) == pytest.approx(3)  # FX
    before, after = RoutingTable(np.array([0, 0, 1]), (0, 1)), RoutingTable(np.array([0, 1, 0]), (0, 1))
    assert moved_state(before, after, [100, 20, 3]) == 23  # GZ eq. 2


def test_nothing_is_perfectly_even() -> None:
    assert spread([0, 0]) == 0
    assert max_over_mean([0, 0]) == 1
    assert skew([0, 0]) == 0  # DP-A6
    assert skew([7]) == 0  # one lane
    assert utilisation_ratio([0, 0]) == 1
    assert utilisation_ratio([0.5, 0]) == math.inf  # FX-A4


@given(loads)
def test_measures_keep_their_ranges_and_agree_on_perfect_balance(values: list[float]) -> None:
    assert 0 <= spread(values) <= 1
    assert max_over_mean(values) >= 1 - 1e-9
    assert 0 <= skew(np.round(values)) <= 1
    level = [values[0]] * len(values)
    assert (spread(level), skew(np.round(level))) == (0, 0)
    assert max_over_mean(level) == pytest.approx(1)


def test_all_side_by_side_for_json() -> None:
    balance = Balance.of([2.0, 1.0], [0.5, 0.0], [200, 100])
    assert balance.as_dict() == {
        "spread": 0.5,
        "max_over_mean": pytest.approx(4 / 3),
        "variance": 0.25,
        "skew": pytest.approx(50 / 150),
        "utilisation_ratio": None,
        "max_load": 2.0,
        "mean_load": 1.5,
    }
