"""WINDOW.json: which epochs windows are of, and that a decision on a saved journal is the one that was made."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from evenflow.control import plan_moves
from evenflow.control.journal import Journal
from evenflow.control.window_json import read_window_json, write_journal_json
from evenflow.errors import InputError
from evenflow.migration import strategy_named
from evenflow.model import LaneLoad, LoadView, LoadWindow, RoutingTable, SlotLoads
from evenflow.policies import policy_named, proposal_of

TABLE = RoutingTable(np.arange(16) // 8, (0, 1))


def window_json(epochs: list[int] | None = None) -> dict[str, Any]:
    written: dict[str, Any] = {"lanes": [{"lane": 0}], "slots": [{"slot": 0, "lane": 0}]}
    return written if epochs is None else {**written, "epochs": epochs}


def epochs_of(*windows: dict[str, Any]) -> list[tuple[int, int]]:
    return [window.epochs for window in read_window_json(json.dumps(list(windows)).encode(), "file").windows]


def window(epoch: int) -> LoadWindow:
    """Return a window in which lane 0 has no time left and falls behind by 1000 records more than the one before."""
    busy = np.where(TABLE.owners == 0, 1 / 8, 0.9 / 8)
    pending = np.where(TABLE.owners == 0, 1000 * (epoch + 1), 0)
    loads = SlotLoads.of(np.round(busy * 1e4), busy, np.full(16, 1000), pending)
    return LoadWindow(loads, (LaneLoad(0, 0.0, 1.0), LaneLoad(1, 0.1, 1.0)), (epoch, epoch))


def test_windows_follow_each_other_where_nothing_else_is_said() -> None:
    assert epochs_of(window_json(), window_json(), window_json()) == [(0, 0), (1, 1), (2, 2)]
    assert epochs_of(window_json([4, 6]), window_json(), window_json([9, 9])) == [(4, 6), (7, 7), (9, 9)]


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        ([[3, 2]], "window 0: expected epochs from 0 on, the first not above the last, got 3 to 2"),
        ([[3, 3], [3, 4]], "window 1: expected epochs from 4 on, .* got 3 to 4; list the windows oldest first"),
        ([[-1, 3]], r"epochs\[0\]: expected `int` >= 0"),
        ([[3]], "epochs: expected `array` of length 2"),
    ],
)
def test_epochs_that_cannot_be_are_refused(spans: list[list[int]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        epochs_of(*map(window_json, spans))


@pytest.mark.parametrize(("epochs", "moves"), [((0, 1, 2), 2), ((0, 3, 4), 0)], ids=["in a row", "with a gap"])
def test_a_plan_from_a_saved_journal_is_what_was_decided(epochs: tuple[int, ...], moves: int) -> None:
    windows, journal = tuple(map(window, epochs)), Journal()
    for one in windows:
        journal.keep_window(one, TABLE)
    file = read_window_json(write_journal_json(journal), "journal")
    assert [one.epochs for one in file.windows] == [(epoch, epoch) for epoch in epochs]
    even = policy_named("even")
    decided = proposal_of(even, LoadView(windows, TABLE)).moves
    assert len(decided) == moves
    assert plan_moves(file.windows, file.table, even, strategy_named("sudden")).moves == decided
