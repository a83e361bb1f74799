"""Values only: frozen, comparable, printable; no clock, no I/O. Everything else is built on these."""

from evenflow.model.balance import Balance
from evenflow.model.contents import Contents, HeldAggregate
from evenflow.model.epoch_time import Due, EpochTime
from evenflow.model.load import LaneLoad, LoadReport, LoadView, LoadWindow, MoveCost, SlotLoads, window_of
from evenflow.model.messages import ControlMessage, Transfer
from evenflow.model.routing import Move, RoutingTable
from evenflow.model.slots import DEFAULT_SLOTS, Epoch, LaneId, SlotId, slots_of_hashes
from evenflow.model.stages import StageUnits, UnitNames
from evenflow.model.watermarks import Heard, Watermarks

__all__ = [
    "DEFAULT_SLOTS",
    "Balance",
    "Contents",
    "ControlMessage",
    "Due",
    "Epoch",
    "EpochTime",
    "Heard",
    "HeldAggregate",
    "LaneId",
    "LaneLoad",
    "LoadReport",
    "LoadView",
    "LoadWindow",
    "Move",
    "MoveCost",
    "RoutingTable",
    "SlotId",
    "SlotLoads",
    "StageUnits",
    "Transfer",
    "UnitNames",
    "Watermarks",
    "slots_of_hashes",
    "window_of",
]
