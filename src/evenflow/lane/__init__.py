"""The lane's loop: messages and blocks in, state changes and reports out. It knows no Spark."""

from evenflow.lane.config import LaneConfig, LaneStage, chained
from evenflow.lane.worker import LaneWorker

__all__ = ["LaneConfig", "LaneStage", "LaneWorker", "chained"]
