"""What none of the papers has: every policy with every way to hand over and every strategy, on every load."""

from papers.cross.experiment import CROSS
from papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (CROSS,)
