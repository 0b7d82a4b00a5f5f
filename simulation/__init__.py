"""Tries out the decisions of `planning`: event loops, generators, readers of files, and pictures.

cluster   training jobs on a cluster, round by round
serving   services: arrivals, the parts of GPUs that serve them, latencies and misses
engine    an engine for language models with continuous batching, iteration by iteration
gpu       a GPU that hp shares with be
fleet     a fleet from its file, and what its services will feel
report    pages and pictures that people look at
traces    jobs and requests from files of known forms
written   fields and amounts of memory in the files that users write

The operator and the agent never import this package. Refused: simpy, because it needs a generator for each job; polars
and pandas, because one pass through a CSV needs neither; numba, because it compiles at run time.
"""
