"""The message level: every record and every control message is an event, every run is checked.

`stream` holds the records, `loop` the clock and the channels, `mapper` and `lane` the machines that protocols are
built on, `checker` the invariants, `run` wires and runs. One module per protocol: `autoflow`.
"""
