"""Run experiments, one after the other or on several processes; write what they leave behind."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from evenflow.errors import EvenflowError, InputError
from evenflow.reproduce.catalogue import experiment_with
from evenflow.reproduce.experiment import Experiment, Settings, no_progress
from evenflow.reproduce.results import Result, command_of, file_stem, to_json


@dataclass(frozen=True, slots=True)
class Failure:
    """An experiment that could not be brought to an end: a defect, never a verdict."""

    id: str
    error: str


def run_one(id_: str, settings: Settings, out: Path) -> Result | Failure:
    """Run the experiment `id_`, write its picture and its result to `out`, and return the result."""
    experiment = experiment_with(id_)
    started = perf_counter()
    try:
        outcome = experiment.run(settings)
    except EvenflowError as error:
        return Failure(id_, str(error))
    except Exception as error:  # noqa: BLE001 - the others shall run all the same
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Failure(id_, f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})")
    seconds = perf_counter() - started
    stem = file_stem(id_, settings.engine)
    picture = None
    if outcome.picture is not None:
        from evenflow.reproduce.figures import draw  # matplotlib is slow to import

        picture = str(out / f"{stem}.png")
        draw(outcome.picture, _heading(experiment), command_of(experiment, settings), Path(picture))
    result = Result.of(experiment, settings, outcome, seconds, picture)
    (out / f"{stem}.json").write_bytes(to_json(result))
    return result


def run_many(
    experiments: Sequence[Experiment], settings: Settings, out: Path, processes: int
) -> Generator[Result | Failure, None, None]:
    """Run the experiments and yield the results in order. Spark runs are never run at the same time."""
    make_folder(out)
    if processes < 1:
        raise InputError(f"experiments run on at least 1 process, got {processes}")
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


def make_folder(folder: Path) -> None:
    """Create `folder` if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; give another folder with --out") from error


def _heading(experiment: Experiment) -> str:
    return f"{experiment.id} ({experiment.figure}): {experiment.title}"
