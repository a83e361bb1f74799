"""Who gets into a lane's bounded queue: all slots alike, or important ones first, in the place of others if need be."""

from __future__ import annotations

import numpy as np

from evenflow.model.slots import BoolArray, FloatArray, IntArray
from evenflow.sim.quantum.counts import sum_by


def admitted(offered: FloatArray, waiting: FloatArray, limit: float, owner: IntArray, lanes: int) -> FloatArray:
    """Return what finds room beside what is `waiting` for its lane; slots of a full lane are cut in proportion."""
    room = np.maximum(0.0, limit - sum_by(owner, waiting, lanes))
    asked = sum_by(owner, offered, lanes)
    share = np.divide(room, asked, out=np.ones_like(asked), where=asked > room)
    found: FloatArray = offered * share[owner]
    return found


def displaced(
    coming: FloatArray, waiting: FloatArray, limit: float, owner: IntArray, may_go: BoolArray
) -> FloatArray:
    """Return the share of what waits that has to go from slots that `may_go`, so that `coming` finds room."""
    lanes = int(owner.max()) + 1
    asked = sum_by(owner, coming, lanes)
    too_much = np.maximum(0.0, sum_by(owner, waiting, lanes) + asked - limit)
    there = sum_by(owner, np.where(may_go, waiting, 0.0), lanes)
    going = np.minimum(np.minimum(too_much, asked), there)  # one for one: what was too much before may stay
    share = np.divide(going, there, out=np.zeros_like(there), where=there > 0)
    return np.where(may_go, share[owner], 0.0)
