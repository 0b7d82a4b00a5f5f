"""Prints which tiers of tests `make test` ran on this machine, as its last line.

The line names each tier that could not run, with its reason, so that nobody counts it as passed.
"""

import argparse
import ctypes
import sys
from pathlib import Path

NAMES = {"quiet": "tests about time", "host": "unit and host", "cluster": "cluster", "node": "node"}


def gpu() -> str:
    """Return the outcome of the gpu tier: it is never part of `make test`, whether or not there is a GPU."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "gpu not run (no NVIDIA driver here)"
    own = "ORION_TEST_GPUS=real pytest tests/device_plugin/test_plugin_clients.py"
    return f"gpu not run (there is a driver here: run `pytest -m gpu`, and as root `{own}`)"


def main() -> int:
    """Print the line; `make` calls this only after all tiers that ran have passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outcomes", type=Path, required=True, help="folder in which each tier wrote its outcome")
    outcomes = parser.parse_args().outcomes
    tiers = [f"{words} {(outcomes / tier).read_text()}" for tier, words in NAMES.items()]
    print(f"tiers: {'; '.join(tiers)}; C sanitizers passed; {gpu()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
