"""Producers that are faster than the lanes, and what lies between: Flux's skew buffer, plain Exchange, or River.

Each producer fills its space as fast as it can; a tuple goes to the connection of its lane as soon as that has
room. With a skew buffer, tuples that must wait share one space, and the producer stops only when that is full (FX 4).
With Exchange the same space is cut up among the connections, and the first full one stops the producer (FX 2.3).
With River's distributed queue (FX 2.4) the space is cut up too, but a record may go to any lane: to one drawn by the
free places in its connection. That evens load without moving anything, and only lanes without state allow it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenflow.errors import InputError
from evenflow.model.slots import BoolArray, FloatArray, IntArray
from evenflow.sim.quantum.counts import sum_by


@dataclass(frozen=True, slots=True)
class Flow:
    """Space per producer, in records: between it and each lane, and to share among all lanes.

    `produce_s` is what a producer needs per record. `together` treats all producers as one with the space of all,
    which is much faster and differs only in the chance fluctuations between producers. Without `drawn`, records
    come in the expected proportions instead of being drawn one by one. With `packet_records`, a producer sends
    a lane only full packets: a lane with little to do then gets its input in few lumps.

    `river` sends records wherever there is room, so they have no slot of their own: each counts for the slots of the
    lane that got it, for all alike, and a lane without slots gets none. For stateless scenarios only.
    """

    producers: int = 1
    connection_records: float = 25.0
    buffer_records: float = 2048.0
    exchange: bool = False
    river: bool = False
    produce_s: float = 0.0
    together: bool = True
    drawn: bool = True
    packet_records: float | None = None

    def __post_init__(self) -> None:
        """Refuse space that holds nothing."""
        if self.producers < 1 or self.connection_records <= 0 or self.buffer_records < 0 or self.produce_s < 0:
            raise InputError(f"flow: needs producers, room in connections and no negative sizes, got {self}")
        if self.river and (self.exchange or self.packet_records is not None):
            raise InputError("flow: river sends single records to any lane; leave out exchange and packet_records")


class Producers:
    """What producers hold: `buffer` by producer and slot, `sent` (in the connections) by producer and lane."""

    def __init__(self, flow: Flow, slots: int, lanes: int, rng: np.random.Generator) -> None:
        """Start with everything empty."""
        self.flow, self.rng = flow, rng
        self.rows = 1 if flow.together else flow.producers
        self.each = flow.producers // self.rows
        self.buffer = np.zeros((self.rows, slots))
        self.sent = np.zeros((self.rows, lanes))
        self.made = np.zeros(slots)
        self.blocked_s = 0.0
        self._carry = np.zeros(self.rows)
        self._partial = np.zeros((flow.producers, lanes))

    def grow(self, lanes: int) -> None:
        """Make room for lanes up to number `lanes` - 1."""
        more = ((0, 0), (0, max(0, lanes - self.sent.shape[1])))
        self.sent, self._partial = np.pad(self.sent, more), np.pad(self._partial, more)

    def fill(self, shares: FloatArray, owner: IntArray, stalled: BoolArray, span_s: float) -> FloatArray:
        """Produce as much as there is room for, hand over what connections take; return that, by slot.

        Where no slot has a share the stream pauses: nothing is made, what is held goes on.
        """
        lanes = self.sent.shape[1]
        room = np.maximum(0.0, self._connection(lanes) - self.sent)
        if not shares.any():
            return self._send(room, owner, stalled)
        if self.flow.river:
            return self._fill_any(room, owner, stalled, span_s)
        held = _by_lane(_without(self.buffer, stalled), owner, lanes)
        aside = self.buffer[:, stalled].sum(axis=1)
        by_lane = _by_lane(_without(shares[None, :], stalled), owner, lanes)[0]
        if self.flow.exchange:
            count = _until_one_is_full(room - held, by_lane)
            count = np.where(aside > 0, 0.0, count)  # a tuple for a stalled slot is in the way of all others
        else:
            space = self.flow.buffer_records * self.each - aside
            count = _until_buffer_is_full(room - held, by_lane, float(shares[stalled].sum()), space)
        made = self._make(self._in_time(count, span_s), shares)
        self._pack(_by_lane(made, owner, lanes))
        return self._send(room, owner, stalled)

    def taken(self, waiting: FloatArray) -> None:
        """Lanes have taken from the connections: `waiting` is what is left there, by lane."""
        before = self.sent.sum(axis=0)
        self.sent = self.sent * np.divide(waiting, before, out=np.zeros_like(waiting), where=before > 0)

    def _connection(self, lanes: int) -> float:
        """Return the records that fit between a producer (or all, together) and a lane."""
        divided = self.flow.exchange or self.flow.river
        extra = self.flow.buffer_records / lanes if divided else 0.0
        return (self.flow.connection_records + extra) * self.each

    def _in_time(self, count: FloatArray, span_s: float) -> FloatArray:
        if self.flow.produce_s <= 0:
            return count
        return np.minimum(count, span_s / self.flow.produce_s * self.each)

    def _make(self, count: FloatArray, shares: FloatArray) -> FloatArray:
        """Make new records, by producer and slot; those drawn are whole ones."""
        if self.flow.drawn:
            made = self.rng.multinomial(self._whole(count), shares).astype(np.float64)
        else:
            made = count[:, None] * shares
        self.buffer += made
        self.made += made.sum(axis=0)
        return made

    def _whole(self, count: FloatArray) -> IntArray:
        """Return whole records; parts are carried to the next step."""
        wanted = count + self._carry
        whole = np.floor(wanted)
        self._carry = np.minimum(wanted - whole, 1.0)
        return whole.astype(np.int64)

    def _fill_any(self, room: FloatArray, owner: IntArray, stalled: BoolArray, span_s: float) -> FloatArray:
        """Produce until time or room is over, and send each record where there is room; return that, by slot."""
        present = np.where(stalled, 0.0, 1.0)
        slots_of = sum_by(owner, present, room.shape[1])
        room = np.where(slots_of > 0, room, 0.0)
        going = self._draw_places(room, self._in_time(room.sum(axis=1), span_s))
        self.sent += going
        made: FloatArray = (going.sum(axis=0) / np.maximum(1.0, slots_of))[owner] * present
        self.made += made
        return made

    def _draw_places(self, room: FloatArray, count: FloatArray) -> FloatArray:
        """Let `count` records of each producer choose lanes, one after the other, by the places that are left then.

        Every free place is as likely as any other, and none is taken twice: balls drawn and not put back.
        """
        if not self.flow.drawn:
            whole = room.sum(axis=1)
            share = np.divide(count, whole, out=np.zeros_like(count), where=whole > 0)
            even: FloatArray = room * share[:, None]
            return even
        places = np.floor(room).astype(np.int64)
        wanted = np.minimum(self._whole(count), places.sum(axis=1))
        pairs = zip(places, wanted, strict=True)
        return np.array([self.rng.multivariate_hypergeometric(*pair) for pair in pairs], np.float64)

    def _pack(self, made: FloatArray) -> None:
        """Put new records into packets; what is in packets that are not full waits."""
        if self.flow.packet_records is None:
            return
        if self.rows < self.flow.producers:  # all producers together: who made what is drawn
            counts = np.floor(made[0] + 0.5).astype(np.int64)
            shares = np.full(self.flow.producers, 1 / self.flow.producers)
            each = self.rng.multinomial(counts, shares).T.astype(np.float64)
        else:
            each = made
        self._partial = np.mod(self._partial + each, self.flow.packet_records)

    def _send(self, room: FloatArray, owner: IntArray, stalled: BoolArray) -> FloatArray:
        lanes = room.shape[1]
        ready = _without(self.buffer, stalled)
        held = _by_lane(ready, owner, lanes)
        if self.flow.packet_records is not None:
            partial = self._partial if self.rows == self.flow.producers else self._partial.sum(axis=0, keepdims=True)
            room = np.minimum(room, np.maximum(0.0, held - partial))
        going = _in_turn(ready, owner, room, held)
        self.buffer = self.buffer - going  # a new array: `going` may be the old one
        self.sent += _by_lane(going, owner, lanes)
        total: FloatArray = going.sum(axis=0)
        return total


def _without(values: FloatArray, stalled: BoolArray) -> FloatArray:
    """Return the columns of slots that are not stalled, zeros for the others; the very array if there are none."""
    return np.where(stalled, 0.0, values) if stalled.any() else values


def _by_lane(values: FloatArray, owner: IntArray, lanes: int) -> FloatArray:
    """Add up the columns of each row by lane."""
    rows = values.shape[0]
    return sum_by(_connections(owner, rows, lanes), values.ravel(), rows * lanes).reshape(rows, lanes)


def _connections(owner: IntArray, rows: int, lanes: int) -> IntArray:
    """Number the connections, producer by producer; return that of each producer and slot."""
    return owner if rows == 1 else (owner[None, :] + lanes * np.arange(rows)[:, None]).ravel()


def _in_turn(ready: FloatArray, owner: IntArray, room: FloatArray, held: FloatArray) -> FloatArray:
    """Send what connections take; where that is not all, slot after slot in turn, a record each (FX 5.1).

    So every slot gets through up to a level that is the same for all slots of a connection.
    """
    tight = held > room
    if not tight.any():
        return ready
    group = _connections(owner, *room.shape)
    at = (tight.ravel()[group] & (ready.ravel() > 0)).nonzero()[0]
    amount, where = ready.ravel()[at], group[at]
    order = np.argsort(where + amount / (2 * amount.max()))  # by connection, then by amount
    at, amount, where = at[order], amount[order], where[order]
    count = np.bincount(where)
    count = count[count > 0]
    first = count.cumsum() - count
    before = amount.cumsum() - amount
    before -= np.repeat(before[first], count)
    others = np.repeat(first + count, count) - np.arange(at.size)  # itself and those with more
    level = (room.ravel()[where] - before) / others
    # It rises as long as slots have less than it, and falls from then on: the highest one is where it meets them.
    going = ready.copy().ravel()
    going[at] = np.minimum(amount, np.repeat(np.maximum.reduceat(level, first), count))
    return np.maximum(0.0, going.reshape(ready.shape))


def _until_one_is_full(free: FloatArray, shares: FloatArray) -> FloatArray:
    """Return how many records each producer makes before the first connection is full; none without a `share`."""
    used = shares > 0
    if not used.any():  # all that would come is for stalled slots
        return np.zeros(free.shape[0])
    count: FloatArray = np.maximum(0.0, free[:, used] / shares[used]).min(axis=1)
    return count


def _until_buffer_is_full(
    free: FloatArray, shares: FloatArray, aside: float, space: npt.NDArray[np.float64]
) -> FloatArray:
    """Return how many records G each producer makes before what finds no place in a connection fills `space`.

    What is left over, G * aside + sum over lanes of max(0, G * share - free), grows in straight pieces with G.
    """
    used = shares > 0
    free, shares = free[:, used], shares[used]
    over = np.maximum(0.0, -free).sum(axis=1)  # what is in the buffer already and finds no place
    left = space - over
    if not used.any():  # all that comes is for stalled slots
        whole: FloatArray = np.maximum(0.0, left) / aside
        return whole
    full_at = np.maximum(0.0, free) / shares
    order = full_at.argsort(axis=1)
    rows = np.arange(full_at.shape[0])
    at = full_at[rows[:, None], order]
    slope = aside + shares[order].cumsum(axis=1)  # after the connection `at` is full
    before, gaps = np.full(at.shape, aside), at.copy()
    before[:, 1:], gaps[:, 1:] = slope[:, :-1], at[:, 1:] - at[:, :-1]
    grown = (before * gaps).cumsum(axis=1)  # left over by the time the connection `at` is full
    piece = (grown <= left[:, None]).sum(axis=1)
    last = np.maximum(piece - 1, 0)
    start = np.where(piece > 0, at[rows, last], 0.0)
    have = np.where(piece > 0, grown[rows, last], 0.0)
    steep = np.where(piece > 0, slope[rows, last], aside)
    more = np.divide(left - have, steep, out=np.zeros_like(left), where=steep > 0)
    return np.where(left >= 0, start + np.maximum(0.0, more), 0.0)
