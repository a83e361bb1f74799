"""`evenflow plan`, `policies` and `strategies`: one decision, looked at from all sides, and what can decide."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from evenflow.cli.speech import JsonFlag, result_console
from evenflow.control import Plan, plan_moves
from evenflow.control.window_json import WindowFile, read_window_json
from evenflow.errors import InputError
from evenflow.migration import DEFAULT_STRATEGY, STRATEGIES, strategy_named
from evenflow.model import RoutingTable
from evenflow.model.slots import FloatArray
from evenflow.policies import DEFAULT_POLICY, POLICIES, policy_named
from evenflow.workloads import WORKLOADS, workload_named

_HOT = 1.1  # a lane this many times above the mean is drawn red
_BAR = 40  # characters of the longest bar


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
    answer = plan_moves(loaded.shown, loaded.table, chosen, strategy_named(strategy), perf_counter)
    answer = answer.relabelled(loaded.labels)
    if json_:
        typer.echo(json.dumps(answer.as_dict()))
    else:
        _draw(answer, loaded, f"{policy}, {strategy}")


def policies(*, json_: JsonFlag = False) -> None:
    """List the policies: what decides which slots move."""
    _list(POLICIES, json_=json_)


def strategies(*, json_: JsonFlag = False) -> None:
    """List the strategies: in which steps moves are carried out."""
    _list(STRATEGIES, json_=json_)


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
    console = result_console()
    for row in rows:
        console.print(f"[bold]{row['name']:<13}[/bold] {row['summary']} ({row['paper']})")


def _draw(answer: Plan, loaded: WindowFile, title: str) -> None:
    """Draw the lanes as bars, before and after, and say what happens in between."""
    console = result_console()
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
    for slot in answer.not_curable:
        load = float(per_slot[loaded.labels.index(slot)])
        console.print(
            f"slot {slot} cannot be cured by moving: it has {load / max(per_slot.sum(), 1e-12):.0%} of the load, "
            f"an even lane {1 / len(answer.table_after.lanes):.0%}"
        )
    if answer.note:
        console.print(answer.note, markup=False)


def _draw_lanes(console: Console, title: str, table: RoutingTable, loads: FloatArray, top: float) -> None:
    console.print(f"\n[bold]{title}[/bold]")
    mean = loads.mean()
    for lane, load in zip(table.lanes, loads, strict=True):
        colour = "red" if load > _HOT * mean else "green"
        bar = "█" * round(_BAR * load / top)
        console.print(f"  lane {lane:>4} [{colour}]{bar:<{_BAR}}[/{colour}] {load:10.4g}")
