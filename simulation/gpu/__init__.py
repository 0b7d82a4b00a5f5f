"""A GPU that a latency-critical process (hp) shares with best-effort work (be) behind a gate, in time-slicing.

costs     what a GPU model costs and uses: types
h200      these figures for an NVIDIA H200, each with its source
clock     the GPU's clock under its power limit
gate      predicts what hp and be get, from hp alone and be alone

The functions are pure: arrays in, figures out. `orion.bench.colocation` reads the archives of measurements.
"""
