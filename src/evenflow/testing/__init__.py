"""What evenflow's own tests use and yours may too, all without Spark.

`check_policy` tells what a policy does wrong; `run_batches` runs an operator batch by batch, with time and timers::

    from evenflow.testing import Batch, run_batches

    def test_my_operator() -> None:
        run = run_batches(MyOperator(), [[{"user": "ann", "n": 1}], Batch(watermark="2026-01-01")], keys="user")
        assert run.rows() == [{"user": "ann", "total": 1}]
"""

from evenflow.testing.batches import Batch, BatchRun, run_batches
from evenflow.testing.policies import check_policy

__all__ = ["Batch", "BatchRun", "check_policy", "run_batches"]
