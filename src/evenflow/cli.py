"""The command line: the same words as the library, plain errors, `--json` everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console

from evenflow.control import Plan, plan_moves
from evenflow.control.window_json import WindowFile, read_window_json
from evenflow.errors import EvenflowError, InputError
from evenflow.migration import DEFAULT_STRATEGY, STRATEGIES, strategy_named
from evenflow.model import RoutingTable
from evenflow.model.slots import FloatArray
from evenflow.policies import DEFAULT_POLICY, POLICIES, policy_named
from evenflow.workloads import WORKLOADS, workload_named

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Keep keyed, stateful streams on Spark evenly loaded.",
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
_HOT = 1.1  # a lane this many times above the mean is drawn red
_BAR = 40  # characters of the longest bar
_USAGE = 2  # exit status for a user's mistake, as shells have it
_DEMO_S = 85.0  # the whole demo, unless its length is asked for
_INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error, never a stack trace."""
    try:
        app()
    except EvenflowError as error:
        fail(str(error))


def fail(message: str) -> NoReturn:
    """Say what is wrong and exit with status 2."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"evenflow: {message}", markup=False)
    sys.exit(_USAGE)


@app.command()
def plan(
    window: Annotated[
        str | None, typer.Argument(help="WINDOW.json, or - for standard input.", show_default=False)
    ] = None,
    example: Annotated[
        str | None, typer.Option(help=f"A bundled load instead: {', '.join(WORKLOADS)}.", show_default=False)
    ] = None,
    policy: Annotated[str, typer.Option(help="Which slots should move: see `evenflow policies`.")] = DEFAULT_POLICY,
    strategy: Annotated[str, typer.Option(help="In which steps: see `evenflow strategies`.")] = DEFAULT_STRATEGY,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="An option of the policy; may be repeated.", show_default=False
        ),
    ] = None,
    *,
    json_: JsonFlag = False,
) -> None:
    """Say what a policy would move, in which steps, and how even the load is then."""
    loaded = _load(window, example)
    chosen = policy_named(policy, **_options(set_ or []))
    answer = plan_moves(loaded.windows, loaded.table, chosen, strategy_named(strategy), perf_counter)
    answer = answer.relabelled(loaded.labels)
    if json_:
        typer.echo(json.dumps(answer.as_dict()))
    else:
        _draw(answer, loaded, f"{policy}, {strategy}")


@app.command()
def policies(*, json_: JsonFlag = False) -> None:
    """List the policies: what decides which slots move."""
    _list(POLICIES, json_=json_)


@app.command()
def strategies(*, json_: JsonFlag = False) -> None:
    """List the strategies: in which steps moves are carried out."""
    _list(STRATEGIES, json_=json_)


@app.command()
def demo(
    *,
    seconds: Annotated[
        float | None,
        typer.Option(help="How long bids flow. [default: 50, less if Spark starts slowly]", show_default=False),
    ] = None,
    lanes: Annotated[int, typer.Option(help="Lanes, each rate limited to stand for a machine.")] = 4,
    skew: Annotated[float, typer.Option(help="Share of the rows whose keys live on lane 0.")] = 0.8,
    policy: Annotated[str, typer.Option(help="What takes over after half of the time.")] = DEFAULT_POLICY,
    seed: Annotated[int, typer.Option(help="Of the bids.")] = 1,
    png: Annotated[Path, typer.Option(help="Where to write the picture.")] = Path("evenflow-demo.png"),
    json_: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures here.", show_default=False)
    ] = None,
    live: Annotated[bool, typer.Option("--live/--no-live", help="A live picture, or a line per second.")] = True,
) -> None:
    """Run a skewed query on Spark, static first and then balanced, and compare."""
    from evenflow.demo import DemoOptions, run_demo

    length = {"whole_s": _DEMO_S} if seconds is None else {"seconds": seconds}
    options = DemoOptions(lanes=lanes, skew=skew, policy=policy, seed=seed, live=live, json=json_, png=png, **length)
    try:
        run_demo(options)
    except KeyboardInterrupt:
        Console(stderr=True).print("evenflow: stopped")
        raise typer.Exit(_INTERRUPTED) from None


def _load(window: str | None, example: str | None) -> WindowFile:
    if (window is None) == (example is None):
        raise InputError("give either a WINDOW.json or --example NAME")
    if example is not None:
        bundled = workload_named(example)
        return WindowFile(bundled.windows, bundled.table, tuple(range(bundled.table.slots)))
    if window == "-":
        return read_window_json(sys.stdin.buffer.read(), "standard input")
    try:
        text = Path(str(window)).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {window}: {error.strerror}") from error
    return read_window_json(text, str(window))


def _options(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse NAME=VALUE; values are JSON where they can be, words otherwise."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--set expects NAME=VALUE, got {pair!r}")
        try:
            options[name] = msgspec.json.decode(value.encode())
        except msgspec.DecodeError:
            options[name] = value
    return options


def _list(known: Mapping[str, Any], *, json_: bool) -> None:
    rows = [{"name": name, "paper": entry.paper, "summary": entry.summary} for name, entry in known.items()]
    if json_:
        typer.echo(json.dumps(rows))
        return
    console = Console(soft_wrap=True, highlight=False)
    for row in rows:
        console.print(f"[bold]{row['name']:<13}[/bold] {row['summary']} ({row['paper']})")


def _draw(answer: Plan, loaded: WindowFile, title: str) -> None:
    """Draw the lanes as bars, before and after, and say what happens in between."""
    console = Console(highlight=False, soft_wrap=True)
    loads = loaded.windows[-1].slots
    per_slot = loads.busy_s if loads.busy_s.any() else loads.records
    unit = "busy s" if loads.busy_s.any() else "records"
    before, after = answer.table.sum_by_lane(per_slot), answer.table_after.sum_by_lane(per_slot)
    top = max(before.max(), after.max(), 1e-12)
    _draw_lanes(console, f"before ({unit})", answer.table, before, top)
    _draw_lanes(console, f"after: {title}", answer.table_after, after, top)
    console.print(
        f"\n{len(answer.moves)} moves in {len(answer.steps)} steps, {answer.bytes_moved:,} bytes; "
        f"max/mean {answer.before.max_over_mean:.3f} -> {answer.after.max_over_mean:.3f}; "
        f"decided in {answer.decide_s * 1e3:.1f} ms"
    )
    if answer.lanes_wanted != len(answer.table.lanes):
        console.print(f"lanes: {len(answer.table.lanes)} -> {answer.lanes_wanted}")
    if answer.not_curable:
        console.print(f"not curable by moving: slots {', '.join(map(str, answer.not_curable))}")
    if answer.note:
        console.print(answer.note, markup=False)


def _draw_lanes(console: Console, title: str, table: RoutingTable, loads: FloatArray, top: float) -> None:
    console.print(f"\n[bold]{title}[/bold]")
    mean = loads.mean()
    for lane, load in zip(table.lanes, loads, strict=True):
        colour = "red" if load > _HOT * mean else "green"
        bar = "█" * round(_BAR * load / top)
        console.print(f"  lane {lane:>4} [{colour}]{bar:<{_BAR}}[/{colour}] {load:10.4g}")
