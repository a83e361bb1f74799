"""How commands speak: what is wrong goes to standard error in one line, results to standard output."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console

USAGE = 2  # exit status for a user's mistake, as shells have it
INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def fail(message: str, who: str = "evenflow") -> NoReturn:
    """Say what is wrong and exit with status 2."""
    complain(message, who)
    sys.exit(USAGE)


def complain(message: str, who: str = "evenflow") -> None:
    """Say what is wrong, and which program says so."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"{who}: {message}", markup=False)


def result_console() -> Console:
    """Return the console for results: lines stay whole, whatever the width of the terminal."""
    return Console(highlight=False, soft_wrap=True)
