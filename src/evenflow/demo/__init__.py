"""`evenflow demo`: one skewed query, static first, then balanced, and what that does to lanes and latency."""

from evenflow.demo.options import DemoOptions
from evenflow.demo.run import run_demo

__all__ = ["DemoOptions", "run_demo"]
