"""A picture as data: panels of series or tables, in the units of whoever made them; `drawing` gives all one style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Series:
    """One line, set of points or set of bars. `low` and `high` are a range around `y`, over seeds."""

    label: str
    x: Sequence[Any]
    y: Sequence[float]
    kind: Literal["line", "steps", "points", "bars"] = "line"
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Heat:
    """A table drawn in colours: a value per row and column. `log_from`: colours by logarithm, from this value on."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    label: str
    log_from: float | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes, in the paper's units. `marks` are moments worth a vertical line, with their names."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series] = ()
    heat: Heat | None = None
    log_x: bool = False
    log_y: bool = False
    marks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """The panels of a figure, row by row."""

    panels: Sequence[Panel]
    columns: int = 2
