"""DPA's protocol at message level: `forwarding` with its `coordinator`, and the paper's future work.

`state_forwarding` moves the state of a key before its inputs, `staged` lets all reducers agree on a ring first.
"""
