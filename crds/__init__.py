"""The API types of `orion.gpu/v1alpha1`, one file a kind; README.md says what this room must not know.

profile     GPUProfile: what was measured of a workload's kernels
"""
