"""The tiers of tests that `make test` runs: one at a time by run.py, and what became of all of them by told.py."""
