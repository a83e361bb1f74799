"""Output files: the rows of one lane and epoch on their way to the sink, in the form that costs the sink least.

For a folder of Parquet files the lane writes the finished file: it is the output itself, and publishing it gives it
another name. For every other sink it is an Arrow file, which whoever makes something else of the rows reads fastest. A
file says by its ending what it is, so a query that goes on with another sink reads what the run before has left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from evenflow.state.files import FileRef, Folder

# How Spark calls files of each compression.
PARQUET_ENDINGS = {"none": "parquet", "snappy": "snappy.parquet", "gzip": "gz.parquet", "zstd": "zstd.parquet"}


@dataclass(frozen=True)
class OutputFormat:
    """What lanes write: Parquet with a compression, or Arrow without; `about` goes along in Parquet files."""

    codec: str | None = None
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def ending(self) -> str:
        """How the names of such files end."""
        return "arrow" if self.codec is None else PARQUET_ENDINGS[self.codec]


ARROW = OutputFormat()


def write_output(folder: Folder, name: str, rows: pa.Table, form: OutputFormat) -> FileRef:
    """Write what a lane puts out in an epoch; the name must end as the form says."""
    return folder.write_table(name, rows) if form.codec is None else folder.write_bytes(name, parquet_of(rows, form))


def read_output(folder: Folder, file: FileRef) -> pa.Table:
    """Return the rows of an output file, whatever it was written for."""
    if parquet_ending(file) is None:
        return folder.read_table(file)
    import pyarrow.parquet as pq  # only a query whose sink was changed comes here

    try:
        return pq.read_table(pa.BufferReader(folder.read_bytes(file)))
    except pa.ArrowException as error:
        raise folder.damaged(file.name, f"it is not the Parquet file that was written: {error}") from error


def parquet_of(rows: pa.Table, form: OutputFormat) -> pa.Buffer:
    """Return a Parquet file with these rows."""
    import pyarrow.parquet as pq  # takes a while, and most sinks do not need it

    content = pa.BufferOutputStream()
    pq.write_table(rows.replace_schema_metadata(dict(form.about)), content, compression=form.codec)
    return content.getvalue()


def parquet_ending(file: FileRef) -> str | None:
    """Return how the name of a Parquet file ends, None for a file of another kind."""
    longest_first = sorted(PARQUET_ENDINGS.values(), key=len, reverse=True)
    return next((ending for ending in longest_first if file.name.endswith(f".{ending}")), None)
