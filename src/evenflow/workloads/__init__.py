"""Loads and streams to try evenflow on."""

from evenflow.workloads.skew import WORKLOADS, Workload, workload_named

__all__ = ["WORKLOADS", "Workload", "workload_named"]
