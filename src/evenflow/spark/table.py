"""Tables of the catalog as sinks: made when the query starts, and published to like folders of files, or by Delta."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from evenflow.errors import InputError
from evenflow.spark.sink import FILE_FORMATS, DeltaSink, FileSink

_Publish: TypeAlias = Callable[[DataFrame, int], None]
_FORMATS = (*FILE_FORMATS, "delta")


@dataclass(frozen=True)
class Table:
    """A table that results are to go to: there already, or to be made."""

    spark: SparkSession
    name: str
    kind: str

    @classmethod
    def named(cls, spark: SparkSession, name: str, kind: str | None, schema: StructType) -> Table:
        """Return the table; raise if rows of `schema` cannot be added to it. Nothing is made or changed yet."""
        if kind is not None and kind not in _FORMATS:
            raise InputError(f"toTable: a table's format is one of {', '.join(_FORMATS)}, got {kind!r}")
        if not spark.catalog.tableExists(name):
            return cls(spark, name, kind or "parquet")
        provider = _described(spark, name).get("Provider", "").lower()
        if provider not in ((kind,) if kind else _FORMATS):
            raise InputError(
                f"toTable: expected a table of format {kind or ' or '.join(_FORMATS)}, but {name} is "
                f"{f'one of format {provider}' if provider else 'a view'}: choose another name, or that format"
            )
        columns = spark.catalog.listColumns(name)
        partitions = [column.name for column in columns if column.isPartition]
        if partitions and provider != "delta":
            raise InputError(
                f"toTable: {name} is partitioned by {', '.join(partitions)}, and files are added to tables without "
                f"partitions only: choose another table, or write to this one in foreachBatch"
            )
        have = [(column.name, column.dataType) for column in columns]
        need = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        if have != need:
            raise InputError(f"toTable: {name} is there with columns {_told(have)}; the query puts out {_told(need)}")
        return cls(spark, name, provider)

    def sink(self, schema: StructType, options: Mapping[str, str], query_id: str, *, replaces: bool) -> _Publish:
        """Make the table if need be; return what publishes an epoch to it."""
        spark, name = self.spark, self.name
        if not spark.catalog.tableExists(name):
            spark.createDataFrame([], schema).write.format(self.kind).options(**options).saveAsTable(name)
        if self.kind == "delta":
            return DeltaSink(lambda writer: writer.saveAsTable(name), query_id, options, replaces)
        write = FileSink(self.kind, _described(spark, name)["Location"].removeprefix("file:"), options)

        def publish(frame: DataFrame, epoch: int) -> None:
            write(frame, epoch)
            spark.catalog.refreshTable(name)

        return publish


def _described(spark: SparkSession, name: str) -> dict[str, str]:
    """Return what the catalog says of a table, beside its columns."""
    rows = [(row.col_name, row.data_type) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()]
    names = [row[0] for row in rows]
    return dict(rows[names.index("# Detailed Table Information") :])


def _told(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
