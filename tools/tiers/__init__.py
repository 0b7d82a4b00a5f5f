"""The tiers of tests that `make test` runs: run.py runs one tier, summary.py prints the outcomes of all."""
