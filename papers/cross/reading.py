"""The tables of docs/choosing-a-policy.md, from a result of the cross table; the words between them are people's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from evenflow.errors import InputError
from evenflow.migration import DEFAULT_STRATEGY
from evenflow.policies import DEFAULT_POLICY
from papers.cross.experiment import DEFAULT_WAY
from papers.cross.loads import LOADS
from papers.cross.misses import CLOSE, LEAST_S, Reason
from papers.results import Result

PAGE = "docs/choosing-a-policy.md"  # below the root of the checkout

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
        "loads": _loads(),
        "verdict": _verdict(result),
        "best": _best(usual),
        "standing": _standing(usual),
        "p99": _grid(usual, lambda cell: cell["policy"], "p99_s"),
        "moved": _grid(usual, lambda cell: cell["policy"], "moved_mb"),
        "behind": _grid(usual, lambda cell: cell["policy"], "unbalanced_s"),
        "imbalance": _grid(usual, lambda cell: cell["policy"], "imbalance"),
        "ways": _grid(ours, lambda cell: f"{cell['handover']}, {cell['strategy']}", "p99_s"),
        "peaks": _grid(ours, lambda cell: f"{cell['handover']}, {cell['strategy']}", "peak_s"),
        "misses": _misses(result.data["misses"], cells),
        "reasons": _reasons(result.data["misses"]),
        "everything": _everything(cells),
    }


def _loads() -> str:
    lines = ["| load | what comes |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {load.summary} |" for name, load in LOADS.items())])


def _verdict(result: Result) -> str:
    """Say how the checks came out."""
    lines = [f"*Rule.* {result.rule} Verdict: **{result.verdict.value}**.", ""]
    lines += ["| statement | here | verdict | why |", "|---|---|---|---|"]
    lines += [f"| {check.what} | {check.ours} | {check.verdict.value} | {check.why} |" for check in result.checks]
    return "\n".join(lines)


_EXPLAINED = {
    Reason.CHANCE: (
        "In more than half of the seeds `even` is within 10 % of the other policy: the medians stand further apart "
        "than the runs do, seed by seed."
    ),
    Reason.NO_USE: ("`static` is within 10 % of the lowest p99: moves cost as much as they bring, or more."),
    Reason.STOPS: (
        "All lanes stand still while a slot moves. Then they work off what has piled up and look full; `even` takes "
        "that for load and moves on: more than 1.5 times the bytes that it moves on the same load at once."
    ),
    Reason.CAUTION: (
        "All lanes stand still while a slot moves, and are stopped for less time than by the other policy: of a plan "
        "that would take several stops one is carried out, lanes work, and `even` decides anew. Where an overload is "
        "soon over, that spares stops for nothing; where it is not, its cure takes longer."
    ),
    Reason.LONG_PLAN: (
        "The longest plan of `even` takes more than 1.5 times as long as the other's, and in one step (`sudden`) its "
        "own p99 is more than 1.5 times lower. It plans for all lanes together "
        "and does not know that the strategy makes many steps of it, an epoch each or more. Until the last one nobody "
        "looks at the load, which may have changed."
    ),
    Reason.LATE: "The first move begins later than the other's.",
}
_UNKNOWN = "not known"
_FIGURES = {
    "moves": "slots moved",
    "stopped_s": "all lanes stopped (s)",
    "longest_s": "longest plan (s)",
    "first_s": "first move (s)",
}


def _misses(misses: list[Cell], cells: list[Cell]) -> str:
    """Count where `even` is within 10 % of the lowest p99; list where not, with what the reasons follow from."""
    total = len({(cell["handover"], cell["strategy"], cell["load"]) for cell in cells})
    standing = f"`even` is within 10 % of the lowest p99 in {total - len(misses)} of {total} combinations."
    if not misses:
        return standing
    columns = ("way, strategy, load", "p99: `even`, best", "times", *_FIGURES.values(), "as good in", "why")
    lines = [standing, "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for miss in misses:
        even, other = miss["even"], miss["other"]
        pairs = [f"{_plain(even[name])}, {_plain(other[name])}" for name in _FIGURES]
        lines.append(
            f"| {miss['handover']}, {miss['strategy']}, {miss['load']} | {_seconds(even['p99_s'])}, "
            f"`{miss['best']}` {_seconds(other['p99_s'])} | {miss['times']:.1f} | {' | '.join(pairs)} | "
            f"{miss['as_good']} of {miss['seeds']} seeds | {', '.join(miss['reasons']) or _UNKNOWN} |"
        )
    return "\n".join(lines)


def _plain(value: float | None) -> str:
    """Print a number; what never happened is kept as nothing."""
    return "never" if value is None else f"{value:.3g}"


def _reasons(misses: list[Cell]) -> str:
    """Say what the reasons mean that occur, and how often each does."""
    lines = []
    for reason, text in _EXPLAINED.items():
        count = sum(reason.value in miss["reasons"] for miss in misses)
        if count:
            lines.append(f"- **{reason.value}** ({count} of {len(misses)}): {text}")
    unknown = sum(not miss["reasons"] for miss in misses)
    if unknown:
        lines.append(f"- **{_UNKNOWN}** ({unknown} of {len(misses)}): none of the conditions above holds.")
    return "\n".join(lines) or "There is none."


def _everything(cells: list[Cell]) -> str:
    """Return p99 and peak of all policies, a folded table for each way and strategy."""
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        parts.setdefault(f"{cell['handover']}, {cell['strategy']}", []).append(cell)
    return "\n\n".join(
        f"<details><summary>{name}</summary>\n\n{_latencies(own)}\n\n</details>" for name, own in parts.items()
    )


def _latencies(cells: list[Cell]) -> str:
    loads = list(dict.fromkeys(cell["load"] for cell in cells))
    rows: dict[str, list[str]] = {}
    for cell in cells:
        rows.setdefault(cell["policy"], []).append(f"{_short(cell['p99_s'][0])} / {_short(cell['peak_s'][0])}")
    lines = [f"| | {' | '.join(loads)} |", "|---" * (len(loads) + 1) + "|"]
    return "\n".join([*lines, *(f"| {policy} | {' | '.join(values)} |" for policy, values in rows.items())])


def _short(seconds: float) -> str:
    return "0" if seconds < LEAST_S else f"{seconds:.2g}"


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
