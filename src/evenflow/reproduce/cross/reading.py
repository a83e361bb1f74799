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
        "standing": _standing(usual),
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
    for load, here in _by_load(cells).items():
        names = ", ".join(f"`{policy}` ({_moved(here[policy]):.0f})" for policy in _winners(here))
        even, static = here[DEFAULT_POLICY], here["static"]
        lines.append(
            f"| {load} | {_seconds(min(map(_level, here.values())))} | {names} | "
            f"{_seconds(even['p99_s'][0])}, {_moved(even):.0f} MB | {_seconds(static['p99_s'][0])} |"
        )
    return "\n".join(lines)


def _standing(cells: list[Cell]) -> str:
    """Say for each load where `even` stands, and why somebody else is better if somebody is."""
    return "\n".join(f"- **{load}**: {_stands(here)}" for load, here in _by_load(cells).items())


def _stands(here: Mapping[str, Cell]) -> str:
    even, winners = here[DEFAULT_POLICY], _winners(here)
    if DEFAULT_POLICY not in winners:
        best = min(here, key=lambda policy: _level(here[policy]))
        ratio = _level(even) / _level(here[best])
        return f"`{best}` has a p99 {ratio:.1f} times lower: {_why_slower(even, here[best])}."
    thrifty = winners[0]
    if _moved(even) <= CLOSE * _moved(here[thrifty]):
        return "`even` is within 10 % of the lowest p99, and none of those who are moves less."
    amounts = f"`{thrifty}` moves {_moved(here[thrifty]):.0f} MB, `even` {_moved(even):.0f}"
    return f"`even` is within 10 % of the lowest p99, but {amounts}: {_why_more(here, thrifty)}."


def _why_slower(even: Cell, best: Cell) -> str:
    amounts = f"{_moved(even):.0f} MB against {_moved(best):.0f}"
    if _moved(even) > CLOSE * _moved(best):
        return f"`even` moves more ({amounts}), and records wait for slots that travel"
    if CLOSE * _moved(even) < _moved(best):
        return f"`even` moves less ({amounts}): it does not even out what may not last"
    return f"they move about the same ({amounts}), but other slots"


def _why_more(here: Mapping[str, Cell], thrifty: str) -> str:
    """Say what the bytes were for that a policy with the same p99 did not move."""
    even, other = here[DEFAULT_POLICY]["imbalance"][0], here[thrifty]["imbalance"][0]
    evenness = f"max / mean {even:.2f} against {other:.2f}"
    if _level(here["static"]) <= LEAST_S:
        return f"no record waits even if nothing moves; the lanes get room for a load that grows ({evenness})"
    if "static" in _winners(here):
        return f"no move helps much; what can be made even is ({evenness})"
    if even < other:
        return f"it ends more even ({evenness}), which no record notices here"
    return f"no gain is seen in these numbers ({evenness})"


def _by_load(cells: list[Cell]) -> dict[str, dict[str, Cell]]:
    loads: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        loads.setdefault(cell["load"], {})[cell["policy"]] = cell
    return loads


def _winners(here: Mapping[str, Cell]) -> list[str]:
    """Return the policies within 10 % of the lowest p99, those that move least first."""
    lowest = min(map(_level, here.values()))
    return sorted((name for name in here if _level(here[name]) <= CLOSE * lowest), key=lambda name: _moved(here[name]))


def _level(cell: Cell) -> float:
    """Return the p99 latency; what the simulator cannot tell apart is the same."""
    return max(LEAST_S, float(cell["p99_s"][0]))


def _moved(cell: Cell) -> float:
    return float(cell["moved_mb"][0])


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
