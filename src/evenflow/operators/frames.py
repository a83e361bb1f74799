"""Rows as user code gets them, and what it returns as rows again.

An engine that has conversions of its own, as Spark does, supplies them with the operator; they travel to the lanes
along with it. Without any, rows are what pyarrow makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from evenflow.errors import InputError
from evenflow.operators.output import check_columns

if TYPE_CHECKING:
    import pandas as pd


class Frames(Protocol):
    """How rows look to user code."""

    def shown(self, rows: pa.Table) -> pa.Table:
        """Return the rows of an epoch with the types that user code sees in Arrow."""
        ...

    def frame(self, rows: pa.Table) -> pd.DataFrame:
        """Return shown rows as a pandas frame."""
        ...

    def alone(self, rows: pa.Table) -> pd.DataFrame:
        """Return rows, or some columns of them, as a frame that holds no others; a null makes floats of integers."""
        ...

    def table(self, frame: pd.DataFrame) -> pa.Table:
        """Return a pandas frame that user code returned as a table of the declared output."""
        ...


@dataclass(frozen=True)
class PlainFrames:
    """Conversions where there is no engine to follow: pyarrow's, but for integers, which stay integers beside nulls."""

    output: pa.Schema

    def shown(self, rows: pa.Table) -> pa.Table:
        return rows

    def frame(self, rows: pa.Table) -> pd.DataFrame:
        import pandas as pd  # only who asks for frames needs it

        nullable = {pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype()}
        nullable |= {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
        columns = {
            name: column.to_pandas(types_mapper=nullable.get if column.null_count else None)
            for name, column in zip(rows.column_names, rows.columns, strict=True)
        }
        return pd.DataFrame(columns)

    def alone(self, rows: pa.Table) -> pd.DataFrame:
        import pandas as pd  # only who asks for frames needs it

        return pd.DataFrame({name: rows[name].to_pandas() for name in rows.column_names})

    def table(self, frame: pd.DataFrame) -> pa.Table:
        check_columns(list(frame.columns), self.output)
        return pa.table([_column(frame, field) for field in self.output], self.output)


def _column(frame: pd.DataFrame, field: pa.Field) -> pa.Array:
    column = frame[field.name]
    try:
        return pa.Array.from_pandas(column, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise InputError(
            f"output column {field.name!r}: expected {field.type}, got {column.dtype} ({error})"
        ) from error
