"""Another rank of a job whose rank 0 is a worker; see `orion.bench.workloads.ranks`.

    python -m orion.bench.workers.rank KIND OPTIONS    the variables of `torchrun` say which rank

The process runs one step for each byte of its standard input, and ends with rank 0.
"""

import json
import os
import sys
from typing import NoReturn

from orion.bench.workers.process import configure_process, end_with, stop_collecting
from orion.bench.workloads import make


def main(kind: str, options: str) -> NoReturn:
    """Run steps until standard input ends."""
    configure_process()
    try:
        workload = make(kind, json.loads(options))
        stop_collecting()
        with workload.throughout():
            while os.read(0, 1):
                workload.step()
    except Exception as error:
        end_with(error)
    os._exit(0)  # rank 0 has ended, and a normal exit would wait for collectives with it


if __name__ == "__main__":
    main(*sys.argv[1:])
