"""AutoFlow's protocol at message level, and what the paper compares itself with.

`channels`: control messages in the stream, implicit barriers; `run` wires them. `halting`: halt all, block channels.
`static`: pre-aggregation and rehashing. `loops`: a graph with a loop. `dataflow`: a query as its user writes it.
"""
