"""What a run leaves behind: one record per experiment, as JSON, for people, for the report and for other programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from evenflow.errors import InputError
from papers.experiment import Check, Engine, Experiment, Outcome, Settings, Verdict


@dataclass(frozen=True, slots=True)
class Result:
    """One experiment that was run: what was expected by which rule, what came out, and how to run it again.

    `seed` is the one that was asked for, `seeds` are those that were run.
    """

    id: str
    figure: str
    title: str
    rule: str
    engine: Engine
    quick: bool
    seed: int
    seconds: float
    verdict: Verdict
    checks: tuple[Check, ...]
    command: str
    picture: str | None = None
    note: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, experiment: Experiment, settings: Settings, outcome: Outcome, seconds: float, picture: str | None
    ) -> Result:
        """Put together what was asked for and what came out."""
        return cls(
            id=experiment.id,
            figure=experiment.figure,
            title=experiment.title,
            rule=str(experiment.rule_on(settings.engine)),
            engine=settings.engine,
            quick=settings.quick,
            seed=settings.seed,
            seconds=round(seconds, 3),
            verdict=outcome.verdict,
            checks=outcome.checks,
            command=command_of(experiment, settings),
            picture=picture,
            note=outcome.note,
            data=outcome.data,
            seeds=outcome.seeds,
        )

    @property
    def stem(self) -> str:
        """The name of its files, without ending."""
        return file_stem(self.id, self.engine)

    @property
    def runs(self) -> str:
        """The seeds that were run, in words; a result that does not tell was run with the one asked for."""
        seeds = self.seeds or (self.seed,)
        if len(seeds) == 1:
            return f"seed {seeds[0]}: one run"
        if seeds == tuple(range(seeds[0], seeds[-1] + 1)):
            return f"seeds {seeds[0]} to {seeds[-1]}"
        return f"seeds {', '.join(map(str, seeds))}"


def file_stem(id_: str, engine: Engine) -> str:
    """Return the name of an experiment's files, without ending."""
    return id_ if engine == "sim" else f"{id_}.{engine}"


def command_of(experiment: Experiment, settings: Settings) -> str:
    """Return the command that runs `experiment` again in the same way."""
    words = ["python", "-m", "papers", "run", experiment.id, "--seed", str(settings.seed)]
    if settings.engine != "sim":
        words += ["--engine", settings.engine]
    if settings.repeats is not None:
        words += ["--seeds", str(settings.repeats)]
    if settings.quick:
        words.append("--quick")
    return " ".join(words)


def to_json(value: Any) -> bytes:
    """Return `value` as JSON; arrays become lists, what is not a number or infinite becomes null."""
    return msgspec.json.encode(value, enc_hook=_plain)


def read_results(folder: Path) -> list[Result]:
    """Return the results stored in `folder`, by file name; one that cannot be read is an error that names it."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"there are no results in {folder}; run `python -m papers all --out {folder}` first")
    return [read_result(file) for file in files]


def read_result(file: Path) -> Result:
    """Return the result in `file`."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{file} is no result of `python -m papers`: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"experiments give plain values, got {type(value).__name__}")
