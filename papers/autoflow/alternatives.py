"""Static alternatives (AF-E13), what control messages cost (E14), and who has to wait during a migration (E15)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from evenflow.errors import InputError
from evenflow.plot.picture import Panel, Picture, Series
from papers.autoflow import rules
from papers.autoflow.fixed import CASES
from papers.autoflow.protocol.halting import block_channels_run, halt_all_run
from papers.autoflow.protocol.run import autoflow_run
from papers.autoflow.protocol.static import pre_aggregation_run, rehashing_run
from papers.autoflow.rules import (
    BATCH_LATENCY,
    FEWER_WAIT,
    HOTSPOT_EASED,
    NONE_HELD,
    ONLY_MIGRATED_WAIT,
    REFUSED,
    SAME_LATENCY,
    SAME_RATE,
    TRAFFIC,
)
from papers.autoflow.scenario import Scenario, fixed_skew
from papers.autoflow.simulated import plant_of, simulate, stream_of
from papers.experiment import Experiment, Outcome, Settings
from papers.flux.protocol import flux_run
from papers.messages.decider import Script
from papers.messages.folds import Fold, fold_of
from papers.messages.loop import SECOND
from papers.messages.own_engine import engine_run
from papers.messages.plant import Plant
from papers.messages.run import Result
from papers.messages.stream import RecordStream

BATCH_S = 0.5
JOIN = fold_of("join", lambda state, value: (*state, value), ())
WINDOW = fold_of("event-time window", lambda state, value: (*state, value), ())
_QUICK_SCALE = 0.2


def _scenario(settings: Settings, scenario: Scenario) -> Scenario:
    return scenario.scaled(_QUICK_SCALE) if settings.quick else scenario


# --- E13 --------------------------------------------------------------------------------------------------------------


def _e13(settings: Settings) -> Outcome:
    skewed = replace(fixed_skew("80 % on one of 3", 3, 1, 0.8, 30), keys_per_slot=1)
    scenario = _scenario(settings, skewed)
    stream, plant = stream_of(scenario, settings.seed), plant_of(scenario, settings.seed)
    batch = round(BATCH_S * SECOND)
    none = simulate(scenario.off(), settings.seed, stream=stream).result
    techniques = {"pre-aggregation": pre_aggregation_run, "rehashing": rehashing_run}
    runs = {name: wire(stream, plant, batch).run() for name, wire in techniques.items()}
    traffic = {name: run.trace.messages["to reducers"] / len(stream) for name, run in runs.items()}
    medians = {name: float(np.median(run.latency_s)) for name, run in runs.items()}
    refused = {fold.name: _refusals(stream, plant, fold) for fold in (JOIN, WINDOW)}
    checks = (
        TRAFFIC.check(
            (list(traffic.values()),),
            "reduced",
            ", ".join(f"{name} {100 * share:.0f} % of the records" for name, share in traffic.items()),
            "not reduced",
        ),
        BATCH_LATENCY.check(
            (list(medians.values()), BATCH_S),
            "the batch adds latency",
            (
                ", ".join(f"{name} median {median:.2f} s" for name, median in medians.items())
                + f"; batches of {BATCH_S} s"
            ),
            "below half a batch, the mean time a record waits for its batch to end",
        ),
        HOTSPOT_EASED.check(
            (max(float(run.latency_s.max()) for run in runs.values()), float(none.latency_s.max())),
            "pressure is reduced",
            (
                f"highest latency {max(float(run.latency_s.max()) for run in runs.values()):.2f} s; "
                f"{float(none.latency_s.max()):.1f} s without"
            ),
            "the hot reducer still falls behind",
        ),
        REFUSED.check(
            (list(refused.values()), len(techniques)),
            "not fit for join and event-time window",
            ", ".join(f"{name}: refused {count} of {len(techniques)} times" for name, count in refused.items()),
            "one was not refused",
        ),
    )
    names = ["none", *runs]
    latency = [[float(np.quantile(run.latency_s, q)) for run in (none, *runs.values())] for q in (0.5, 0.99)]
    panels = (
        Panel(
            "messages to reducers",
            "",
            "messages per record",
            (Series("traffic", names, [1.0, *traffic.values()], "bars"),),
        ),
        Panel(
            "latency",
            "",
            "latency (s)",
            tuple(
                Series(label, names, values, "bars") for label, values in zip(("median", "99 %"), latency, strict=True)
            ),
            log_y=True,
        ),
    )
    return Outcome(
        checks, Picture(panels), {"traffic": traffic, "median_s": medians, "refused": refused}, seeds=(settings.seed,)
    )


def _refusals(stream: RecordStream, plant: Plant, fold: Fold) -> int:
    """Return how many of the two techniques refuse an operator."""
    count = 0
    for wire in (pre_aggregation_run, rehashing_run):
        try:
            wire(stream, replace(plant, fold=fold), SECOND)
        except InputError:
            count += 1
    return count


# --- E14 --------------------------------------------------------------------------------------------------------------


def _e14(settings: Settings) -> Outcome:
    scenario = fixed_skew("even", 3, 0, 0.0, 10 if settings.quick else 60)  # at full rate, for that decides the cost
    stream = stream_of(scenario, settings.seed)
    plant = plant_of(scenario, settings.seed)
    dear = replace(plant, timing=replace(plant.timing, marker=plant.service))
    arms = {
        "none": autoflow_run(stream, replace(plant, control=False)).run(),
        "empty": autoflow_run(stream, plant).run(),
        "empty, each as dear as a record": autoflow_run(stream, dear).run(),
    }
    rate = {name: len(stream) / run.end_s for name, run in arms.items()}
    mean = {name: float(run.latency_s.mean()) for name, run in arms.items()}
    off_rate, off_mean = rate["none"], mean["none"]
    lost = max(1 - value / off_rate for value in rate.values())
    slower = {name: value / off_mean - 1 for name, value in mean.items()}
    held = sum(sum(run.trace.held.values()) for run in arms.values())
    checks = (
        SAME_RATE.check(
            (lost,), "does nothing different", f"at most {100 * lost:.3f} % less", "above the bound of 2 %"
        ),
        SAME_LATENCY.check(
            (slower["empty"], slower["empty, each as dear as a record"]),
            "does nothing different",
            (
                f"{100 * slower['empty']:+.2f} % if they cost nothing, "
                f"{100 * slower['empty, each as dear as a record']:+.2f} % if each costs a lane as much as a record"
            ),
            "three messages a second per lane, each as dear as a record, take their turn in the queue",
        ),
        NONE_HELD.check((held,), "none", str(held), "an empty message held something up"),
    )
    names = list(arms)
    panels = (
        Panel("throughput", "control messages", "records/s", (Series("rate", names, list(rate.values()), "bars"),)),
        Panel("mean latency", "control messages", "latency (s)", (Series("mean", names, list(mean.values()), "bars"),)),
    )
    return Outcome(checks, Picture(panels), {"rate": rate, "mean_s": mean}, seeds=(settings.seed,))


# --- E15 --------------------------------------------------------------------------------------------------------------


def _e15(settings: Settings) -> Outcome:
    scenario = _scenario(settings, replace(CASES["3/50"].scenario, duration_s=30))
    stream, plant = stream_of(scenario, settings.seed), plant_of(scenario, settings.seed)
    moves: dict[int, list[Any]] = {}
    for (_, epoch), trace in simulate(scenario, settings.seed, stream=stream).result.trace.moves.items():
        moves.setdefault(epoch, []).append(trace.move)
    migrated = {move.slot for step in moves.values() for move in step}
    arms: dict[str, Callable[..., Any]] = {
        "AutoFlow": autoflow_run,
        "block channels": block_channels_run,
        "halt all": halt_all_run,
        "Flux": flux_run,
        "evenflow, at the timestamp": lambda *parts: engine_run(*parts, at_once=False),
        "evenflow, at once": lambda *parts: engine_run(*parts, at_once=True),
    }
    runs: dict[str, Result] = {name: wire(stream, plant, Script(moves)).run() for name, wire in arms.items()}
    waiting = {name: sum(run.trace.held.values()) for name, run in runs.items()}
    strangers = {
        name: sum(count for slot, count in run.trace.held.items() if slot not in migrated) for name, run in runs.items()
    }
    others = min(waiting["block channels"], waiting["halt all"])
    checks = (
        ONLY_MIGRATED_WAIT.check(
            (waiting["AutoFlow"], strangers["AutoFlow"]),
            "only those of migrated slots",
            f"{waiting['AutoFlow']}, of which {strangers['AutoFlow']} of other slots",
            "others had to wait, or nothing did and nothing is shown",
        ),
        FEWER_WAIT.check(
            (waiting["AutoFlow"], others),
            "other methods halt the graph or block channels",
            (
                f"block channels {waiting['block channels']} ({strangers['block channels']} of other slots), halt all "
                f"{waiting['halt all']} ({strangers['halt all']} of other slots)"
            ),
            "they hold up no more",
        ),
    )
    names = list(runs)
    series = (
        Series("of migrated slots", names, [waiting[name] - strangers[name] for name in names], "bars"),
        Series("of other slots", names, [strangers[name] for name in names], "bars"),
    )
    panel = Panel("records that had to wait", "protocol", "records", series)
    data = {
        "waiting": waiting,
        "of other slots": strangers,
        "migrations": {str(at): len(of) for at, of in moves.items()},
    }
    return Outcome(checks, Picture((panel,), columns=1), data, seeds=(settings.seed,))


E13 = Experiment("AF-E13", "Fig. 1", "Pre-aggregation and rehashing", rules.E13, _e13)
E14 = Experiment("AF-E14", "claim of III-C", "What empty control messages cost", rules.E14, _e14)
E15 = Experiment("AF-E15", "claim of V", "Who has to wait during a migration", rules.E15, _e15)
