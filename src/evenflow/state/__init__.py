"""Where blocks, slots and progress live: everything below `<checkpoint>/evenflow/`, on any filesystem.

`storage` knows bytes, `retrying` tries again what may pass, `files` checks them, `records` are what is written down,
`ledger` is what the records come to, `loading` reads them back, `runs` says who may write them, `checkpoint` writes
them in the order that makes every crash harmless. Lanes need `Folder`, `naming` and `slotfiles` only; the manifest
decides what counts.
"""

from evenflow.state.checkpoint import Checkpoint, CheckpointOptions, home_of, query_at
from evenflow.state.files import FileRef, Folder
from evenflow.state.holdings import SlotSources
from evenflow.state.naming import block_name, handoff_name, output_name, work_name
from evenflow.state.outputs import ARROW, OutputFormat, read_output, write_output
from evenflow.state.power_cut import SparkLog
from evenflow.state.records import (
    Advance,
    Block,
    Changes,
    CommitEntry,
    EpochRecord,
    Identity,
    LaneCommit,
    Published,
    Segment,
    SlotRef,
    StageIdentity,
)
from evenflow.state.recovery import Recovery
from evenflow.state.retrying import Retries, RetryingStorage
from evenflow.state.slotfiles import read_slots, write_slots
from evenflow.state.snapshots import SnapshotOptions
from evenflow.state.storage import NameTakenError, Storage, below, filesystem_at, has_scheme, spark_path, storage_at

__all__ = [
    "ARROW",
    "Advance",
    "Block",
    "Changes",
    "Checkpoint",
    "CheckpointOptions",
    "CommitEntry",
    "EpochRecord",
    "FileRef",
    "Folder",
    "Identity",
    "LaneCommit",
    "NameTakenError",
    "OutputFormat",
    "Published",
    "Recovery",
    "Retries",
    "RetryingStorage",
    "Segment",
    "SlotRef",
    "SlotSources",
    "SnapshotOptions",
    "SparkLog",
    "StageIdentity",
    "Storage",
    "below",
    "block_name",
    "filesystem_at",
    "handoff_name",
    "has_scheme",
    "home_of",
    "output_name",
    "query_at",
    "read_output",
    "read_slots",
    "spark_path",
    "storage_at",
    "work_name",
    "write_output",
    "write_slots",
]
