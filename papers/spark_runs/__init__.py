"""Experiments on the real engine: a local Spark, lanes that are rate limited, sizes and times scaled down.

`workload` is a stream whose hot lanes change by the clock, `run` puts it through a query and reads off what each lane
did when, `transfer` makes state slow to move; `autoflow` and `reconfiguration` are the papers'. Two cores are no
cluster: a lane serves at most so many rows per second, far below what the machine does, and every result says so.
"""
