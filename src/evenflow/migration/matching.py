"""Edge colouring: moves into steps so that no lane is in two moves of one step.

Lanes are vertices, moves are edges of a multigraph; a colour class is a matching. Where no lane both gives and takes
(scaling out or in, relief of hot lanes) the graph is bipartite and König's theorem holds: as many colours as the
busiest lane has moves, found by flipping alternating chains. With odd cycles more may be needed, at most half as
many again (Shannon); where a chain cannot be flipped, his proof says which edges to recolour.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field


def edge_colours(edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return a colour (0, 1, ...) for each edge so that edges that share a vertex differ."""
    degrees = Counter(vertex for edge in edges for vertex in edge)
    colouring = _Colouring(edges, frozenset(range(max(degrees.values(), default=0) * 3 // 2)))
    for edge in range(len(edges)):
        colouring.add(edge)
    return [colouring.colours[edge] for edge in range(len(edges))]


@dataclass
class _Colouring:
    edges: Sequence[tuple[int, int]]
    palette: frozenset[int]  # as many colours as can be needed
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
                self._add_to_odd_cycle(edge, mine, yours)
            else:
                self._flip(chain, mine, yours)
                self._paint(edge, mine)

    def _add_to_odd_cycle(self, edge: int, mine: int, yours: int) -> None:
        """Colour an edge from `left`, which lacks `mine`, to `right`, which lacks `yours`, joined by a chain of both.

        With floor(3/2 degree) colours, two of `left`, `right` and the far end of the edge at `left` that has
        `yours` lack a colour in common: too few are used for the three of them to lack different ones.
        """
        left, right = self.edges[edge]
        blocking = self.at[left][yours]
        third = self._other_end(blocking, left)
        at_left, at_right, at_third = (self._all_free(vertex) for vertex in (left, right, third))
        if at_left & at_right:
            self._paint(edge, min(at_left & at_right))
            return
        if at_left & at_third:
            mine = min(at_left & at_third)
        else:
            shared = min(at_right & at_third)
            chain, end = self._chain(left, shared, mine)
            if end != right:
                self._flip(chain, shared, mine)
                self._paint(edge, shared)
                return
            chain, _ = self._chain(third, mine, shared)
            self._flip(chain, mine, shared)
        self._flip([blocking], yours, mine)  # now `left` lacks `yours`, as `right` does
        self._paint(edge, yours)

    def _all_free(self, vertex: int) -> frozenset[int]:
        return self.palette.difference(self.at[vertex])

    def _other_end(self, edge: int, vertex: int) -> int:
        left, right = self.edges[edge]
        return right if vertex == left else left

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
            vertex = self._other_end(edge, vertex)
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
