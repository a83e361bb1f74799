"""What a lane does with the rows of its slots.

::

    rows ──▶ keys (whose row?) ──▶ columns (fold in place) ──▶ changed state rows, output rows     Aggregate
    rows ──▶ keys ──▶ rows of keys that are new            ──▶ new state rows, output rows         Dedup
    rows ──▶ keys ──▶ rows that are kept of a key, and new ──▶ changed state rows, output rows     Top
    rows ──▶ keys ──▶ one call of the user's code for all  ──▶ changed state rows, output rows     ApplyKeys
    rows ──▶ one call of the user's code per slot          ──▶ changed state objects, output rows  Apply
"""

from evenflow.operators.aggregate import Aggregate
from evenflow.operators.apply import Apply, SlotOperator
from evenflow.operators.base import GONE, HASH, LATEST, SLOT, Folded, Operator, Resident
from evenflow.operators.dedup import Dedup
from evenflow.operators.expiring import ExpiringAggregate
from evenflow.operators.functions import Agg
from evenflow.operators.key_operator import KeyBatch, KeyChanges, KeyOperator
from evenflow.operators.key_states import ApplyKeys
from evenflow.operators.slot_order import by_slot
from evenflow.operators.stage import Stage
from evenflow.operators.top import Top

__all__ = [
    "GONE",
    "HASH",
    "LATEST",
    "SLOT",
    "Agg",
    "Aggregate",
    "Apply",
    "ApplyKeys",
    "Dedup",
    "ExpiringAggregate",
    "Folded",
    "KeyBatch",
    "KeyChanges",
    "KeyOperator",
    "Operator",
    "Resident",
    "SlotOperator",
    "Stage",
    "Top",
    "by_slot",
]
