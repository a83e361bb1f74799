"""Calls the user's function key by key: for keys with rows first, then for keys whose timeout is over.

Two facts of Spark's are followed to the letter: rows are late by the watermark of an epoch before, and a call sees the
watermark of before its epoch, by which timeouts are over as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import InputError
from evenflow.model import Due, EpochTime
from evenflow.model.slots import FloatArray, IntArray
from evenflow.operators.base import LATEST, Folded
from evenflow.operators.calling import calling, key_text
from evenflow.operators.clock import NeededTime
from evenflow.operators.frames import Frames
from evenflow.operators.group_held import NOTHING, Change, Held
from evenflow.operators.key_frames import frames_by_key, key_values
from evenflow.operators.key_groups import Key, groups_of
from evenflow.operators.output import conform

if TYPE_CHECKING:
    import pandas as pd

    from evenflow.operators.group_state import GroupStates

_Call = tuple[int, Key, Key, "pd.DataFrame"]  # slot, key as it is stored, key as it is shown, rows


class GroupCalls:
    """The states of a lane's keys, and the calls that change them."""

    def __init__(
        self, operator: GroupStates, frames: Frames, schema: pa.Schema, keys: tuple[str, ...], slots: int
    ) -> None:
        """Start empty; `schema` is that of the state."""
        self._operator, self._frames, self._keys, self._slots = operator, frames, keys, slots
        self._held = Held(schema, keys, slots)
        self._clock = NeededTime()

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:
        rows, slots = self._in_time(rows, slots, time)
        if not rows.num_rows:
            return self._called((), time, timed_out=False)
        order, starts, identities = groups_of(rows, self._keys, slots)
        rows = rows.take(pa.array(order))
        shown = frames_by_key(self._frames, rows.select(list(self._operator.columns_shown)), starts)
        keys = key_values(self._frames, rows.take(pa.array(starts, pa.int64())), self._keys)
        called = zip(slots[order][starts].tolist(), identities, keys, shown, strict=True)
        return self._called(called, time, timed_out=False)

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:
        now_ms = self._now_ms(time)
        if now_ms is None:
            return None
        over = self._held.over(slots, now_ms)
        keys = key_values(self._frames, self._held.key_table([key for _, key, _ in over]), self._keys)
        called = ((slot, key, shown, self._no_rows()) for (slot, key, _), shown in zip(over, keys, strict=True))
        fired = self._called(called, time, timed_out=True) if over else None
        self._held.passed(slots, now_ms)
        return fired

    def due(self, slots: Sequence[int]) -> Due | None:
        """Return when the clock makes a timeout due; where event time does, a tick follows the rows that moved it."""
        if self._operator.timeout != "processing":
            return None
        timeout_ms = self._held.next_ms(slots)
        return None if timeout_ms is None else Due(processing_us=1000 * (timeout_ms + 1))

    def install(self, state: pa.Table) -> None:
        self._held.install(state)

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        return self._held.snapshot(slots)

    def drop(self, slots: Sequence[int]) -> None:
        self._held.drop(slots)

    def output(self, slots: Sequence[int]) -> pa.Table:  # noqa: ARG002 - there is none
        raise InputError(f"complete mode needs aggregates; {self._operator} only knows the rows of each epoch")

    def view(self, slots: Sequence[int]) -> pa.Table:
        return self._held.view(slots, self._operator.states.shown)

    def slot_rows(self) -> IntArray:
        return self._held.slot_rows()

    def slot_bytes(self) -> IntArray:
        return self._held.slot_bytes()

    # --- the calls -----------------------------------------------------------------------------------------------

    def _called(self, calls: Iterable[_Call], time: EpochTime, *, timed_out: bool) -> Folded:
        """Call the function for each key; what it leaves in the state is kept from now on."""
        states, function, held = self._operator.states.at(time), self._operator.function, self._held
        busy: FloatArray = np.zeros(self._slots)
        changes: list[Change] = []
        outputs: list[pd.DataFrame] = []
        output_slots: list[int] = []
        slot: int | None = None
        began = self._clock()
        for at, key, shown, frame in calls:
            if at != slot:  # reading the clock for every key would cost more than what it measures
                now = self._clock()
                if slot is not None:
                    busy[slot] += now - began
                slot, began = at, now
            entry = held.get(at, key)
            with calling(self._operator.name, at, partial(key_text, self._keys, key)):
                state = states.given(None if entry is None else entry.state, timed_out=timed_out)
                for put_out in states.frames(function(shown, iter((frame,)), state)):
                    if len(put_out):
                        outputs.append(put_out)
                        output_slots += [at] * len(put_out)
                left = states.left(state)
            if left is not None and (entry is not None or left != NOTHING):
                held.put(at, key, left)
                changes.append((at, key, left))
        if slot is not None:
            busy[slot] += self._clock() - began
        return Folded(held.table(changes), self._conformed(outputs), np.array(output_slots, np.int64), busy)

    def _conformed(self, outputs: list[pd.DataFrame]) -> pa.Table:
        """Return all frames as one table; frames with other columns than most are converted by themselves."""
        output = self._operator.output
        if not outputs:
            return output.empty_table()
        return pa.concat_tables([conform(each, output, self._frames) for each in _together(outputs, len(output))])

    def _no_rows(self) -> pd.DataFrame:
        """Return what Spark hands over if there are no rows: the columns, without types."""
        import pandas as pd  # who gets frames has it

        return pd.DataFrame(columns=list(self._operator.columns_shown))

    # --- time ----------------------------------------------------------------------------------------------------

    def _in_time(self, rows: pa.Table, slots: IntArray, time: EpochTime) -> tuple[pa.Table, IntArray]:
        """Leave out rows that are late. A row without a time never is."""
        if self._operator.late_by is None or time.late_us is None:
            return rows, slots
        times = rows[self._operator.late_by].combine_chunks().cast(pa.int64())
        kept = pc.invert(pc.fill_null(pc.less_equal(times, time.late_us), fill_value=False))
        return rows.filter(kept), slots[kept.to_numpy(zero_copy_only=False)]

    def _now_ms(self, time: EpochTime) -> int | None:
        """Return the time by which timeouts are over; None if there are none."""
        if self._operator.timeout == "processing":
            return time.processing_us // 1000
        if self._operator.timeout == "event" and time.before_us is not None:
            return time.before_us // 1000
        return None


def _together(outputs: list[pd.DataFrame], columns: int) -> Iterator[pd.DataFrame]:
    import pandas as pd  # who returns frames has it

    whole = pd.concat(outputs, ignore_index=True) if len(outputs) > 1 else outputs[0]
    if len(whole.columns) == columns:
        yield whole
        return
    yield from outputs  # their columns have different names: by place, if that is how Spark reads them
