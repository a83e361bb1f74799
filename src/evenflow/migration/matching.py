"""Edge colouring: moves into steps so that no lane is in two moves of one step.

Lanes are vertices, moves are edges of a multigraph; a colour class is a matching. Where no lane both gives and takes
(scaling out or in, relief of hot lanes) the graph is bipartite and König's theorem holds: as many colours as the
busiest lane has moves, found by flipping alternating chains. With odd cycles more may be needed (Shannon: up to
half as many again); then a chain that cannot be flipped costs a fresh colour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count


def edge_colours(edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return a colour (0, 1, ...) for each edge so that edges that share a vertex differ."""
    colouring = _Colouring(edges)
    for edge in range(len(edges)):
        colouring.add(edge)
    return [colouring.colours[edge] for edge in range(len(edges))]


@dataclass
class _Colouring:
    edges: Sequence[tuple[int, int]]
    colours: dict[int, int] = field(default_factory=dict)  # edge -> colour
    at: defaultdict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))  # vertex, colour -> edge
    lowest: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))  # vertex: below it, all are used

    def add(self, edge: int) -> None:
        """Colour one more edge; others may change theirs."""
        left, right = self.edges[edge]
        mine, yours = self._free(left), self._free(right)
        if mine not in self.at[right]:
            self._paint(edge, mine)
        elif yours not in self.at[left]:
            self._paint(edge, yours)
        else:
            chain, end = self._chain(right, mine, yours)
            if end == left:  # an odd cycle: flipping would only carry the clash around
                both = (colour for colour in count() if colour not in self.at[left] | self.at[right])
                self._paint(edge, next(both))
            else:
                self._flip(chain, mine, yours)
                self._paint(edge, mine)

    def _free(self, vertex: int) -> int:
        """Return the lowest colour that no edge of `vertex` has."""
        used = self.at[vertex]
        colour = self.lowest[vertex]
        while colour in used:
            colour += 1
        self.lowest[vertex] = colour
        return colour

    def _paint(self, edge: int, colour: int) -> None:
        self.colours[edge] = colour
        for vertex in self.edges[edge]:
            self.at[vertex][colour] = edge

    def _chain(self, start: int, first: int, second: int) -> tuple[list[int], int]:
        """Return the edges of the path from `start` alternating between two colours, and where it ends."""
        chain: list[int] = []
        vertex, colour, next_colour = start, first, second
        while colour in self.at[vertex]:
            edge = self.at[vertex][colour]
            chain.append(edge)
            left, right = self.edges[edge]
            vertex = right if vertex == left else left
            colour, next_colour = next_colour, colour
        return chain, vertex

    def _flip(self, chain: list[int], first: int, second: int) -> None:
        """Exchange the two colours along a chain."""
        for edge in chain:
            for vertex in self.edges[edge]:
                self.at[vertex].pop(self.colours[edge], None)
                self.lowest[vertex] = min(self.lowest[vertex], self.colours[edge])
        for edge in chain:
            self._paint(edge, second if self.colours[edge] == first else first)
