"""The message level: every record and every control message is an event, and every run is checked.

The machinery: `stream` holds the records, `loop` the clock and the channels, `plant` what a run is made of, `world`
what its parts share, `mapper` and `lane` the machines that protocols are built on, `folds` what lanes compute,
`checker` the invariants, `decider` who decides (the real controller, or a script), `run` wires and runs.

The protocols, one module each: `autoflow` (implicit barriers), `halting` (halt all, block channels), `flux` (pause,
acknowledge, move, restart), `forwarding` with `coordinator`, `state_forwarding` and `staged` (DPA and its future work),
`frontiers` (the reconfiguration stream), `block_log` (evenflow's own), `loops` (AutoFlow on a graph with a loop),
`static` (pre-aggregation, rehashing). `dataflow` is how a user writes a query.
"""
