"""Run experiments, one after the other or on several processes; write what they leave behind."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter

from evenflow.errors import EvenflowError, InputError
from papers.catalogue import experiment_with
from papers.experiment import Experiment, Outcome, Settings, no_progress
from papers.results import Result, file_stem, to_json


@dataclass(frozen=True, slots=True)
class Failure:
    """An experiment that could not be brought to an end: a defect, never a verdict."""

    id: str
    error: str


def run_one(id_: str, settings: Settings, out: Path) -> Result | Failure:
    """Run the experiment `id_`, write its picture and its result to `out`, and return the result."""
    experiment = experiment_with(id_)
    try:
        started = perf_counter()
        outcome = experiment.run(settings)
        _follow_the_rule(experiment, settings, outcome)
        return _written(experiment, settings, outcome, perf_counter() - started, out)
    except EvenflowError as error:
        return Failure(id_, str(error))
    except Exception as error:  # noqa: BLE001 - the others shall run all the same
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Failure(id_, f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})")


def _follow_the_rule(experiment: Experiment, settings: Settings, outcome: Outcome) -> None:
    if faults := experiment.rule_on(settings.engine).faults(outcome.checks):
        raise EvenflowError(f"the checks do not follow the rule: {'; '.join(faults)}")


def _written(experiment: Experiment, settings: Settings, outcome: Outcome, seconds: float, out: Path) -> Result:
    """Write the picture and the result to `out` and return the result."""
    result_file, picture_file = _files(experiment, settings, out)
    picture = None if outcome.picture is None else str(picture_file)
    result = Result.of(experiment, settings, outcome, seconds, picture)
    try:
        result_file.write_bytes(to_json(result))  # first: it is worth more than the picture
        if outcome.picture is not None:
            from evenflow.plot.drawing import draw  # matplotlib is slow to import

            draw(outcome.picture, _heading(experiment), f"{result.command}  # {result.runs}", picture_file)
    except OSError as error:
        raise _cannot_write(error.filename or out, error) from error
    return result


def _files(experiment: Experiment, settings: Settings, out: Path) -> tuple[Path, Path]:
    stem = file_stem(experiment.id, settings.engine)
    return out / f"{stem}.json", out / f"{stem}.png"


def run_many(
    experiments: Sequence[Experiment], settings: Settings, out: Path, processes: int
) -> Generator[Result | Failure, None, None]:
    """Run the experiments and yield the results in order. Spark runs are never run at the same time."""
    if processes < 1:
        raise InputError(f"experiments run on at least 1 process, got {processes}")
    _try_to_write([file for experiment in experiments for file in _files(experiment, settings, out)], out)
    if processes == 1 or len(experiments) == 1 or settings.engine == "spark":
        for experiment in experiments:
            yield run_one(experiment.id, settings, out)
        return
    silent = replace(settings, progress=no_progress)  # another process cannot draw into this terminal
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(experiments)), context) as pool:
        futures = [pool.submit(run_one, experiment.id, silent, out) for experiment in experiments]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _try_to_write(files: Sequence[Path], folder: Path) -> None:
    """Create `folder` if it is not there; refuse it if `files` could not be written there in the end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _cannot_write(folder, error) from error
    for file in files:
        if file.is_dir():
            raise InputError(f"cannot write {file}: it is a folder; remove it, or give another folder with --out")


def _cannot_write(where: object, error: OSError) -> InputError:
    return InputError(f"cannot write to {where}: {error.strerror or error}; give another folder with --out")


def _heading(experiment: Experiment) -> str:
    return f"{experiment.id} ({experiment.figure}): {experiment.title}"
