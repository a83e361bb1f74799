"""The lane's loop: messages and blocks in, state changes and reports out. It knows no Spark."""

from evenflow.lane.worker import LaneConfig, LaneWorker

__all__ = ["LaneConfig", "LaneWorker"]
