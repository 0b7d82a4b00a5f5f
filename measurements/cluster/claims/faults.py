"""Makes simulated GPUs of a node fail: `Faults(node).say("lose", 0)`, `("restore", 0)`, `("xid", 0, 79)`.

`python -m orion.hook.simulated` does one change for each start of Python, which takes longer than what is measured. So
this module is also a program, which runs on the node and does what its standard input says.
"""

import subprocess
import sys
import time
from collections.abc import Callable

from orion import hook
from orion.hook.simulated import Machine
from testbed.node import Node


class Faults:
    """Makes simulated GPUs fail: `say("lose", gpu)`."""

    def __init__(self, node: Node) -> None:
        pipe = subprocess.PIPE
        self._process = node.spawn(
            [sys.executable, "-m", "measurements.cluster.claims.faults"], stdin=pipe, stdout=pipe, text=True
        )

    def say(self, *words: object) -> float:
        """Do it; return the monotonic time at which it was done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"
        return time.monotonic()

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Do each line, and answer `done`."""
    machine = Machine(hook.simulated_driver())
    acts: dict[str, Callable[..., None]] = {"lose": machine.lose, "restore": machine.restore, "xid": machine.xid}
    for line in sys.stdin:
        what, *numbers = line.split()
        acts[what](*map(int, numbers))
        print("done", flush=True)


if __name__ == "__main__":
    main()
