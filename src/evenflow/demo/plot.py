"""The demo's picture: what each lane does, what waits for it, and latency over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from evenflow.demo.lanes import Backlog, Work
from evenflow.demo.options import LANE_ROWS_PER_SECOND, DemoOptions
from evenflow.demo.record import Record

_SPAN_S = 2.0  # over which work is counted: some epochs
_STYLE: dict[Any, Any] = {
    "font.size": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
# Okabe and Ito's colours: told apart by everyone. The hot lane has the strongest, and the widest line below the others.
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_WIDTHS = (5.0, 3.4, 2.2, 1.2)
_MOVES = "#00664B"
_HEAD_ROOM = 1.1  # above the limit
_LATENCIES = (("p99", "#000000", "-"), ("p50", "#666666", "--"))


def draw(record: Record, options: DemoOptions, switched_s: float, file: Path) -> None:
    """Write the picture to `file`."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(10, 9), layout="constrained")
        FigureCanvasAgg(figure)  # no window, whatever the user's matplotlib is set to
        panels = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
        work, backlog, latency = panels
        ended_s = record.epochs[-1].committed_s
        _draw_work(work, record, ended_s)
        _draw_backlog(backlog, record, ended_s)
        _draw_latency(latency, record)
        for axes in panels:
            axes.set_ylim(bottom=0)
            axes.axvspan(switched_s, ended_s, color=_MOVES, alpha=0.07, linewidth=0)
            for moved_s in record.moved_s():
                axes.axvline(moved_s, color=_MOVES, linewidth=1, zorder=0)
        work.set_ylim(0, _HEAD_ROOM * LANE_ROWS_PER_SECOND)
        work.set_xlim(0, ended_s)
        latency.set_xlabel("time since the first bid (s)")
        balanced = f"policy {options.policy}: {len(record.moves)} moves (green lines)"
        _say_when(work, balanced, switched_s, ended_s)
        figure.suptitle(
            f"{options.skew:.0%} of {options.rows_per_second:,} rows/s are for one of {options.lanes} lanes; "
            f"after {switched_s:.0f} s evenflow may move slots",
            fontsize=15,
        )
        handles, labels = work.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        figure.savefig(file, format="png", dpi=120)


def _draw_work(axes: Axes, record: Record, ended_s: float) -> None:
    edges_s = np.arange(0.0, max(2 * _SPAN_S, ended_s), _SPAN_S)
    rates = Work.of(record.pieces, record.lanes).rates(edges_s)
    middle_s = (edges_s[:-1] + edges_s[1:]) / 2
    for lane in range(record.lanes):
        axes.plot(middle_s, rates[:, lane], **_look(lane, record.lanes))
    axes.axhline(LANE_ROWS_PER_SECOND, color="black", linestyle=":", label="limit of a lane")
    axes.set_ylabel("work done (rows/s)")
    axes.yaxis.set_major_formatter(FuncFormatter("{:,.0f}".format))


def _draw_backlog(axes: Axes, record: Record, ended_s: float) -> None:
    times_s = np.arange(0.0, ended_s, _SPAN_S / 8)
    backlog = Backlog(record)
    waiting = np.array([backlog.at(at_s) for at_s in times_s])
    for lane in range(record.lanes):
        axes.plot(times_s, waiting[:, lane], **_look(lane, record.lanes))
    axes.set_ylabel("backlog (rows)")
    axes.yaxis.set_major_formatter(FuncFormatter("{:,.0f}".format))


def _draw_latency(axes: Axes, record: Record) -> None:
    times_s = [one.committed_s for one in record.epochs]
    latencies = ([one.latency_p99_s for one in record.epochs], [one.latency_p50_s for one in record.epochs])
    for (name, colour, style), values in zip(_LATENCIES, latencies, strict=True):
        axes.plot(times_s, values, color=colour, linestyle=style, linewidth=1.8, label=name)
    axes.set_ylabel("latency (s)\narrival to commit")
    axes.legend(loc="upper right", frameon=False)


def _look(lane: int, lanes: int) -> dict[str, Any]:
    """Return how a lane is drawn: each its own way, or, where there are many, all but the hot one alike."""
    if lanes <= len(_COLOURS):
        return {"color": _COLOURS[lane], "linewidth": _WIDTHS[min(lane, len(_WIDTHS) - 1)], "label": f"lane {lane}"}
    if lane == 0:
        return {"color": _COLOURS[0], "linewidth": _WIDTHS[0], "label": "lane 0"}
    label = "the other lanes" if lane == 1 else None
    return {"color": _COLOURS[1], "linewidth": _WIDTHS[-1], "alpha": 0.6, "label": label}


def _say_when(axes: Axes, balanced: str, switched_s: float, ended_s: float) -> None:
    """Write above the panel which part of the run is which."""
    for middle_s, words in ((switched_s / 2, "policy static"), ((switched_s + ended_s) / 2, balanced)):
        axes.text(middle_s, 1.02, words, transform=axes.get_xaxis_transform(), ha="center", weight="bold")
