"""Process 1 of a node: gives it file systems of its own, then buries what its processes leave, until it is killed.

    python node_init.py NAME FOLDER     # started in new PID and network namespaces by node.py

To kill it is to pull the node's plug: all that runs on the node ends with it, containers and shims included. The
machine's files are in view; what a node writes at fixed paths is its own: /run and /dev/shm are new, and what must
survive a restart of the node is in FOLDER. One line on standard output: `ready`, or what failed.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

# What components keep at paths that cannot be chosen, or that everybody expects.
KEPT = ("kubelet", "containerd", "orion")


def _mount(*arguments: str | Path) -> None:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"mount {' '.join(map(str, arguments))}: {done.stderr.strip()}")


def _mount_all(folder: Path) -> None:
    _mount("--make-rprivate", "/")
    _mount("--make-rshared", "/")  # among the node's own: pods may ask for mounts that come later
    _mount("-t", "proc", "proc", "/proc")
    _mount("-t", "tmpfs", "-o", "mode=755", "run", "/run")
    _mount("-t", "tmpfs", "-o", "mode=1777", "shm", "/dev/shm")
    # A layer over /var/lib, so that no folder need be made on the machine to mount these on.
    over, work = Path("/run/var-lib/over"), Path("/run/var-lib/work")
    for path in (over, work):
        path.mkdir(parents=True)
    _mount("-t", "overlay", "-o", f"lowerdir=/var/lib,upperdir={over},workdir={work}", "overlay", "/var/lib")
    for name in KEPT:
        (folder / "lib" / name).mkdir(parents=True, exist_ok=True)
        (Path("/var/lib") / name).mkdir(exist_ok=True)
        _mount("--bind", folder / "lib" / name, f"/var/lib/{name}")
    (folder / "log").mkdir(exist_ok=True)
    _mount("--bind", folder / "log", "/var/log")


def main() -> int:
    """Mount, say so, and reap."""
    from testbed import namespaces

    name, folder = sys.argv[1], Path(sys.argv[2])
    try:
        namespaces.unshare(namespaces.NEW_MOUNTS | namespaces.NEW_HOST_NAME)
        _mount_all(folder)
        Path("/proc/sys/kernel/hostname").write_text(name)
    except OSError as failure:
        print(failure, flush=True)
        return 1
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # it waits for us instead of being dropped
    print("ready", flush=True)
    while True:
        signal.sigwait({signal.SIGCHLD})
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
