"""Which Arrow types hold all values of which others: what may be cast without asking."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # that an integer of so many bits may have
_Is = Callable[[pa.DataType], bool]


def widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether values of one type are values of the other as well, whatever they are.

    Only the unit of times may be finer than wanted, as pandas has it: the cast refuses what would be cut off.
    """
    if given == wanted or types.is_null(given):
        return True
    if types.is_dictionary(given):
        return widens(given.value_type, wanted)
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        # The zone is only how an instant is shown; a time without one is no instant.
        return (given.tz is None) == (wanted.tz is None)
    return (
        _widens_number(given, wanted)
        or _widens_nested(given, wanted)
        or any(_both(one, given, wanted) for one in _ALIKE)
    )


def _widens_number(given: pa.DataType, wanted: pa.DataType) -> bool:
    if types.is_integer(given):
        return _holds_integers(wanted, int(given.bit_width), signed=bool(types.is_signed_integer(given)))
    if _both(types.is_floating, given, wanted):
        return bool(given.bit_width <= wanted.bit_width)
    if _both(types.is_decimal, given, wanted):
        return bool(given.scale <= wanted.scale and given.precision - given.scale <= wanted.precision - wanted.scale)
    return False


def _holds_integers(wanted: pa.DataType, bits: int, *, signed: bool) -> bool:
    if types.is_integer(wanted):
        alike = signed == bool(types.is_signed_integer(wanted))
        return bool(wanted.bit_width > bits or (wanted.bit_width == bits and alike)) and (alike or not signed)
    if types.is_decimal(wanted):
        return bool(_DIGITS[bits] <= wanted.precision - wanted.scale)
    return bool(types.is_floating(wanted) and 2 * bits <= wanted.bit_width)  # a double holds 32 bits, and some


def _widens_nested(given: pa.DataType, wanted: pa.DataType) -> bool:
    if _both(types.is_struct, given, wanted):
        names = [field.name for field in given] == [field.name for field in wanted]
        return names and all(widens(a.type, b.type) for a, b in zip(given, wanted, strict=True))
    if _both(types.is_map, given, wanted):
        return widens(given.key_type, wanted.key_type) and widens(given.item_type, wanted.item_type)
    return _both(_is_list, given, wanted) and widens(given.value_type, wanted.value_type)


def _both(is_one: _Is, given: pa.DataType, wanted: pa.DataType) -> bool:
    return bool(is_one(given)) and bool(is_one(wanted))


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    variable = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(variable or types.is_fixed_size_binary(kind))


_ALIKE: tuple[_Is, ...] = (_is_text, _is_bytes, types.is_duration, types.is_time, types.is_date)
