"""The merge of partial states at the end, and a look-up on the ring (DP-E7, E8)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import product
from string import ascii_lowercase
from typing import Any

import mmh3
import numpy as np

from evenflow.plot.picture import Panel, Picture, Series
from evenflow.policies.ring import SEED, TOKEN_TEXT, Ring
from papers.dpa.protocol.forwarding import DpaOptions
from papers.dpa.rules import E7 as E7_RULE
from papers.dpa.rules import E8 as E8_RULE
from papers.dpa.rules import LOOK_UP, MERGED, MERGED_AT_SCALE
from papers.dpa.workloads import METHODS, WORKLOADS, Counted, count_letters
from papers.experiment import Check, Experiment, Outcome, Settings

_ROUNDS = range(6)
_SCALE, _SCALE_QUICK = 1_000_000, 20_000
_NODES, _TOKENS = 3, 2


def _e7(settings: Settings) -> Outcome:
    rounds = (0, 1, 5) if settings.quick else _ROUNDS
    right: dict[str, bool] = {}
    forwarded: dict[str, int] = {}
    for method in METHODS:
        for name, items in WORKLOADS.items():
            for limit in rounds:
                run = count_letters(items, method, {"rounds_per_lane": limit})
                label = f"{name} {method} {limit}"
                right[label] = _merged(run) == dict(Counter(items))
                forwarded[label] = run.result.trace.messages["forwarded"]
    wrong = [label for label, fine in right.items() if not fine]
    check = MERGED.check(
        (wrong,),
        "the merge adds the counts",
        f"{len(right) - len(wrong)} of {len(right)} runs; up to {max(forwarded.values())} items forwarded",
        f"wrong: {', '.join(wrong)}",
    )
    scale_check, scale = _at_scale(settings)
    last = {name: [forwarded[f"{name} {method} {rounds[-1]}"] for method in METHODS] for name in WORKLOADS}
    series = tuple(Series(name, list(METHODS), values, "bars") for name, values in last.items())
    picture = Picture((Panel(f"{rounds[-1]} rounds per reducer", "method", "items forwarded", series),), columns=1)
    return Outcome(
        (check, scale_check),
        picture,
        {"right": right, "forwarded": forwarded, "at scale": scale},
        seeds=(settings.seed,),
    )


def _merged(run: Counted) -> dict[str, int]:
    return {run.names[key]: state for key, state in run.result.state.items()}


def _at_scale(settings: Settings) -> tuple[Check, dict[str, Any]]:
    """Count a million items (fewer if quick) of 26 * 26 keys, a few of them frequent, with up to 5 rounds."""
    rng = np.random.default_rng(settings.seed)
    names = np.array(["".join(pair) for pair in product(ascii_lowercase, repeat=2)])
    weights = 1.0 / np.arange(1, names.size + 1)
    items = rng.choice(names, _SCALE_QUICK if settings.quick else _SCALE, p=weights / weights.sum()).tolist()
    options = DpaOptions(service=200, report_every=1_000)
    plain = dict(Counter(items))
    found: dict[str, Any] = {}
    for method in METHODS:
        before, after = (count_letters(items, method, {"rounds_per_lane": limit}, options) for limit in (0, 5))
        found[method] = {"S without": before.skew, "S with": after.skew, "right": _merged(after) == plain}
    said = ", ".join(f"{method} S {one['S without']:.2f} to {one['S with']:.2f}" for method, one in found.items())
    check = MERGED_AT_SCALE.check(
        ([one["right"] for one in found.values()],),
        "(not run)",
        said,
        "the merged counts are wrong",
        f"the same with {len(items):,} items of {names.size} keys",
    )
    return check, found


def _e8(settings: Settings) -> Outcome:
    ring = Ring.even(range(_NODES), _TOKENS)
    tokens = sorted(
        (mmh3.hash(TOKEN_TEXT.format(i=node, j=j), SEED), node) for node in range(_NODES) for j in range(_TOKENS)
    )
    places = [place for place, _ in tokens]
    walked = {
        letter: tokens[bisect_right(places, mmh3.hash(letter, SEED)) % len(tokens)][1] for letter in ascii_lowercase
    }
    found = {letter: ring.lookup(letter) for letter in ascii_lowercase}
    agree = sum(walked[letter] == found[letter] for letter in ascii_lowercase)
    check = LOOK_UP.check(
        (agree, len(ascii_lowercase)),
        "the first token clockwise",
        f"{agree} of 26 keys where a walk around the ring finds them",
        "the binary search and the walk disagree",
    )
    series = [
        Series(f"tokens of node {node}", [place for place, owner in tokens if owner == node], [1.0] * _TOKENS, "points")
        for node in range(_NODES)
    ]
    series += [
        Series(
            f"keys of node {node}", [mmh3.hash(k, SEED) for k, owner in found.items() if owner == node], ys, "points"
        )
        for node in range(_NODES)
        for ys in [[0.0] * sum(owner == node for owner in found.values())]
    ]
    panel = Panel("the ring, cut open", "position (32-bit hash)", "keys below, tokens above", series)
    return Outcome((check,), Picture((panel,), columns=1), {"tokens": tokens, "owners": found}, seeds=(settings.seed,))


E7 = Experiment("DP-E7", "section 1", "Final state merge", E7_RULE, _e7)
E8 = Experiment("DP-E8", "Fig. 2", "Look-up on a ring", E8_RULE, _e8)
