"""The message level: every record and every control message is an event, and every run is checked.

What the papers' protocols are built on: `stream` holds the records, `loop` the clock and the channels, `plant` what a
run is made of, `world` what its parts share, `mapper` and `lane` the machines, `folds` what lanes compute, `checker`
the invariants, `decider` who decides (the real balancer, or a script), `run` the end of a run. `own_engine` is
evenflow's own, to compare with: the real engine in virtual time (`evenflow.sim.engine_run`). The papers' stand in
their folders: `autoflow.protocol`, `flux.protocol`, `reconfiguration.protocol`, `dpa.protocol`.
"""
