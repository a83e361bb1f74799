"""The quantum level: a cluster in virtual time, in steps, numpy-vectorised over slots and lanes. No Spark.

The very same balancer, policies, strategies and move protocol as on Spark decide; this package only plays
the cluster: it lets records arrive, serves them, carries out moves with their costs, and reports load.

::

    from evenflow.policies import policy_named
    from evenflow.migration import strategy_named
    from evenflow.control import BalancerOptions
    from evenflow.sim.quantum import Handover, Network, Scenario, Way, simulate, with_hotspot

    scenario = Scenario(
        lanes=8, slots=256,
        arrivals=with_hotspot(slots=256, per_s=100_000, hot=[0, 8, 16], share=0.5),  # or Steady, During, InTurn
        seconds_per_record=2e-5,             # of an ordinary lane; one number or one per slot
        state_bytes=1e6,                     # one number or one per slot
        duration_s=60, step_s=0.05, epoch_steps=10,
        handover=Handover(Way.AT_ONCE, extract_s_per_byte=1e-9, install_s_per_byte=1e-9),
        network=Network(point_to_point=31.25e6, cross_section=62.5e6),               # bytes per second
    )
    timeline = simulate(scenario, policy_named("even"), strategy_named("paced"), BalancerOptions(), seed=1)
    timeline.throughput, timeline.latency_p99_s, timeline.moves, timeline.imbalance, timeline.journal

*Time*: `step_s` is the quantum, an epoch is `epoch_steps` steps, a row of the timeline `row_epochs` epochs. Reports,
decisions and control messages happen at epoch boundaries, moves progress and settle at step boundaries. With `stretch`
an epoch lasts until moves have settled and the policy's collection time is over, as the rounds of Flux do.

*Options of a scenario*: `handover` (a `Way` and its costs), `network`, `speeds` (`Alike`, `Loaded`, `Visiting`, or
anything with `at`), `flow` (producers that saturate the stage through a skew buffer, Exchange, or, for a `stateless`
scenario, River), `memory` (budgets, disk, rotation), `queue_records` (bounded queues with counted refusals),
`important` (slots that are served first and refused last; `timeline.important` and `timeline.others` have what became
of both), `lane_start_s` (lanes that policies ask for). `simulate_stages` runs several scenarios as one dataflow.

*Parts*: `arrivals` (what comes), `admission` (who gets into a bounded queue), `flow` (producers and what lies between
them and lanes), `speeds` (how fast lanes are), `backlog` (what waits, first in first out per lane, with latencies),
`service` (lanes at work), `lanes` (chores that keep a lane from serving), `memory` (spilling and rotation),
`placement` (who owns and who serves a slot), `handover` (moves on their way), `network` (what transfers get),
`counts` and `reports` (what lanes tell the balancer), `engine` (the loop), `stages` (several loops in lock step),
`timeline` (what came out).

*Limits*: records are counted as real numbers and latencies are known to within a step. With a `flow`, a step should
be short enough that a lane does not serve more in it than its connections hold. What is not there: lanes that crash
and state copied ahead of a move (see `sim.engine_run`), single pages of memory, and a stage that holds back
the one before it.

*Always checked*: for each slot, what came = what was served + what waits; the books of important slots agree with
those by slot; what a stage served = what came to the next; the routing table and the cluster agree on the one owner
of each slot. A violation raises `ConservationError`.
"""

from evenflow.sim.quantum.arrivals import Arrivals, During, InTurn, Steady, uniform, with_hotspot
from evenflow.sim.quantum.engine import Cluster, ConservationError, simulate
from evenflow.sim.quantum.flow import Flow
from evenflow.sim.quantum.handover import Handover, Way
from evenflow.sim.quantum.memory import Disk, Fixed, Memory
from evenflow.sim.quantum.network import Network
from evenflow.sim.quantum.scenario import Scenario
from evenflow.sim.quantum.speeds import Alike, Loaded, Speeds, Visiting
from evenflow.sim.quantum.stages import Stage, simulate_stages
from evenflow.sim.quantum.timeline import ServiceClass, Timeline

__all__ = [
    "Alike",
    "Arrivals",
    "Cluster",
    "ConservationError",
    "Disk",
    "During",
    "Fixed",
    "Flow",
    "Handover",
    "InTurn",
    "Loaded",
    "Memory",
    "Network",
    "Scenario",
    "ServiceClass",
    "Speeds",
    "Stage",
    "Steady",
    "Timeline",
    "Visiting",
    "Way",
    "simulate",
    "simulate_stages",
    "uniform",
    "with_hotspot",
]
