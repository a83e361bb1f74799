"""Spark's Python daemon with what lanes and routing need imported already: a worker that is forked starts at once.

Every query of the tests starts some workers and every kill one more; half a second each for imports adds up. All else
is as in `pyspark.daemon`. Only for sessions whose executors run in the folder of the sources, so not for clusters.
"""

from __future__ import annotations

import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.daemon import manager
from pyspark.sql.pandas import serializers

from evenflow.operators import functions
from evenflow.spark import lanes, route

PREPARED = (functions, lanes, pc, pd, pq, route, serializers)

if __name__ == "__main__":
    manager()
