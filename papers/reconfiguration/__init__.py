"""Hoffmann, McSherry, Lattuada, "Latency-conscious dataflow reconfiguration": LR-E1 to E7.

`migrations` runs one migration in the simulator's quantum level; `timelines` are the three of Fig. 2, `granularity`
and `halting` sweep and compare; `example` and `horizon` run the protocol at message level.
"""

from papers.experiment import Experiment
from papers.reconfiguration.example import E4
from papers.reconfiguration.granularity import E6
from papers.reconfiguration.halting import E7
from papers.reconfiguration.horizon import E5
from papers.reconfiguration.timelines import E1, E2, E3

EXPERIMENTS: tuple[Experiment, ...] = (E1, E2, E3, E4, E5, E6, E7)
