"""The simplest operator of one's own: a function that takes the state of a key and a row, and returns the new state."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from datetime import date, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa

from evenflow.errors import InputError
from evenflow.operators.calling import calling, key_text
from evenflow.operators.key_operator import KeyBatch, KeyChanges, KeyOperator
from evenflow.operators.under_way import under_way

_TYPES: tuple[tuple[type, pa.DataType], ...] = (  # in this order: a bool is an int, a datetime is a date
    (bool, pa.bool_()),
    (int, pa.int64()),
    (float, pa.float64()),
    (str, pa.string()),
    (bytes, pa.binary()),
    (datetime, pa.timestamp("us", "UTC")),
    (date, pa.date32()),
)
_ONE = "value"  # the column of a state that is one value
_DECLARE = "declare the columns: state='total long, last string'"


class Folding(KeyOperator):
    """Folds rows with `step(state, value, ...)`, key by key; puts out the new state of every key that had rows.

    The parameters of `step` after the first name the columns that it takes. State is one value, a tuple or a dictionary
    of values; `init` is that of a new key, or a function that makes it. With `arrays`, `step` is called once per key
    and epoch, with numpy arrays of all its values, else once per row with Python values.
    """

    name = "fold"

    def __init__(self, init: Any, step: Callable[..., Any], state: Any = None, *, arrays: bool = False) -> None:
        """Look at what is folded, and into what."""
        self._init, self._step, self._arrays = init, step, arrays
        self.columns_needed = _columns_of(step)
        sample = self._fresh()
        self._shape: type[Any] = next((kind for kind in (tuple, dict) if isinstance(sample, kind)), object)
        self.state = self.output = _declared(sample) if state is None else state
        self._size = len(sample) if self._shape is not object else 1

    def process(self, batch: KeyBatch) -> KeyChanges:
        names = batch.state.column_names
        if len(names) != self._size or (self._shape is dict and set(names) != set(self._fresh())):
            raise InputError(f"fold: state has the columns {', '.join(names)}, and init is {self._fresh()!r}")
        states = self._held(batch, names)
        rows = self._rows(batch)
        step, at = self._step, 0

        def key() -> str:
            values = batch.keys.slice(at, 1).to_pylist()[0]
            return key_text(tuple(values), tuple(values.values()))

        try:
            with under_way("fold", key=key):
                for at, (low, high) in enumerate(pairwise(batch.offsets.tolist())):
                    held = states[at]
                    for values in rows(low, high):
                        held = step(held, *values)
                    states[at] = held
        except BaseException:
            with calling("fold", key=key()):
                raise
        columns = self._split(states, names)
        return KeyChanges(columns, output=columns)

    def _fresh(self) -> Any:
        """Return the state of a new key: one of its own, for `step` may change it in place."""
        return self._init() if callable(self._init) else copy.deepcopy(self._init)

    def _held(self, batch: KeyBatch, names: Sequence[str]) -> list[Any]:
        columns = [_python(batch.state[name]) for name in names]
        if self._shape is object:
            held: list[Any] = columns[0]
        elif self._shape is tuple:
            held = list(zip(*columns, strict=True))
        else:
            held = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        for at in batch.is_new.nonzero()[0].tolist():
            held[at] = self._fresh()
        return held

    def _rows(self, batch: KeyBatch) -> Callable[[int, int], Sequence[tuple[Any, ...]]]:
        """Return what gives the arguments of `step` for the rows of a key, besides its state."""
        names = self.columns_needed or ()
        if self._arrays:
            arrays = [batch.column(name) for name in names]
            return lambda low, high: (tuple(array[low:high] for array in arrays),)
        columns = [_python(batch.rows[name]) for name in names]
        rows = list(zip(*columns, strict=True)) if columns else [()] * int(batch.offsets[-1])
        return lambda low, high: rows[low:high]

    def _split(self, states: list[Any], names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of states; refuse one that is not like `init`."""
        if self._shape is object:
            return {names[0]: states}
        for state in states:
            if not isinstance(state, self._shape) or len(state) != len(names):
                raise InputError(f"fold: step must return a {self._shape.__name__} like init, got {state!r}")
        if self._shape is tuple:
            return dict(zip(names, map(list, zip(*states, strict=True)), strict=True))
        return {name: [state[name] for state in states] for name in names}


def _python(column: pa.ChunkedArray) -> list[Any]:
    """Return values as Python has them; through numpy where that is faster."""
    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    values: list[Any] = column.to_numpy().tolist() if plain and not column.null_count else column.to_pylist()
    return values


def _columns_of(step: Any) -> tuple[str, ...]:
    if not callable(step):
        raise InputError(f"fold: step is a function, def step(state, price): ..., got {step!r}")
    try:
        parameters = list(inspect.signature(step).parameters.values())
    except (TypeError, ValueError) as error:
        raise InputError(f"fold: {step!r} does not say what it takes: write a function around it") from error
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or any(one.kind not in kinds for one in parameters):
        raise InputError("fold: step takes the state, then columns by their names: def step(state, price, bidder)")
    return tuple(one.name for one in parameters[1:])


def _declared(sample: Any) -> pa.Schema:
    """Return the columns of a state that looks like this."""
    if isinstance(sample, dict):
        named = sample
    elif isinstance(sample, tuple):
        names = getattr(sample, "_fields", None) or [f"_{place}" for place in range(1, len(sample) + 1)]
        named = dict(zip(names, sample, strict=True))
    else:
        named = {_ONE: sample}
    if not named:
        raise InputError(f"fold: init is {sample!r}, which holds nothing")
    return pa.schema([(str(name), _type_of(value, sample)) for name, value in named.items()])


def _type_of(value: Any, sample: Any) -> pa.DataType:
    for kind, arrow in _TYPES:
        if isinstance(value, kind):
            return arrow
    raise InputError(f"fold: init is {sample!r}, and {value!r} does not say which type a column of it has: {_DECLARE}")
