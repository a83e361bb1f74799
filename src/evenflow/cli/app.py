"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import evenflow
from evenflow.cli.demo import demo
from evenflow.cli.plan import plan, policies, strategies
from evenflow.cli.simulate import simulate
from evenflow.cli.speech import fail
from evenflow.errors import EvenflowError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _command in (plan, policies, strategies, demo, simulate):
    app.command()(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"evenflow {evenflow.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Keep keyed, stateful streams on Spark evenly loaded."""


def run() -> None:
    """Run a command; a mistake of the user's is one line on standard error."""
    try:
        app()
    except EvenflowError as error:
        fail(str(error))
