"""One style for all pictures: labelled axes, a legend, and a caption with the command that draws it again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from PIL import Image  # what matplotlib itself writes PNG with

from evenflow.model.slots import IntArray
from evenflow.plot.picture import Heat, Panel, Picture, Series

_STYLE: dict[Any, Any] = {  # matplotlib types each key
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.fontsize": 7,
    "legend.frameon": False,
}
_PANEL = (4.6, 3.2)  # inches
_HEAT_ROW, _HEAT_COLUMN = 0.22, 0.62  # inches per cell
_BAR_WIDTH = 0.3  # inches per named group of bars
_DPI = 120
_PALETTE = 256  # colours that a PNG can number
_PORTION = 4096  # colours compared with the palette at a time: 8 MB
_LETTERS, _TITLE_LETTERS = 11, 13  # of a heading, and of a panel's title, per inch
_COLOURS = 10
_MARKERS = "osD^vP*X<>"  # one for each colour; from the eleventh series on other pairs, hollow
_SIZES = (8.0, 5.0)  # of the first and the last marker: points in the same place are seen one within the other
_FEW = 40  # places up to which lines have markers, and points large ones; more would blot the picture out
_MANY = 7  # series from which on the legend stands beside the axes
_WRAPPED = 6  # bars up to which names are written in several lines, of so many letters
_WORDS = 10
_SHORT = 6  # more bars with names longer than that are labelled aslant
_WIDTHS = (2.2, 1.0)  # of the first and the last line: one below another is still seen
_LINE, _PAD = 12.0, 4.0  # points per line of a legend above the axes, and below a title
_FILLED = 0.9  # of the width, by a legend above the axes at most
_SHORTEST, _LONGEST, _MOST_DIGITS = 1e-3, 1e4, 1e8  # numbers that are written out
_DECADES = 1.3  # shorter logarithmic axes have numbers between the powers of ten
_CELLS = 250  # tables up to this size show their numbers


def draw(picture: Picture, heading: str, command: str, file: Path) -> None:
    """Write `picture` to `file`, as PNG."""
    with rc_context(_STYLE):  # the user's own settings must not change ours
        figure = Figure(figsize=_size(picture), layout="constrained")
        FigureCanvasAgg(figure)  # no window, whatever the user's matplotlib is set to
        columns = min(picture.columns, len(picture.panels))
        rows = math.ceil(len(picture.panels) / columns)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel, axis in zip(picture.panels, axes, strict=False):
            _draw_panel(panel, axis, figure.get_figwidth() / columns)
        for unused in axes[len(picture.panels) :]:
            unused.set_axis_off()
        figure.suptitle(fill(heading, int(figure.get_size_inches()[0] * _LETTERS)), fontsize=10)
        figure.supxlabel(command, fontsize=6.5, family="monospace", color="0.35")
        _save(figure, file)


def _save(figure: Figure, file: Path) -> None:
    """Write the figure in as few colours as it can do with: half of the size."""
    pixels = BytesIO()
    figure.savefig(pixels, format="png", dpi=_DPI)
    with Image.open(pixels) as picture:
        fewer_colours(picture.convert("RGB")).save(file, format="PNG", optimize=True)


def fewer_colours(picture: Image.Image) -> Image.Image:
    """Return the picture with a palette: the colours that fill most of it as they are, and means of the others.

    Means alone, as Pillow takes them, are not enough: lines and markers are small, and would lose their own colours.
    """
    pixels = np.asarray(picture).astype(np.int32)
    found, place, count = np.unique(
        (pixels << (16, 8, 0)).sum(axis=2, dtype=np.int32), return_inverse=True, return_counts=True
    )
    colours = found[:, None] >> (16, 8, 0) & 255
    means = np.reshape(picture.quantize(_PALETTE // 2).getpalette() or (), (-1, 3))
    kept = np.concatenate([colours[np.argsort(-count, kind="stable")[: _PALETTE // 2]], means])
    few = Image.fromarray(_nearest(colours, kept)[place].reshape(picture.size[::-1]), mode="P")
    few.putpalette(kept.astype(np.uint8).tobytes())
    return few


def _nearest(colours: IntArray, kept: IntArray) -> npt.NDArray[np.uint8]:
    """Return which of the `kept` colours (256 at most) is nearest to each colour; the first of several."""
    places = np.empty(len(colours), np.uint8)
    for start in range(0, len(colours), _PORTION):
        part = slice(start, start + _PORTION)
        places[part] = ((kept**2).sum(axis=1) - 2 * (colours[part] @ kept.T)).argmin(axis=1)
    return places


def _size(picture: Picture) -> tuple[float, float]:
    """Return width and height in inches: the panels, or larger where a table needs the room."""
    columns = min(picture.columns, len(picture.panels))
    rows = math.ceil(len(picture.panels) / columns)
    width, height = _PANEL
    for panel in picture.panels:
        if panel.heat is not None:
            width = max(width, 2.2 + _HEAT_COLUMN * len(panel.heat.columns))
            height = max(height, 1.4 + _HEAT_ROW * len(panel.heat.rows))
        width = max([width, *(1.0 + _BAR_WIDTH * len(one.y) for one in panel.series if one.kind == "bars")])
    return columns * width, rows * height + 0.6


def _draw_panel(panel: Panel, axis: Axes, width: float) -> None:
    """Draw a panel that is so many inches wide."""
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    title = fill(panel.title, int(width * _TITLE_LETTERS))
    if panel.heat is not None:
        axis.set_title(title)
        _draw_heat(panel.heat, axis)
        return
    bars = [series for series in panel.series if series.kind == "bars"]
    for at, series in enumerate(bars):
        _draw_bars(series, axis, at, bars)
    others = [series for series in panel.series if series.kind != "bars"]
    for at, series in enumerate(others):
        _draw_series(series, axis, at, len(others))
    names = list(dict.fromkeys(name for _, name in panel.marks))
    for moment, name in panel.marks:
        first = next(one for one, of in panel.marks if of == name) == moment
        style = ("--", ":", "-.")[names.index(name) % 3]
        axis.axvline(moment, color="0.2", linestyle=style, linewidth=0.8, label=name if first else None)
    if panel.log_x:
        axis.set_xscale("log")
    if panel.log_y:
        axis.set_yscale("log")
    _write_out(axis.xaxis, logarithmic=panel.log_x)
    _write_out(axis.yaxis, logarithmic=panel.log_y)
    axis.set_title(title, pad=_LINE * _legend(axis, width) + _PAD)


def _legend(axis: Axes, width: float) -> int:
    """Say what is what: above the axes, beside them if it is much; never on them. Return how many lines are above."""
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) < 2:  # noqa: PLR2004 - one thing is what the title says
        return 0
    if len(labels) >= _MANY:
        axis.legend(handles, labels, loc="upper left", bbox_to_anchor=(1, 1))
        return 0
    for columns in range(len(labels), 0, -1):
        legend = axis.legend(
            handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, borderaxespad=0.2
        )
        if legend.get_window_extent().width <= width * axis.figure.dpi * _FILLED:
            break
    return math.ceil(len(labels) / columns)


def _write_out(scale: Axis, *, logarithmic: bool) -> None:
    """Write numbers out where they have few digits: 20 and not 2 x 10^1, 700,000 and not 7e5."""
    low, high = scale.get_view_interval()
    if logarithmic and low > _SHORTEST and high < _LONGEST:
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        short = math.log10(high / low) < _DECADES
        scale.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if short and _is_2_or_5(value) else ""))
    elif not logarithmic and _LONGEST <= high < _MOST_DIGITS:
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _is_2_or_5(value: float) -> bool:
    return round(value / 10 ** math.floor(math.log10(value))) in (2, 5)


def _draw_series(series: Series, axis: Axes, at: int, of: int) -> None:
    """Draw the series number `at` of `of`."""
    again, place = divmod(at, _COLOURS)
    look: dict[str, Any] = {"color": f"C{place}", "label": series.label}
    few = len(series.y) <= _FEW
    marks: dict[str, Any] = {
        "marker": _MARKERS[(place + 3 * again) % len(_MARKERS)],
        "fillstyle": "none" if again else "full",
    }
    if series.kind == "points":
        size = {"markersize": np.linspace(*_SIZES, of)[at]} if few else {}
        axis.errorbar(
            series.x, series.y, yerr=_range(series), linestyle="", linewidth=0.8, capsize=2, **look, **marks, **size
        )
        return
    drawstyle = "steps-post" if series.kind == "steps" else "default"
    width = np.linspace(*_WIDTHS, of)[at]
    axis.plot(
        series.x,
        series.y,
        linestyle="--" if again else "-",
        drawstyle=drawstyle,
        linewidth=width,
        **look,
        **(marks if few else {}),
    )
    if series.low is not None and series.high is not None:
        axis.fill_between(series.x, series.low, series.high, color=look["color"], alpha=0.15, linewidth=0)


def _draw_bars(series: Series, axis: Axes, at: int, bars: Sequence[Series]) -> None:
    """Draw one set of bars beside the others of the panel; the first names the places."""
    names = [str(x) for x in bars[0].x]
    width = 0.8 / len(bars)
    places = np.arange(len(series.y)) + (at - (len(bars) - 1) / 2) * width
    axis.bar(places, series.y, width, yerr=_range(series), color=f"C{at % 10}", label=series.label, capsize=2)
    if len(names) <= _WRAPPED:
        names = [fill(name, _WORDS, break_long_words=False) for name in names]
    aslant = len(names) > _WRAPPED and max(map(len, names)) > _SHORT
    axis.set_xticks(np.arange(len(names)), names, rotation=30 if aslant else 0, ha="right" if aslant else "center")


def _range(series: Series) -> list[list[float]] | None:
    if series.low is None or series.high is None:
        return None
    below = [max(0.0, y - low) for y, low in zip(series.y, series.low, strict=True)]
    above = [max(0.0, high - y) for y, high in zip(series.y, series.high, strict=True)]
    return [below, above]


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}"  # noqa: PLR2004 - more digits than two


def _draw_heat(heat: Heat, axis: Axes) -> None:
    values = np.array(heat.values, dtype=np.float64)
    shade = values if heat.log_from is None else np.maximum(values, heat.log_from)
    scale = None if heat.log_from is None else LogNorm()
    image = axis.imshow(shade, aspect="auto", cmap="viridis_r", norm=scale)
    axis.set_xticks(range(len(heat.columns)), heat.columns, rotation=45, ha="right")
    axis.set_yticks(range(len(heat.rows)), heat.rows)
    axis.grid(visible=False)
    axis.figure.colorbar(image, ax=axis, label=heat.label)
    if values.size > _CELLS or not np.isfinite(values).any():
        return
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            dark = float(np.asarray(image.norm(shade[row, column]))) > 0.5  # noqa: PLR2004 - half way to the dark end
            colour = "white" if dark else "black"
            axis.text(column, row, _short(value), ha="center", va="center", fontsize=6, color=colour)
