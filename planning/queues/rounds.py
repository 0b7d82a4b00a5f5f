"""The names of the mechanisms, and the functions that decide a round from an empty cluster."""

from .placement import fair, greedy, tune

FROM_EMPTY = {"fair": fair, "greedy": greedy, "tune": tune}
""" What the published simulator does in each round. """

MECHANISMS = ("fair", "greedy", "tune", "opt")
