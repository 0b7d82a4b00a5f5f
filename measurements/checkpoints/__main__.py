"""Run one case of the probe: python -m measurements.checkpoints CASE [--stay SECONDS] [--limit SECONDS]."""

import argparse
import os
import threading

from measurements.checkpoints import cases
from measurements.checkpoints.driver import Gpu, say
from measurements.checkpoints.torch_cases import ALLOCATORS, compare


def end_at(limit_s: float) -> None:
    """End this process by itself after so many seconds: a restored process must not be killed."""

    def end() -> None:
        say(end="limit")
        os._exit(3)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()


def main() -> None:
    """Run the case that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("--stay", type=float, default=2.0)
    parser.add_argument("--limit", type=float, default=60.0)
    options = parser.parse_args()
    end_at(options.limit)
    if options.case == "taker":
        cases.taker()
        return
    gpu = Gpu()
    name, _, size = options.case.partition(":")
    if name == "owner":
        cases.owner(gpu)
        return
    say(pid=os.getpid(), uid=os.getuid())
    if name == "plain":
        cases.plain(gpu, options.stay, int(size))
    elif name in ALLOCATORS:
        compare(gpu, options.stay)
    else:
        cases.CASES[name](gpu, options.stay)
    say(end="done")
    os._exit(0)  # a library's clean-up is not part of the case


main()
