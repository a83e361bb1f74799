"""The assignment problem: one column for each row of a square matrix, so that the entries add up to the most.

Shortest augmenting paths with potentials (Jonker and Volgenant; Crouse's form): rows are added one by one, and a path
of least reduced cost makes room for each. At most n^3 steps, a row at a time in numpy. Of several answers that are
equally good the same one comes out every time, and it is the one of scipy's `linear_sum_assignment`.
"""

from __future__ import annotations

import numpy as np

from evenflow.model.slots import BoolArray, FloatArray, IntArray

_NONE = -1


def best_assignment(gain: FloatArray) -> IntArray:
    """Return the column of each row of the square matrix `gain`, all different, whose entries have the highest sum."""
    found = _Assignment(-np.asarray(gain, dtype=np.float64))
    for row in range(len(gain)):
        found.add(row)
    return found.column_of


class _Assignment:
    """Rows that have a column so far, and prices by which none of them would rather have another."""

    def __init__(self, cost: FloatArray) -> None:
        size = len(cost)
        self.cost = cost
        self.row_price, self.column_price = np.zeros(size), np.zeros(size)
        self.column_of: IntArray = np.full(size, _NONE)
        self.row_of: IntArray = np.full(size, _NONE)

    def add(self, row: int) -> None:
        """Give `row` a column; others may change theirs."""
        size = len(self.cost)
        distance = np.full(size, np.inf)  # from `row` to each column, along columns that are taken
        before = np.full(size, _NONE)  # the row from which a column was reached
        order = np.arange(size)[::-1].copy()  # of columns, which settles ties; in front those without a final distance
        rows, left, reached = [row], size, 0.0
        while True:
            here, columns = rows[-1], order[:left]
            through = reached + self.cost[here, columns] - self.row_price[here] - self.column_price[columns]
            shorter = through < distance[columns]
            distance[columns[shorter]] = through[shorter]
            before[columns[shorter]] = here
            at = _nearest(distance[columns], self.row_of[columns] == _NONE)
            column = int(columns[at])
            reached = float(distance[column])
            left -= 1
            order[at], order[left] = order[left], column
            if self.row_of[column] == _NONE:
                break
            rows.append(int(self.row_of[column]))
        self._raise_prices(rows, order[left:], distance, reached)
        self._shift(row, column, before)

    def _raise_prices(self, rows: list[int], columns: IntArray, distance: FloatArray, reached: float) -> None:
        """Make every step of the path free, and none cheaper than that."""
        self.row_price[rows[0]] += reached
        self.row_price[rows[1:]] += reached - distance[self.column_of[rows[1:]]]
        self.column_price[columns] -= reached - distance[columns]

    def _shift(self, row: int, column: int, before: IntArray) -> None:
        """Back along the path, let every row take the column that was reached from it."""
        taker = _NONE
        while taker != row:
            taker = int(before[column])
            self.row_of[column] = taker
            self.column_of[taker], column = column, int(self.column_of[taker])


def _nearest(distance: FloatArray, free: BoolArray) -> int:
    """Return the place of the least distance; of equal ones the last that is free, or else the first."""
    nearest = distance == distance.min()
    ending = np.flatnonzero(nearest & free)
    return int(ending[-1]) if ending.size else int(nearest.argmax())
