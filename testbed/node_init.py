"""Process 1 of a node: mounts the node's own file systems, then reaps orphaned processes until it is killed.

    python node_init.py NAME FOLDER     # started in new PID and network namespaces by node.py

Killing this process works like cutting the node's power: everything on the node ends with it, containers and shims
included. The machine's files stay visible, but the node has its own /run, /dev/shm and folders of /var/lib. /run and
/dev/shm are new at each start. The files that must survive a restart of the node are in FOLDER. This process writes one
line to standard output: `ready`, or the error.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

# Folders of /var/lib that components write and that must survive a restart of the node.
KEPT = ("kubelet", "containerd", "orion")


def _mount(*arguments: str | Path) -> None:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"mount {' '.join(map(str, arguments))}: {done.stderr.strip()}")


def _mount_all(folder: Path) -> None:
    _mount("--make-rprivate", "/")
    _mount("--make-rshared", "/")  # among the node's own processes: pods may request propagation of later mounts
    _mount("-t", "proc", "proc", "/proc")
    _mount("-t", "tmpfs", "-o", "mode=755", "run", "/run")
    _mount("-t", "tmpfs", "-o", "mode=1777", "shm", "/dev/shm")
    # An overlay on /var/lib, so that the mount points below need not be made on the machine.
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
    """Mount, report it, and reap."""
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
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # a blocked signal stays pending for sigwait()
    print("ready", flush=True)
    while True:
        signal.sigwait({signal.SIGCHLD})
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
