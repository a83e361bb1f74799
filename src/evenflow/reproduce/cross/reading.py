"""The tables of docs/choosing-a-policy.md, from a result of the cross table; the words between them are people's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from evenflow.errors import InputError
from evenflow.migration import DEFAULT_STRATEGY
from evenflow.policies import DEFAULT_POLICY
from evenflow.reproduce.cross.experiment import CLOSE, DEFAULT_WAY, LEAST_S
from evenflow.reproduce.results import Result

PAGE = "choosing-a-policy.md"

Cell: TypeAlias = Mapping[str, Any]

_BLOCK = "<!-- begin: {name} -->\n{text}\n<!-- end: {name} -->"


def with_tables(page: str, result: Result) -> str:
    """Return `page` with the tables between its marks replaced by those of `result`."""
    for name, text in tables(result).items():
        block = _BLOCK.format(name=name, text=text)
        pattern = re.compile(f"<!-- begin: {name} -->.*?<!-- end: {name} -->", re.DOTALL)
        if not pattern.search(page):
            raise InputError(f"{PAGE} has no place for the table {name!r}: expected <!-- begin: {name} --> and its end")
        page = pattern.sub(lambda _, block=block: block, page)  # type: ignore[misc]
    return page


def tables(result: Result) -> dict[str, str]:
    """Return the tables by name, as Markdown."""
    cells: list[Cell] = result.data["cells"]
    usual = [cell for cell in cells if (cell["handover"], cell["strategy"]) == (DEFAULT_WAY, DEFAULT_STRATEGY)]
    ours = [cell for cell in cells if cell["policy"] == DEFAULT_POLICY]
    seeds, runs = result.data["seeds"], result.data["runs"]
    return {
        "source": f"`{result.command}`: {runs:,} runs; seeds {seeds[0]} to {seeds[-1]}; median and range.",
        "best": _best(usual),
        "p99": _grid(usual, lambda cell: cell["policy"], "p99_s"),
        "moved": _grid(usual, lambda cell: cell["policy"], "moved_mb"),
        "behind": _grid(usual, lambda cell: cell["policy"], "unbalanced_s"),
        "imbalance": _grid(usual, lambda cell: cell["policy"], "imbalance"),
        "ways": _grid(ours, lambda cell: f"{cell['handover']}, {cell['strategy']}", "p99_s"),
        "peaks": _grid(ours, lambda cell: f"{cell['handover']}, {cell['strategy']}", "peak_s"),
    }


def _best(cells: list[Cell]) -> str:
    """For each load: the policies within 10 % of the lowest p99, those that move least first; then even and static."""
    lines = ["| load | lowest p99 | who (MB moved) | `even` | `static` |", "|---|---|---|---|---|"]
    for load in dict.fromkeys(cell["load"] for cell in cells):
        here = {cell["policy"]: cell for cell in cells if cell["load"] == load}
        level = {policy: max(LEAST_S, cell["p99_s"][0]) for policy, cell in here.items()}
        lowest = min(level.values())
        winners = [policy for policy in here if level[policy] <= CLOSE * lowest]
        winners.sort(key=lambda policy, here=here: here[policy]["moved_mb"][0])  # type: ignore[misc]
        names = ", ".join(f"`{policy}` ({here[policy]['moved_mb'][0]:.0f})" for policy in winners)
        even, static = here[DEFAULT_POLICY], here["static"]
        lines.append(
            f"| {load} | {_seconds(lowest)} | {names} | {_seconds(even['p99_s'][0])}, {even['moved_mb'][0]:.0f} MB | "
            f"{_seconds(static['p99_s'][0])} |"
        )
    return "\n".join(lines)


def _grid(cells: list[Cell], row_of: Callable[[Cell], str], measure: str) -> str:
    """Return a table with a row per `row_of` and a column per load: median, and the range where there is one."""
    loads = list(dict.fromkeys(cell["load"] for cell in cells))
    rows: dict[str, dict[str, str]] = {}
    for cell in cells:
        middle, low, high = cell[measure]
        text = f"{middle:.3g}" if high - low <= 0.1 * abs(middle) else f"{middle:.3g} ({low:.2g} to {high:.2g})"
        rows.setdefault(row_of(cell), {})[cell["load"]] = text
    lines = [f"| | {' | '.join(loads)} |", "|---" * (len(loads) + 1) + "|"]
    lines += [f"| {row} | {' | '.join(values.get(load, '') for load in loads)} |" for row, values in rows.items()]
    return "\n".join(lines)


def _seconds(value: float) -> str:
    return f"below {LEAST_S:g} s" if value <= LEAST_S else f"{value:.2g} s"
