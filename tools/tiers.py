"""Says which tiers of tests `make test` ran on this machine, as its last line.

A tier that could not run is named with its reason, so that nothing left out reads as passed.
"""

import argparse
import ctypes
import sys


def gpu() -> str:
    """Return what became of the gpu tier: it is never part of `make test`, whether or not there is a GPU."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "gpu not run (no NVIDIA driver here)"
    own = "ORION_TEST_GPUS=real pytest tests/device_plugin/test_plugin_clients.py"
    return f"gpu not run (there is a driver here: `pytest -m gpu` runs it, and `{own}` as root the device plugin's)"


def main() -> int:
    """Print the line; `make` comes here only when what it says has passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--selection", default="", help="what pytest was told to leave out or pick, if anything")
    parser.add_argument("--cluster", required=True, help="what became of the cluster tier, as cluster/tier.py wrote it")
    parser.add_argument("--node", required=True, help="the same of the node tier")
    options = parser.parse_args()
    ran = f"unit and host only in part ({options.selection})" if options.selection else "unit passed, host passed"
    print(f"tiers: {ran}, C sanitizers passed; cluster {options.cluster}; node {options.node}; {gpu()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
