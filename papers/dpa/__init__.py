"""DPA load balancer: Table 1 and Figure 3 on a message simulator with the authors' parameters, DP-E1 to E8.

The hash, the tokens, the report interval and the workloads are the authors' own (their public configuration); what is
free is the order of reducers that are ready at the same instant, so all 24 are run where it matters.
"""

from papers.dpa.merging import E7, E8
from papers.dpa.rounds import E4, E5, E6
from papers.dpa.table import E1, E2, E3
from papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (E1, E2, E3, E4, E5, E6, E7, E8)
