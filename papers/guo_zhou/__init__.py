"""Guo and Zhou, "Stateful load balancing": ELB and CLB against PKG and universal hashing, GZ-E1 to E9.

Histogram level (`histograms`): a policy decides before each of 120 windows; nothing is simulated below a window.
Tuple level (`latency`, `speed_up`): every tuple queues at a lane, and a balancing pauses the operator
(`tuples`).
"""

from papers.experiment import Experiment
from papers.guo_zhou.definitions import E9
from papers.guo_zhou.frequency import E8
from papers.guo_zhou.imbalance import E1, E2
from papers.guo_zhou.latency import E5, E6
from papers.guo_zhou.speed_up import E7
from papers.guo_zhou.trade import E3, E4

EXPERIMENTS: tuple[Experiment, ...] = (E1, E2, E3, E4, E5, E6, E7, E8, E9)
