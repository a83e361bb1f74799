"""`evenflow demo`: a skewed query on Spark, static first and then balanced."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenflow.cli.extras import plots
from evenflow.cli.speech import INTERRUPTED, complain
from evenflow.policies import DEFAULT_POLICY

_DEMO_S = 85.0  # the whole demo, unless its length is asked for


def demo(
    *,
    seconds: Annotated[
        float | None,
        typer.Option(help="How long bids flow.", show_default="50, less if Spark starts slowly"),
    ] = None,
    lanes: Annotated[int, typer.Option(help="Lanes, each rate limited to stand for a machine.")] = 4,
    skew: Annotated[float, typer.Option(help="Share of the rows whose keys live on lane 0.")] = 0.8,
    policy: Annotated[str, typer.Option(help="What takes over when two fifths of the time are over.")] = DEFAULT_POLICY,
    seed: Annotated[int, typer.Option(help="Of the bids.")] = 1,
    png: Annotated[Path, typer.Option(help="Where to write the picture.")] = Path("evenflow-demo.png"),
    json_: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures here.", show_default=False)
    ] = None,
    live: Annotated[bool, typer.Option("--live/--no-live", help="A live picture, or a line per second.")] = True,
) -> None:
    """Run a skewed query on Spark, static first and then balanced, and compare."""
    with plots("demo: its picture"):
        from evenflow.demo import DemoOptions, run_demo

    length = {"whole_s": _DEMO_S} if seconds is None else {"seconds": seconds}
    options = DemoOptions(lanes=lanes, skew=skew, policy=policy, seed=seed, live=live, json=json_, png=png, **length)
    try:
        run_demo(options)
    except KeyboardInterrupt:
        complain("stopped")
        raise typer.Exit(INTERRUPTED) from None
