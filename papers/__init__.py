"""The research behind evenflow: five papers' protocols and experiments, run again; not part of what users install.

One folder per paper; README.md says where things are and how to run them. A verdict is computed by a rule set before.
"""
