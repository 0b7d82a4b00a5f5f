"""Measures what a slot's memory limit costs a PyTorch program, and what programs see of a GPU of that size."""
