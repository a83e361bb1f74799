"""`evenflow simulate`: anyone's own what-if on the simulator, or a recorded query under another policy."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from evenflow.cli.extras import plots
from evenflow.cli.speech import JsonFlag, result_console
from evenflow.errors import InputError
from evenflow.migration import DEFAULT_STRATEGY

if TYPE_CHECKING:
    from evenflow.sim.what_if import Answer

_SHADES = "▁▂▃▄▅▆▇█"
_MOST_LANES = 40  # drawn one by one up to so many
_SHORTEST_S = 0.001  # latencies below are not told apart


def simulate(
    scenario: Annotated[Path | None, typer.Argument(help="SCENARIO.toml; see docs/simulator.md.")] = None,
    *,
    replay: Annotated[
        Path | None, typer.Option(help="JOURNAL.json of a query (query.save_journal) instead.", show_default=False)
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Decide by this policy instead.", show_default=False)] = None,
    strategy: Annotated[str | None, typer.Option(help="Move by this strategy instead.", show_default=False)] = None,
    seed: Annotated[
        int | None, typer.Option(help="The seed, instead of the file's.", min=0, show_default=False)
    ] = None,
    engine: Annotated[
        str, typer.Option(help="quantum (steps of time, for size) or real (the engine that runs on Spark).")
    ] = "quantum",
    png: Annotated[Path | None, typer.Option(help="Write the figure to this file.", show_default=False)] = None,
    json_: JsonFlag = False,
) -> None:
    """Simulate a scenario under the real balancer and policies, in virtual time; no Spark."""
    from evenflow.sim.scenario_file import read_scenario
    from evenflow.sim.what_if import ENGINES, replayed, with_choice

    if (scenario is None) == (replay is None):
        raise InputError("give either a SCENARIO.toml or --replay JOURNAL.json")
    if engine not in ENGINES:
        raise InputError(f"simulate: --engine is one of {', '.join(ENGINES)}, got {engine!r}")
    if png is not None and (png.is_dir() or not png.absolute().parent.is_dir()):
        raise InputError(f"simulate: --png expects a file in a folder that exists, got {png}")
    if png is not None:
        with plots("simulate: --png"):
            import evenflow.plot.drawing  # noqa: F401 - before the run, not after it
    file = scenario or replay
    text = _read(file)
    recorded = None
    if scenario is not None:
        what_if = with_choice(read_scenario(text, str(file), seed), policy, strategy)
    else:
        what_if, recorded = replayed(text, str(file), policy, strategy or DEFAULT_STRATEGY, seed)
    found = ENGINES[engine](what_if, recorded)
    if json_:
        typer.echo(json.dumps(found.as_dict()))
    else:
        _print(found)
    if png is not None:
        given: dict[str, object] = {
            "--replay": replay,
            "": scenario,
            "--policy": policy,
            "--strategy": strategy,
            "--seed": found.seed,
        }
        if engine != "quantum":
            given["--engine"] = engine
        _draw(found, str(file), _command(given), png)
        if not json_:
            result_console().print(f"figure: {png}", markup=False)


def _read(file: Path | None) -> bytes:
    try:
        return Path(str(file)).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error


def _draw(found: Answer, file: str, caption: str, png: Path) -> None:
    """Write the figure; what is in a file's title or name is meant as it stands, not as mathematics."""
    from evenflow.plot.drawing import draw
    from evenflow.sim.what_if import picture_of

    heading, below = ((found.title or file).replace("$", r"\$"), caption.replace("$", r"\$"))
    try:
        draw(picture_of(found), heading, below, png)
    except OSError as error:
        raise InputError(f"simulate: cannot write the figure to {png}: {error.strerror or error}") from error


def _command(given: Mapping[str, object]) -> str:
    """Return the command that was given, by option; what was left out (None) stays with the file."""
    words = [word for option, value in given.items() if value is not None for word in (option, str(value)) if word]
    return shlex.join(["evenflow", "simulate", *words])


def _print(found: Answer) -> None:
    """Print the timeline as a table, with the lanes as bars, and a summary."""
    console = result_console()
    names = ", ".join(f"{what} {name}" for what, name in found.names.items())
    title = Text(found.title or "simulation", "bold")  # no markup: a file may have brackets in its title
    console.print(title, f"({names}, seed {found.seed})")
    past = f"{'as recorded':>12}" if found.recorded is not None else ""
    bars = "busy, lane by lane" if found.lanes <= _MOST_LANES else "busy, lanes by rank"
    heading = f"{'time s':>8}{'records/s':>12}{'waiting':>12}{'max/mean':>10}{past}{'p50 s':>9}{'p99 s':>9}{'moves':>7}"
    console.print(f"[dim]{heading}  {bars}[/dim]")
    for row in found.rows():
        console.print(_line(row, recorded=found.recorded is not None), markup=False)
    summary = found.summary()
    console.print(
        f"{summary['records']:,.0f} records, {summary['records_per_s']:,.0f} per second; "
        f"{summary['waiting']:,.0f} wait at the end; "
        f"p50 {_seconds(summary['latency_p50_s'])} s, p99 {_seconds(summary['latency_p99_s'])} s; "
        f"{summary['moves']} moves, {summary['bytes_moved']:,.0f} bytes; max/mean {summary['imbalance_first']:.2f} at "
        f"first, {summary['imbalance_last']:.2f} at the end"
    )


def _line(row: dict[str, Any], *, recorded: bool) -> str:
    """Return a row of the timeline."""
    before = row["recorded_imbalance"]
    past = f"{'' if before is None else format(before, '.2f'):>12}" if recorded else ""
    latency = f"{_seconds(row['latency_p50_s']):>9}{_seconds(row['latency_p99_s']):>9}"
    load = f"{row['time_s']:>8.1f}{row['records_per_s']:>12,.0f}{row['waiting']:>12,.0f}{row['imbalance']:>10.2f}"
    return f"{load}{past}{latency}{row['moves'] or '':>7}  {_bars(row['busy'])}"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if value >= _SHORTEST_S else f"<{_SHORTEST_S:g}"


def _bars(shares: list[Any]) -> str:
    """Return one character per lane, as high as it is busy; of very many lanes a choice, the busiest first."""
    if len(shares) > _MOST_LANES:
        ranked = sorted(shares, reverse=True)
        shares = [ranked[at * (len(ranked) - 1) // (_MOST_LANES - 1)] for at in range(_MOST_LANES)]
    return "".join(_SHADES[min(len(_SHADES) - 1, int(share * len(_SHADES)))] for share in shares)
