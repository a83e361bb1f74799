"""The command line: the same words as the library, plain errors, `--json` everywhere.

`--json` prints; only the demo, which fills the terminal with what it does, writes its JSON to a file. `main` is the
installed command; it comes with the package, the libraries it draws with do not (`evenflow[cli]`). `app` holds the
commands, one module per family of them.
"""

from __future__ import annotations

import sys

_EXTRA = ("typer", "rich")
_USAGE = 2  # exit status for what the user has to put right, as shells have it


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error, never a stack trace."""
    try:
        from evenflow.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        sys.stderr.write(
            f"evenflow: the command needs {error.name}, which is not installed: pip install 'evenflow[cli]'\n"
        )
        sys.exit(_USAGE)
    run()
