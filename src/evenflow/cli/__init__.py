"""The command line: the same words as the library, plain errors, `--json` everywhere.

`--json` prints; only the demo, which fills the terminal with what it does, writes its JSON to a file.
One module per family of commands; `main` is the installed command.
"""

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


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error, never a stack trace."""
    try:
        app()
    except EvenflowError as error:
        fail(str(error))
