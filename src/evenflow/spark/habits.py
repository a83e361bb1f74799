"""Names that Spark's users reach for and evenflow does not have: what to use instead, in one sentence."""

from __future__ import annotations

from difflib import get_close_matches

from pyspark.sql import DataFrame

from evenflow.errors import MissingNameError

_FIRST_ROWS = "the keys are those of keyed(...): ef.keyed(df, 'user').dedup()"
_NO_JOIN = "joins of keyed streams are not there yet: join before keyed(), with Spark's own join"

_OF_KEYED = {
    "applyInPandas": "use apply(operator) with frame = 'pandas'; see ef.SlotOperator",
    "applyInArrow": "use apply(operator); see ef.SlotOperator",
    "cogroup": _NO_JOIN,
    "join": _NO_JOIN,
    "pivot": "write an aggregate per value: agg(a=ef.sum(F.when(F.col('kind') == 'a', F.col('price'))))",
    "window": "event time is not there yet: a window can be a key, keyed(df, 'user', F.window('at', '1 minute').start)",
    "session": "the Spark session is that of the stream: df.sparkSession",
    "dropDuplicates": _FIRST_ROWS,
    "drop_duplicates": _FIRST_ROWS,
    "dropDuplicatesWithinWatermark": "it is dedup(within='1 hour'), with the delay of the watermark or another span",
    "withWatermark": "it comes before keyed(): ef.keyed(df.withWatermark('at', '10 seconds'), ...)",
    "balance": "say first what to keep per key: agg(...) or apply(...)",
    "writeStream": "say first what to keep per key: agg(...) or apply(...)",
    "groupBy": "keyed(df, ...) is evenflow's groupBy(...): go on with agg(...) or apply(...)",
    "groupby": "keyed(df, ...) is evenflow's groupBy(...): go on with agg(...) or apply(...)",
}

_RESULTS = "results are rows that change: take them in writeStream.foreachBatch(...), or read what the sink wrote"
_OF_STATEFUL = {
    "start": "say first how to write: writeStream.option('checkpointLocation', ...).format(...).start(...)",
    "write": "a stream is written with writeStream",
    "keyed": "a query has one keyed operator so far; key its results in a second query, over what this one wrote",
    "groupBy": "a query has one keyed operator so far; group its results in a second query, over what this one wrote",
    "agg": "agg(...) comes once, with all aggregates in it",
    "outputMode": "say it to the writer: writeStream.outputMode(...)",
    "trigger": "say it to the writer: writeStream.trigger(...)",
    "format": "say it to the writer: writeStream.format(...)",
    "option": "say it to the writer: writeStream.option(...)",
    "foreachBatch": "say it to the writer: writeStream.foreachBatch(...)",
    "toTable": "say it to the writer: writeStream.toTable(...)",
    "show": "a stream is shown by writeStream.format('console').start()",
}


def missing_of_keyed(name: str, there: list[str]) -> MissingNameError:
    """Return what to raise for a name that `keyed(...)` does not have."""
    say = _OF_KEYED.get(name)
    if say is None and _is_of_frames(name):
        say = f"what is done to rows comes before keyed(): ef.keyed(df.{name}(...), ...)"
    return _missing("keyed(...)", name, say, there)


def missing_of_stateful(name: str, there: list[str]) -> MissingNameError:
    """Return what to raise for a name that `keyed(...).agg(...)` does not have."""
    say = _OF_STATEFUL.get(name) or (_RESULTS if _is_of_frames(name) else None)
    return _missing("keyed(...).agg(...)", name, say, there)


def _is_of_frames(name: str) -> bool:
    return not name.startswith("_") and hasattr(DataFrame, name)


def _missing(who: str, name: str, say: str | None, there: list[str]) -> MissingNameError:
    if say is None:
        public = [one for one in there if not one.startswith("_")]
        close = get_close_matches(name, public, n=1)
        say = f"it has {', '.join(public)}" + (f". Did you mean {close[0]!r}?" if close else "")
    return MissingNameError(f"{who} has no {name!r}: {say}")
