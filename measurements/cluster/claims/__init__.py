"""Measures GPUs by ResourceClaims on a real cluster: `python -m measurements.cluster.claims`.

Each module is one experiment: `measure` returns raw data, and `figures` makes rows of a table of it. `__main__.py` runs
the experiments that its options name, each on a cluster of its own.
"""
