"""What none of the papers has: every policy with every way to hand over and every strategy, on every load."""

from evenflow.reproduce.cross.experiment import CROSS
from evenflow.reproduce.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (CROSS,)
