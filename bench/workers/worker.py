"""The process that runs workloads on command.

    python -m orion.bench.workers.worker KIND [OPTIONS]             one workload, options as JSON
    python -m orion.bench.workers.worker --threads CLIENTS [MORE]   several, one per thread; see `threads`

The worker sets up its workload, replies that it is ready, and then executes commands: lines of JSON on its standard
input (see `commands`). Replies are lines of JSON on standard output; everything that libraries print goes to standard
error.

The worker ends when its standard input closes or its parent ends. An exception ends the worker at once; the last line
on standard error names the exception. Exit status 2 means an unknown workload or an invalid option.
"""

import json
import sys
from typing import Any

from orion.bench.workers import commands
from orion.bench.workers.process import Replies, configure_process, end_with, stop_collecting
from orion.bench.workloads import make


def run_workload(kind: str, options: dict[str, Any], replies: Replies) -> None:
    """Set up the workload, reply that it is ready, execute commands until standard input ends."""
    workload = make(kind, options)
    stop_collecting()
    replies.send(commands.about(workload))
    for line in sys.stdin:
        replies.send(commands.obey(workload, json.loads(line)))


def main(arguments: list[str]) -> int:
    """Run the workloads of the command line until standard input ends."""
    replies = Replies()
    configure_process()
    try:
        if arguments[0] == "--threads":
            from orion.bench.workers import threads as worker_threads

            more = json.loads(arguments[2]) if len(arguments) > 2 else {}
            worker_threads.run(json.loads(arguments[1]), more.get("scheduler", {}), replies)
        else:
            run_workload(arguments[0], json.loads(arguments[1]) if len(arguments) > 1 else {}, replies)
    except Exception as error:
        end_with(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
