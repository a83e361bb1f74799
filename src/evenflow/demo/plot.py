"""The demo's picture: load of each lane and latency over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from evenflow.demo.options import LANE_ROWS_PER_SECOND, DemoOptions
from evenflow.demo.summary import EpochFigures, lane_rates


def draw(epochs: Sequence[EpochFigures], options: DemoOptions, switched_s: float, file: Path) -> None:
    """Write the picture to `file`."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)  # no window, whatever the user's matplotlib is set to
    load, latency = figure.subplots(2, 1, sharex=True)
    times = [one.committed_s for one in epochs]
    rates = [lane_rates(epochs, at) for at in range(len(epochs))]
    for lane in range(options.lanes):
        load.plot(times, [rate[lane] for rate in rates], label=f"lane {lane}", drawstyle="steps-pre")
    load.axhline(LANE_ROWS_PER_SECOND, color="grey", linestyle=":", label="rate limit of a lane")
    load.set_ylabel("load of a lane (rows/s)")
    load.set_ylim(bottom=0)
    latency.plot(times, [one.latency_p50_s for one in epochs], label="p50", marker=".")
    latency.plot(times, [one.latency_p99_s for one in epochs], label="p99", marker=".")
    latency.set_ylabel("latency, arrival to commit (s)")
    latency.set_xlabel("time since the first bid (s)")
    latency.set_ylim(bottom=0)
    for axes in (load, latency):
        axes.axvline(switched_s, color="black", linestyle="--", label=f"policy {options.policy} on")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
    load.set_title(
        f"evenflow demo: {options.skew:.0%} of {options.rows_per_second:,} rows/s belong to lane 0 of {options.lanes}"
    )
    figure.savefig(file, format="png", dpi=120)
