"""Lanes on their own and slots that move: `python -m benchmarks.migration [--quick] [--only PARTS]`.

One run, ratios within it. All times are those of the lanes' commits; an epoch's latency counts from when its rows
were due, whether the query was ready for them or not. Lanes are rate-limited where a lane stands for a machine. How
long lanes work on an epoch follows from what an epoch costs beside that on this machine, which is measured first.

    lag       skew that rotates over the lanes: throughput against max_lag
    others    latency of slots that stay while a tenth of the state moves at the timestamp
    relief    one lane overloaded: from the decision to relief, at once against at the timestamp
    timeline  latency around a move: sudden, fluid, batched, paced, at once
    copy      a slot of 100 MB and more: copied ahead against handed off whole
    loop      80 % of the load on one of 4 lanes, under `even`; and what `even` costs when there is no skew
    elastic   2, 6, 3 lanes under load
    slow      a lane that turns slow
    crowded   a lane whose core other work takes
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import balancing, moving
from benchmarks.figures import Part, draw, write_json
from benchmarks.stage import Setting, session, timed_setting

TASK_SLOTS = 8  # 6 lanes at most, and routing

PARTS: dict[str, Callable[[Setting], Part]] = {
    "lag": balancing.lag,
    "others": moving.others,
    "relief": moving.relief,
    "timeline": moving.timeline,
    "copy": moving.copy,
    "loop": balancing.loop,
    "elastic": balancing.elastic,
    "slow": balancing.slow_lane,
    "crowded": balancing.crowded_lane,
}


def main() -> None:
    """Run the chosen parts; print, write and draw what they come to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer epochs and keys")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PARTS", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the curves")
    options = parser.parse_args()
    chosen = options.only.split(",")
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    folder = Path(tempfile.mkdtemp(prefix="evenflow-bench-"))
    parts = []
    try:
        with session(TASK_SLOTS) as spark:
            setting = timed_setting(spark, folder, quick=options.quick)
            print(f"an epoch takes {setting.epoch_s:.3f} s beside the lanes' work")
            for name in chosen:
                parts.append(PARTS[name](setting))
                parts[-1].show()
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = [figure for part in parts for figure in part.figures if figure.met is not None]
    print(f"targets: {sum(bool(figure.met) for figure in figures)} of {len(figures)} met")
    if options.json:
        write_json(parts, options.json, epoch_s=setting.epoch_s)
    if options.png:
        draw(parts, options.png)


if __name__ == "__main__":
    main()
