"""What an experiment is: a rule that was written before the run, the run, and what came out next to what was published.

Experiments compute; they draw nothing. A picture is data (`evenflow.plot.picture`), drawn in one style afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evenflow.plot.picture import Picture

if TYPE_CHECKING:
    from papers.rules import Rule

Engine: TypeAlias = Literal["sim", "spark"]


class Verdict(Enum):
    """How what came out compares with what was published, best first."""

    MATCH = "match"
    SHAPE = "shape holds"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Check:
    """One published statement and ours. The verdict is computed from the run; `why` explains one that is no match.

    `statement` is the one of the rule by which the `values` were judged.
    """

    what: str
    published: str
    ours: str
    verdict: Verdict
    why: str = ""
    statement: str = ""
    values: tuple[Any, ...] = ()


def worst(checks: Sequence[Check]) -> Verdict:
    """Return the worst verdict of all checks."""
    return max((check.verdict for check in checks), key=list(Verdict).index)


def no_progress(share: float) -> None:
    """Take note of nothing: the default for `Settings.progress`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run: `quick` is smaller in size and number of seeds and says so in the results.

    `repeats` is how many seeds to take where an experiment takes several; None leaves it to the experiment. A long
    experiment may call `progress` with the share done so far, from 0 to 1.
    """

    engine: Engine = "sim"
    quick: bool = False
    seed: int = 1
    repeats: int | None = None
    progress: Callable[[float], None] = field(default=no_progress, compare=False, repr=False)

    def seeds(self, full: int = 20, quick: int = 3) -> range:
        """Return the seeds of the repetitions."""
        count = self.repeats or (quick if self.quick else full)
        return range(self.seed, self.seed + count)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave. `data` holds every number behind the checks and the picture, as plain values for JSON.

    `seeds` are the seeds that were run; one means one run.
    """

    checks: tuple[Check, ...]
    picture: Picture | None = None
    data: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    seeds: tuple[int, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all checks."""
        return worst(self.checks)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment of a paper. `rule` says, before any run, what counts as match, as shape and as difference.

    On Spark it is another one, since sizes and times are.
    """

    id: str
    figure: str
    title: str
    rule: Rule
    run: Callable[[Settings], Outcome]
    spark_rule: Rule | None = None

    @property
    def engines(self) -> tuple[Engine, ...]:
        """What it runs on."""
        return ("sim",) if self.spark_rule is None else ("sim", "spark")

    def rule_on(self, engine: Engine) -> Rule:
        """Return the rule by which a run on `engine` is judged."""
        return self.rule if engine == "sim" or self.spark_rule is None else self.spark_rule
