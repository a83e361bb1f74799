"""Pictures: every series keeps a colour and a marker of its own, also in the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TABLEAU_COLORS, to_hex, to_rgb
from matplotlib.figure import Figure
from PIL import Image

from evenflow.plot.drawing import _draw_panel, _draw_series, draw, fewer_colours
from evenflow.plot.picture import Panel, Picture, Series

TEN = [tuple(round(255 * part) for part in to_rgb(name)) for name in TABLEAU_COLORS]


def many(count: int) -> list[Series]:
    return [
        Series(f"policy {at}", [float(at)], [1.0 + at % 3], "points", [0.5 + at % 3], [1.5 + at % 3])
        for at in range(count)
    ]


def test_each_colour_of_a_picture_full_of_things_is_still_there_in_the_file(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).standard_normal((3, 120))
    lines = [Series(f"line {at}", range(120), row.tolist()) for at, row in enumerate(noise)]
    picture = Picture([Panel("lines", "x", "y", lines), Panel("points", "x", "y", many(14))])
    draw(picture, "a heading", "a command", tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as file:
        found = {tuple(colour) for colour in np.unique(np.asarray(file.convert("RGB")).reshape(-1, 3), axis=0).tolist()}
    assert [colour for colour in TEN if colour not in found] == []


@pytest.mark.parametrize("kind", ["points", "line"])
def test_no_two_of_twenty_series_look_alike(kind: str) -> None:
    figure = Figure()
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for at, series in enumerate(many(20)):
        _draw_series(Series(series.label, series.x, series.y, kind), axis, at, 20)  # type: ignore[arg-type]
    looks = [(to_hex(line.get_color()), line.get_marker(), line.get_fillstyle()) for line in axis.lines]
    assert len(looks) == len(set(looks)) == 20
    markers = [marker for _, marker, _ in looks]
    assert len(set(markers[:10])) == len(set(markers[10:])) == 10
    assert {fill for *_, fill in looks[10:]} == {"none"}


def test_frequent_colours_stay_as_they_are_and_rare_ones_turn_into_one_next_to_them() -> None:
    red = np.minimum(np.arange(300), 255)
    pixels = np.zeros((300, 300, 3), np.uint8)
    pixels[:, :, 0] = red[:, None]
    pixels[:, 290:, 1] = 5 * np.arange(10)  # rare shades of all of them, more than there are places
    few = np.asarray(fewer_colours(Image.fromarray(pixels)).convert("RGB"))
    assert len(np.unique(few.reshape(-1, 3), axis=0)) <= 256
    assert (few[:100, :290] == pixels[:100, :290]).all()
    assert np.abs(few.astype(int) - pixels).max() <= 50


def drawn(panel: Panel) -> Axes:
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    _draw_panel(panel, axis, 4.6)
    figure.draw_without_rendering()
    return axis


@pytest.mark.parametrize("kind", ["line", "bars", "points"])
@pytest.mark.parametrize("label", ["x", "a rather long name of a thing"])
@pytest.mark.parametrize("count", [2, 3, 5, 6, 7, 14])
def test_a_legend_is_never_on_the_curves_and_never_outside_the_picture(kind: str, label: str, count: int) -> None:
    series = [Series(f"{label} {at}", [1.0, 2.0], [1.0 + at, 2.0], kind) for at in range(count)]  # type: ignore[arg-type]
    axis = drawn(Panel("a title", "time (s)", "load", series))
    legend = axis.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == count
    around = legend.get_window_extent()
    assert not axis.bbox.shrunk(0.98, 0.98).overlaps(around)
    if count < 7:
        assert around.x0 >= 0
        assert around.x1 <= axis.figure.bbox.x1


def test_moments_of_the_same_name_are_one_entry_and_one_thing_needs_none() -> None:
    moves = [(float(at), "moves") for at in range(5)]
    legend = drawn(Panel("t", "x", "y", [Series("lane 0", [0, 5], [1.0, 2.0])], marks=moves)).get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["lane 0", "moves"]
    assert drawn(Panel("t", "x", "y", [Series("lane 0", [0, 5], [1.0, 2.0])])).get_legend() is None


@pytest.mark.parametrize(
    ("values", "told"), [([0.5, 4.0], {"0.5", "1", "2"}), ([10.0, 5000.0], {"10", "100", "1,000"})]
)
def test_short_numbers_are_written_out_on_logarithmic_axes(values: list[float], told: set[str]) -> None:
    axis = drawn(Panel("t", "x", "y", [Series("a", [1.0, 2.0], values)], log_y=True))
    texts = {text.get_text() for text in (*axis.get_yticklabels(), *axis.get_yticklabels(minor=True))}
    assert told <= texts
