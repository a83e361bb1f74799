"""Flux (Shah, Hellerstein, Chandrasekaran, Franklin), reproduced on the quantum level: FX-E1 to FX-E12.

`cluster` holds the paper's parameters, `readings` what is read off a run; the other modules are the experiments.
"""

from papers.experiment import Experiment
from papers.flux.example import E11
from papers.flux.mixed import E9, E10
from papers.flux.pressure import E5, E6, E7, E8
from papers.flux.reaction import E2, E3
from papers.flux.rotation import E12
from papers.flux.thrashing import E4
from papers.flux.transient import E1

EXPERIMENTS: tuple[Experiment, ...] = (E1, E2, E3, E4, E5, E6, E7, E8, E9, E10, E11, E12)
