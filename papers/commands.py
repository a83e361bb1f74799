"""`python -m papers`: the papers' experiments, run again, published figures next to ours."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from evenflow.cli import speech
from evenflow.cli.speech import INTERRUPTED, JsonFlag, result_console
from evenflow.errors import EvenflowError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from papers.catalogue import Selection
    from papers.experiment import Settings
    from papers.results import Result
    from papers.running import Failure

complain = partial(speech.complain, who="papers")

_FAILED = 1  # exit status if an experiment could not be brought to an end
_COLOURS = {"match": "green", "shape holds": "yellow", "differs": "red"}
_STEPS = 1000  # of a progress bar, for one experiment


class _RunByDefault(TyperGroup):
    """What is no other command is what to run: `python -m papers GZ-E1` means `python -m papers run GZ-E1`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `run` in front, unless a command or help is asked for."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run the papers' experiments again: `python -m papers run GZ-E1`, `... GZ`, `... all --quick`.",
)


@app.command("run")
def run(
    names: Annotated[
        list[str], typer.Argument(help="Experiments (GZ-E1), papers (AF, LR, GZ, FX, DP), all of these, or cross.")
    ],
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller and with fewer seeds.")] = False,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 1,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds, where an experiment takes several.", min=1, show_default=False)
    ] = None,
    engine: Annotated[str, typer.Option(help="sim, or spark for those that have a run there.")] = "sim",
    out: Annotated[Path, typer.Option(help="Folder for pictures (PNG) and results (JSON).")] = Path("reproduction"),
    processes: Annotated[int, typer.Option(help="Experiments that run at the same time.", min=1)] = 2,
    json_: JsonFlag = False,
) -> None:
    """Run experiments (the word `run` can be left out).

    One id gives one JSON object; a paper, `all` or several ids give a list.
    """
    from papers.catalogue import select
    from papers.experiment import Settings
    from papers.results import to_json
    from papers.running import Failure

    if engine not in ("sim", "spark"):
        raise InputError(f"--engine is sim or spark, got {engine!r}")
    settings = Settings(engine="spark" if engine == "spark" else "sim", quick=quick, seed=seed, repeats=seeds)
    chosen = select(names, settings.engine)
    for reason in chosen.left_out:
        complain(f"left out: {reason}")
    found: list[Result | Failure] = []
    try:
        for result in _with_progress(chosen, settings, out, processes):
            found.append(result)
            if not json_:
                _print(result, result_console())
    except KeyboardInterrupt:
        complain("stopped")
        raise typer.Exit(INTERRUPTED) from None
    if json_:
        typer.echo(to_json(found[0] if chosen.single else found).decode())
    failures = [result for result in found if isinstance(result, Failure)]
    for failure in failures:
        complain(f"{failure.id} could not be run: {failure.error}")
    if failures:
        raise typer.Exit(_FAILED)


@app.command("list")
def list_(*, json_: JsonFlag = False) -> None:
    """List all experiments by id and figure."""
    from papers.catalogue import every_experiment
    from papers.results import to_json

    rows: list[dict[str, Any]] = [
        {"id": one.id, "figure": one.figure, "title": one.title, "engines": one.engines}
        | {"rule": {engine: str(one.rule_on(engine)) for engine in one.engines}}
        for one in every_experiment()
    ]
    if json_:
        typer.echo(to_json(rows).decode())
        return
    console = result_console()
    for row in rows:
        engines = ", ".join(row["engines"])
        console.print(f"[bold]{row['id']:<7}[/bold] {row['figure']:<16} {row['title']} ({engines})")


@app.command("report")
def report(
    *,
    from_: Annotated[Path, typer.Option("--from", help="Folder with the results of a run.")] = Path("reproduction"),
    to: Annotated[Path, typer.Option(help="The page to write; figures and results are kept beside it.")] = Path(
        "papers/reproduction.md"
    ),
    json_: JsonFlag = False,
) -> None:
    """Write the page of all results, and of what proves each mechanism. Results that were not run again stay.

    So do full ones where a quick run gave another.
    """
    from papers.report import write_report

    written = write_report(from_, to)
    if json_:
        typer.echo(json.dumps({**asdict(written), "page": str(to)}))
        return
    if written.quick:
        complain(f"left out: {written.quick} results of quick runs, since full ones are kept")
    result_console().print(f"{written.results} results in {to}, {written.taken} of them from {from_}")


def _with_progress(chosen: Selection, settings: Settings, out: Path, processes: int) -> Iterator[Result | Failure]:
    """Run what was chosen, under a progress bar if someone looks."""
    from papers.running import run_many

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn() if len(chosen.experiments) > 1 else TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    ) as progress:
        single = len(chosen.experiments) == 1
        total = _STEPS if single else len(chosen.experiments)
        bar = progress.add_task(" ".join(_first_and_last(chosen)), total=total)
        if single:
            settings = replace(settings, progress=lambda share: progress.update(bar, completed=round(share * _STEPS)))
        with closing(run_many(chosen.experiments, settings, out, processes)) as results:
            for result in results:
                progress.advance(bar)
                yield result


def _first_and_last(chosen: Selection) -> list[str]:
    ids = [experiment.id for experiment in chosen.experiments]
    return ids if len(ids) <= 1 else [ids[0], "to", ids[-1]]


def _print(result: Result | Failure, console: Console) -> None:
    """Print an experiment: its verdict, then a line for each statement, and the reason where it is no match."""
    from papers.running import Failure

    if isinstance(result, Failure):
        return
    word = result.verdict.value
    size = ", quick" if result.quick else ""
    console.print(
        f"[bold]{result.id}[/bold] {result.figure}: {result.title}  "
        f"[bold {_COLOURS[word]}]{word}[/]  ({result.engine}{size}; {result.runs}; {result.seconds:.1f} s)"
    )
    for check in result.checks:
        console.print(f"    {check.what}: published {check.published}; ours {check.ours}", markup=False, end="")
        console.print(f"  [{_COLOURS[check.verdict.value]}]{check.verdict.value}[/]")
        if check.why:
            console.print(f"        {check.why}", markup=False)
    if result.note:
        console.print(f"    {result.note}", markup=False)
    if result.picture:
        console.print(f"    {result.picture}", markup=False)


def main() -> None:
    """Run the commands; a user's mistake is one line on standard error, never a stack trace."""
    try:
        app(prog_name="python -m papers")
    except EvenflowError as error:
        speech.fail(str(error), who="papers")
