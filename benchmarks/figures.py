"""What the parts of a benchmark come to: figures with their targets, curves, and how both are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One line of a report; with `least` or `most` it has a target."""

    name: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is none."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def target(self) -> str:
        """The target in words."""
        bound = f"at least {self.least:g}" if self.least is not None else ""
        return bound or (f"at most {self.most:g}" if self.most is not None else "")

    def line(self) -> str:
        """Return the line as it is printed."""
        verdict = "" if self.met is None else f"  {self.target}: {'met' if self.met else 'MISSED'}"
        return f"  {self.name:<78} {self.value:10.4g}{verdict}"


@dataclass(frozen=True)
class Curve:
    """Lines to draw into one panel: name -> x and y."""

    x: str
    y: str
    lines: dict[str, tuple[list[float], list[float]]]
    title: str = ""


@dataclass(frozen=True)
class Part:
    """One part of a benchmark."""

    name: str
    figures: Sequence[Figure]
    curves: Sequence[Curve] = field(default_factory=tuple)

    def show(self) -> None:
        """Print it."""
        print(self.name)
        for figure in self.figures:
            print(figure.line(), flush=True)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "figures": {figure.name: figure.value for figure in self.figures},
            "targets": {figure.name: [figure.target, figure.met] for figure in self.figures if figure.met is not None},
            "curves": [{"x": curve.x, "y": curve.y, "lines": curve.lines} for curve in self.curves],
        }


def write_json(parts: Sequence[Part], file: Path, **about: float) -> None:
    """Write all figures as JSON."""
    file.write_text(json.dumps({**about, **{part.name: part.as_dict() for part in parts}}, indent=1) + "\n")


def draw(parts: Sequence[Part], file: Path) -> None:
    """Draw all curves, one panel each."""
    from matplotlib.figure import Figure as Canvas

    panels = [(part, curve) for part in parts for curve in part.curves]
    if not panels:
        return
    canvas = Canvas(figsize=(9, 3.6 * len(panels)), layout="constrained")
    for axes, (part, curve) in zip(canvas.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        for name, (x, y) in curve.lines.items():
            axes.plot(x, y, marker=".", label=name)
        axes.set(xlabel=curve.x, ylabel=curve.y, title=curve.title or part.name, ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    canvas.savefig(file, dpi=110)
