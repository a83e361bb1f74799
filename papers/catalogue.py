"""Which experiments there are, by paper. A paper's module is imported only when one of its experiments is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec

from evenflow.errors import InputError
from papers.engines import with_engines
from papers.experiment import Engine, Experiment

ALL = "all"
CROSS = "cross"


@dataclass(frozen=True, slots=True)
class Paper:
    """One of the five papers, or the table that none of them has: the code of its ids, its module, its name."""

    code: str
    module: str
    name: str

    def experiments(self) -> tuple[Experiment, ...]:
        """Import the module and return its experiments, with their runs on Spark where there are any."""
        if find_spec(self.module) is None:
            return ()
        found: tuple[Experiment, ...] = getattr(import_module(self.module), "EXPERIMENTS", ())
        return tuple(with_engines(experiment) for experiment in found)


PAPERS = (
    Paper("AF", "papers.autoflow", "AutoFlow (Lu et al.)"),
    Paper("LR", "papers.reconfiguration", "Latency-conscious reconfiguration (Hoffmann et al.)"),
    Paper("GZ", "papers.guo_zhou", "Stateful load balancing (Guo, Zhou)"),
    Paper("FX", "papers.flux", "Flux (Shah et al.)"),
    Paper("DP", "papers.dpa", "DPA load balancer (Wang et al.)"),
    Paper(CROSS, "papers.cross", "The cross table"),
)


@dataclass(frozen=True, slots=True)
class Selection:
    """What was asked for: the experiments to run, those left out with the reason, and whether one alone was named."""

    experiments: tuple[Experiment, ...]
    left_out: tuple[str, ...] = ()
    single: bool = False


def every_experiment() -> tuple[Experiment, ...]:
    """Return all experiments, paper by paper."""
    return tuple(experiment for paper in PAPERS for experiment in paper.experiments())


def experiment_with(id_: str) -> Experiment:
    """Return the experiment called `id_`; an unknown one is an error that lists those near it."""
    paper = _paper_of(id_.partition("-")[0])
    for experiment in paper.experiments() if paper else ():
        if experiment.id.casefold() == id_.casefold():
            return experiment
    raise _unknown(id_)


def select(names: Sequence[str], engine: Engine) -> Selection:
    """Return what `names` mean: ids, codes of papers, or `all`; each experiment once, in the order asked for.

    `all` are the experiments of the papers; the cross table, which takes hours, is asked for by its own name. An
    experiment that cannot run on `engine` is left out of a group with a reason; named alone it is an error.
    """
    if not names:
        raise InputError("name an experiment (GZ-E1), a paper (GZ) or all; `python -m papers list` shows them")
    chosen: dict[str, Experiment] = {}
    left_out: list[str] = []
    for name in names:
        group = _group(name)
        for experiment in group if group is not None else [experiment_with(name)]:
            if engine in experiment.engines:
                chosen[experiment.id] = experiment
            elif group is None:
                raise InputError(_cannot(experiment, engine))
            else:
                left_out.append(_cannot(experiment, engine))
    single = len(names) == 1 and len(chosen) == 1 and names[0].casefold() == next(iter(chosen)).casefold()
    return Selection(tuple(chosen.values()), tuple(left_out), single)


def _group(name: str) -> tuple[Experiment, ...] | None:
    """Return the experiments that `name` stands for if it is `all` or a paper's code, else None."""
    if name.casefold() == ALL:
        return tuple(experiment for experiment in every_experiment() if experiment.id != CROSS)
    paper = _paper_of(name)
    if paper is None or paper.code == CROSS:
        return None
    found = paper.experiments()
    if not found:
        raise InputError(f"there are no experiments of {name} in this version of evenflow")
    return found


def _paper_of(code: str) -> Paper | None:
    return next((paper for paper in PAPERS if paper.code.casefold() == code.casefold()), None)


def _cannot(experiment: Experiment, engine: Engine) -> str:
    able = " or ".join(experiment.engines)
    return f"{experiment.id} has no run on {engine}: it runs on {able} only (--engine {experiment.engines[0]})"


def _unknown(id_: str) -> InputError:
    ids = [experiment.id for experiment in every_experiment()]
    words: Iterable[str] = [*ids, *(paper.code for paper in PAPERS), ALL]
    near = get_close_matches(id_.upper(), list(words), n=4, cutoff=0.4)
    hint = f"near it: {', '.join(near)}" if near else f"known are {', '.join(ids)}"
    return InputError(f"there is no experiment named {id_!r}; {hint}; `python -m papers list` shows all")
