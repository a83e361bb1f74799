"""The lane's loop: messages and blocks in, state changes and reports out. It knows no Spark."""

from evenflow.lane.config import LaneConfig
from evenflow.lane.worker import LaneWorker

__all__ = ["LaneConfig", "LaneWorker"]
