"""Simulates a cluster: event loops, generators, readers of traces and pictures around the decisions of `planning`.

cluster   training jobs on a cluster, round by round
traces    jobs and requests from files of known forms

The operator and the agent never import this package. Refused: simpy, because it needs a generator for each job; polars
and pandas, because one pass through a CSV needs neither; numba, because it compiles at run time.
"""
