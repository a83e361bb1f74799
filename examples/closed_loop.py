"""The whole control loop by hand, without Spark: reports in, control messages out, until the lanes are even."""

import numpy as np

import evenflow as ef
from evenflow.control import Ack
from evenflow.migration import Event
from evenflow.model import LoadReport

records = np.array([400, 30, 380, 30, 360, 30, 340, 30])  # what each of 8 slots gets per epoch
balancer = ef.Balancer(ef.RoutingTable.even(slots=8, lanes=2), ef.policy_named("even"), ef.strategy_named("fluid"))

for epoch in range(12):
    message = balancer.next_epoch(epoch)
    for move in message.moves:  # an engine would move the state here; the new lane then says so
        balancer.acknowledge(Ack(move.slot, epoch, Event.INSTALLED))
    loads = balancer.table.sum_by_lane(records)
    print(f"epoch {epoch:2}: lanes {loads.astype(int).tolist()} {'; '.join(map(str, message.moves))}")
    for lane in balancer.table.lanes:
        own = balancer.table.slots_of(lane)
        served = ef.SlotLoads.of(records[own], records[own] * 1e-3, np.full(own.size, 4096))
        idle = max(0.0, 2.0 - float(served.busy_s.sum()))
        balancer.report(LoadReport(epoch, ef.LaneLoad(lane, idle, window_s=2.0), own, served))
