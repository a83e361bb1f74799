"""FX-E11 (Fig. 6): the worked example of one round with four sites."""

from __future__ import annotations

import numpy as np

from evenflow.model import LaneLoad, LoadView, LoadWindow, RoutingTable, SlotLoads
from evenflow.plot.picture import Panel, Picture, Series
from evenflow.policies import policy_named, proposal_of
from papers.experiment import Experiment, Outcome, Settings
from papers.flux.rules import E11 as RULE
from papers.flux.rules import MOVES

# Fig. 6 survives as prose only: four sites in order of utilisation; 5 goes from site 1 to 4; of site 2, the larger
# 9 would raise the imbalance with site 3, so 8 goes. These are tuples per partition that fit the prose.
_SITES = {1: {5: 50, 2: 25, 1: 25}, 2: {9: 60, 8: 15, 4: 10}, 3: {7: 35, 3: 30}, 4: {6: 25, 10: 15}}


def _view() -> LoadView:
    """Return the example as a window: utilisation follows the tuples, 100 fill a site."""
    partitions = sorted(part for site in _SITES.values() for part in site)
    owners, tuples = np.zeros(max(partitions) + 1, np.int64), np.zeros(max(partitions) + 1)
    for site, parts in _SITES.items():
        for part, count in parts.items():
            owners[part], tuples[part] = site, count
    owners[0] = 1  # partitions are numbered from 1: slot 0 is empty
    table = RoutingTable(owners, tuple(_SITES))
    lanes = tuple(LaneLoad(site, idle_s=1.0 - sum(parts.values()) / 100) for site, parts in _SITES.items())
    return LoadView((LoadWindow(SlotLoads.of(tuples), lanes),), table)


def _run(settings: Settings) -> Outcome:  # noqa: ARG001 - there is nothing to set
    proposal = proposal_of(policy_named("flux-load"), _view())
    moves = {move.slot: move.target for move in proposal.moves}
    used = {site: float(sum(parts.values())) for site, parts in _SITES.items()}
    after = dict(used)
    for move in proposal.moves:
        after[move.source] -= _SITES[move.source][move.slot]
        after[move.target] += _SITES[move.source][move.slot]
    check = MOVES.check(
        (moves,),
        "partition 5 to site 4, partition 8 to site 3 (not 9)",
        ", ".join(f"partition {slot} to site {site}" for slot, site in sorted(moves.items())),
        "the pair rule chose otherwise",
    )
    panel = Panel(
        "Partition movements in a single round",
        "site",
        "utilisation (%)",
        (
            Series("before", list(used), list(used.values()), kind="bars"),
            Series("after", list(after), list(after.values()), kind="bars"),
        ),
    )
    return Outcome((check,), Picture([panel], columns=1), {"moves": moves, "before": used, "after": after})


E11 = Experiment("FX-E11", "Fig. 6", "Worked example of one round", RULE, _run)
