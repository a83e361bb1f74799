"""AutoFlow: hotspots relieved by live migration, on a message simulator of its protocol, AF-E1 to E15.

A scenario (`scenario`) is plain numbers and can be run by any engine; `simulated` runs it on the simulator.
"""

from papers.autoflow.alternatives import E13, E14, E15
from papers.autoflow.changing import E9, E10, E11, E12
from papers.autoflow.fixed import E1, E2, E3, E4, E5, E6, E7, E8
from papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (E1, E2, E3, E4, E5, E6, E7, E8, E9, E10, E11, E12, E13, E14, E15)
