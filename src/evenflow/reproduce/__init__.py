"""The papers' experiments, run again: published figures next to ours, with a verdict computed by a rule set before."""
