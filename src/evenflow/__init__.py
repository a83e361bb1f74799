"""evenflow keeps a keyed, stateful stream on Spark evenly loaded.

::

    rows ─key─▶ slot ─▶ routing table ─▶ block log ─▶ lane ─▶ operator + slot state ─▶ output
                             ▲                          │ records, busy time, pending, state bytes
                             │ control message          ▼
                      strategy ◀─ controller ◀─ policy ◀─ load window ◀─ load report
                                     └─▶ journal ─▶ progress, dashboard, plots, tests
"""
