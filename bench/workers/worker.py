"""The process that runs workloads on command.

    python -m orion.bench.workers.worker KIND [OPTIONS]             one workload, options as JSON
    python -m orion.bench.workers.worker --threads CLIENTS [MORE]   several, a thread each; see worker_threads

It sets its workload up, says so, and then does what lines of JSON on its standard input say (see commands). Replies
are lines of JSON on what was its standard output; everything else that a library prints goes to standard error.

The worker ends with its standard input or with its parent, whichever is first; with an exception it ends at once, its
last line on standard error saying which. Status 2 is a workload or an option that cannot be.
"""

import json
import sys
from typing import Any

from orion.bench.workers import commands
from orion.bench.workers.process import Replies, end_with, quiet_process, stop_collecting
from orion.bench.workloads import make


def run_workload(kind: str, options: dict[str, Any], replies: Replies) -> None:
    """Set up, report, obey until the commands end."""
    workload = make(kind, options)
    stop_collecting()
    replies.send(commands.about(workload))
    for line in sys.stdin:
        replies.send(commands.obey(workload, json.loads(line)))


def main(arguments: list[str]) -> int:
    """Do what the command line says, until the commands end."""
    replies = Replies()
    quiet_process()
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
