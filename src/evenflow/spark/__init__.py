"""The Spark engine: the only package that imports pyspark."""

from evenflow.spark.query import Query
from evenflow.spark.stream import keyed

__all__ = ["Query", "keyed"]
