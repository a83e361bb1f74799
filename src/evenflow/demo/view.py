"""What the demo shows: the live picture, the line per second, and the table at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenflow.demo.options import LANE_ROWS_PER_SECOND, DemoOptions
from evenflow.demo.summary import Summary

_BAR = 40  # characters of a lane that is at its limit
_FULL = 0.9  # a lane this close to its limit is drawn red
_SHOWN_MOVES = 6


@dataclass(frozen=True)
class Snapshot:
    """The state of the demo at one moment."""

    elapsed_s: float
    phase: str
    epoch: int
    lane_rates: Sequence[float]
    lane_backlog: Sequence[int]
    latency_p50_s: float
    latency_p99_s: float
    moves: Sequence[str]

    @property
    def backlog_rows(self) -> int:
        """The rows that wait, for all lanes."""
        return sum(self.lane_backlog)


def explained(options: DemoOptions) -> str:
    """Say in plain words what is about to be seen."""
    return (
        f"{options.rows_per_second:,} bids/s on {options.lanes} lanes; {options.skew:.0%} of them belong to lane 0. "
        f"Each lane is rate limited to {LANE_ROWS_PER_SECOND:,} rows/s: it stands for a machine, this one has only "
        f"so many cores. For {options.switch_s:g} s nothing moves, then policy {options.policy!r} may move slots "
        "while the query runs."
    )


def picture(options: DemoOptions, now: Snapshot) -> RenderableType:
    """Draw the live view."""
    balanced = now.phase != "static"
    head = Text.assemble(
        ("evenflow demo  ", "bold"),
        (f"{now.phase}", "bold green" if balanced else "bold red"),
        f"  {min(now.elapsed_s, options.seconds):4.0f} of {options.seconds:g} s, epoch {now.epoch}",
    )
    lanes = Table.grid(padding=(0, 1))
    for lane, (rate, waiting) in enumerate(zip(now.lane_rates, now.lane_backlog, strict=True)):
        load = min(1.0, rate / LANE_ROWS_PER_SECOND)
        colour = "red" if load >= _FULL else "green"
        bar = Text("█" * round(_BAR * load), colour) + Text("░" * (_BAR - round(_BAR * load)), "bright_black")
        lanes.add_row(f"lane {lane}", bar, f"{rate:6,.0f} rows/s", f"{waiting:7,} waiting")
    figures = Text.assemble(
        "backlog ",
        (f"{now.backlog_rows:,} rows", "bold"),
        "   latency p50 ",
        (f"{now.latency_p50_s:.1f} s", "bold"),
        ", p99 ",
        (f"{now.latency_p99_s:.1f} s", "bold"),
    )
    moves = Text("\n".join([f"moves: {len(now.moves)}", *(f"  {move}" for move in now.moves[-_SHOWN_MOVES:])]))
    note = Text(f"A full bar is {LANE_ROWS_PER_SECOND:,} rows/s: lanes are rate limited, each stands for a machine.")
    note.stylize("bright_black")
    return Group(head, lanes, figures, moves, note)


def line(now: Snapshot) -> str:
    """Say the same in one line."""
    lanes = " ".join(f"{rate:6,.0f}" for rate in now.lane_rates)
    waiting = " ".join(f"{rows:6,}" for rows in now.lane_backlog)
    return (
        f"{now.elapsed_s:5.1f} s  {now.phase:<8}  lanes {lanes} rows/s  waiting {waiting} rows  "
        f"latency p50 {now.latency_p50_s:4.1f} p99 {now.latency_p99_s:4.1f} s  moves {len(now.moves)}"
    )


def show_summary(console: Console, options: DemoOptions, summary: Summary) -> None:
    """Print the table at the end, and what to think of it."""
    table = Table(title=f"{options.lanes} lanes, {options.skew:.0%} of the rows for lane 0", title_justify="left")
    table.add_column("")
    for title in ("before: static", f"after: {options.policy}"):
        table.add_column(title, justify="right")
    before, after = summary.before, summary.after
    table.add_row("throughput (rows/s)", f"{before.rows_per_s:,.0f}", f"{after.rows_per_s:,.0f}")
    table.add_row("latency p50 (s)", f"{before.latency_p50_s:.2f}", f"{after.latency_p50_s:.2f}")
    table.add_row("latency p99 (s)", f"{before.latency_p99_s:.2f}", f"{after.latency_p99_s:.2f}")
    table.add_row("imbalance (busiest lane / mean)", f"{before.imbalance:.2f}", f"{after.imbalance:.2f}")
    table.add_row("backlog at the end (rows)", f"{before.backlog_rows:,}", f"{after.backlog_rows:,}")
    console.print(table)
    console.print(
        f"{summary.moves} moves; input {options.rows_per_second:,} rows/s; "
        f"lanes rate limited to {LANE_ROWS_PER_SECOND:,} rows/s each."
    )
    if not summary.drained:
        console.print(
            "The backlog was not gone when the last part was measured, so latency still shows it: "
            "this machine is busy or slow, or the lanes are too few; more --seconds help."
        )
