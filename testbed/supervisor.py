"""The process that keeps a cluster running: for people until a signal, for tests until the last user leaves.

    python -m testbed.supervisor FOLDER [--users FILE] [--nodes NUMBER] [--gpus NUMBER]

The supervisor holds a lock (FOLDER.lock, which contains its process ID) while it runs. The lock, not the process ID,
shows whether the supervisor runs: however it ends, the kernel releases the lock and kills the components. Users hold a
shared lock on FILE. The supervisor ends when the last user has released this lock or was killed. It writes one line to
standard output: `ready`, or the error.
"""

import argparse
import fcntl
import os
import select
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import NoReturn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from testbed import binaries
from testbed.cluster import Cluster
from testbed.errors import Failed, Missing
from testbed.orion import Orion

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def lock_path(folder: Path) -> Path:
    """Return the path of the lock of the supervisor of `folder`."""
    return folder.with_name(folder.name + ".lock")


def _end_with_the_last_user(users: Path) -> None:
    """Wait for the lock that excludes all users, then end this process as SIGTERM does."""

    def wait() -> None:
        with users.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait()  # keep the lock until the process is gone, so that a new user starts a new cluster

    threading.Thread(target=wait, daemon=True).start()


def _say(line: str) -> None:
    print(line, flush=True)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # the starting process reads until end of file


def _until_a_component_ends(folder: Path, *parts: Cluster | Orion) -> NoReturn:
    """Wait until one ends.

    Raises:
        Failed: one has ended. What it wrote before is in this process's log, and the logs of all stay.
    """
    watched = select.poll()
    for pid in (pid for part in parts for pid in part.pids().values()):
        watched.register(os.pidfd_open(pid), select.POLLIN)
    watched.poll()
    faults = [fault for part in parts if (fault := part.fault())]
    sys.stderr.write(f"{'; '.join(faults)}\neverything has been ended; `make cluster` starts it again\n")
    sys.stderr.write(f"the logs are in {folder / 'logs'} until then\n")
    raise Failed("a component has ended")


def keep(folder: Path, users: Path | None, nodes: int, gpus: int) -> NoReturn:
    """Keep a cluster in `folder` until a signal arrives, the last user leaves or a component ends.

    Args:
        folder: of the cluster.
        users: the file that users lock; its folder is removed after the last one has left.
        nodes: number of nodes.
        gpus: number of simulated GPUs on each node under Orion; 0: without Orion.

    Raises:
        Failed, Missing: it could not start, or a component has ended.
    """
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    try:
        with Cluster(folder, binaries.find_all(), names) as cluster, Orion(cluster, gpus=gpus) as orion:
            if nodes and gpus:
                orion.start()
            _say("ready")
            if users:
                _end_with_the_last_user(users)
            _until_a_component_ends(folder, cluster, orion)
    except SystemExit:
        if users:
            shutil.rmtree(users.parent)
        raise


def _leave(number: int, frame: FrameType | None) -> None:
    for further in SIGNALS:
        signal.signal(further, signal.SIG_IGN)
    raise SystemExit(0)


def main() -> int:
    """Take the lock, keep the cluster running, and shut it down in order on SIGTERM and SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="folder of the cluster; made at the start, removed at the end")
    parser.add_argument("--users", type=Path, help="file on which users hold a shared lock")
    parser.add_argument("--nodes", type=int, default=0, help="number of nodes (default: %(default)s)")
    parser.add_argument(
        "--gpus", type=int, default=0, help="simulated GPUs on each node, under Orion (default: %(default)s)"
    )
    arguments = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, _leave)
    with lock_path(arguments.folder).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another supervisor keeps {arguments.folder}")
            return 1
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        try:
            keep(arguments.folder, arguments.users, arguments.nodes, arguments.gpus)
        except (Failed, Missing) as failure:
            _say(str(failure))
            return 1


if __name__ == "__main__":
    sys.exit(main())
