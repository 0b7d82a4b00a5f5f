"""Finds the agent of a root, or starts one that outlives the command. A root is an agent's folder (option --root).

The agent runs in its own session, so that neither Ctrl-C nor the end of a shell ends it. Several `orion run` may
start at once: a file lock lets one of them start the agent, and the others wait.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from orion.cli import roots
from orion.errors import Conflict, Unavailable
from orion.node_agent.api import agent_pb2, client
from orion.node_agent.api.client import NoAgent

START_SECONDS = 20.0
POLL_SECONDS = 0.02
# The agent starts without be slots, because `orion run` makes one for each client. Port 0 lets the kernel choose a free
# port, so agents of several roots do not need the same port.
_OPTIONS = ("--be-slots", "0", "--metrics-address", "127.0.0.1:0")
_PATHS = {"PYTHONPATH", "LD_LIBRARY_PATH", "ORION_SIM_STATE"}
""" Variables whose folders may be relative to the current one. """


@contextlib.contextmanager
def asking(root: Path) -> Iterator[client.AgentClient]:
    """Yield the agent of a root; turn its refusals into sentences for the user.

    Raises:
        NoAgent: no agent answers at this root.
        RequestRefused: the agent refused a request.
    """
    try:
        with client.AgentClient(root) as agent:
            yield agent
    except client.RequestRefused as error:
        raise client.RequestRefused(error.code, f"the agent refused the request: {error}") from error


def ask(root: Path) -> agent_pb2.Snapshot:
    """Return what the agent sees now.

    Raises:
        NoAgent: no agent answers at this root.
    """
    with asking(root) as agent:
        return agent.snapshot()


def find_or_start(root: Path, simulated: bool) -> agent_pb2.Snapshot:
    """Return the snapshot of the root's agent, starting it if there is none.

    Args:
        root: the agent's folder; made if it does not exist.
        simulated: whether an agent that this function starts manages the simulated GPU.
    """
    with contextlib.suppress(NoAgent):
        return ask(root)
    try:
        root.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = open(root / "start.lock", "w")  # noqa: SIM115 - closed by the with below
    except OSError as error:
        raise Conflict(f"{root} cannot be the agent's folder ({error.strerror}): give another --root") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return ask(root)  # another `orion run` has started it meanwhile
        except NoAgent as error:
            if error.listens:
                raise
        return _start(root, simulated)


def _start(root: Path, simulated: bool) -> agent_pb2.Snapshot:
    log = root / roots.AGENT_LOG
    # -P: a file of the user's folder, such as queue.py, is no module of the agent.
    command = [sys.executable, "-Pm", "orion.cli", "agent", "--root", str(root), *_OPTIONS]
    command += ["--simulated"] if simulated else []
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "ORION_ROOT")}
    for name in _PATHS & environment.keys():
        folders = environment[name].split(os.pathsep)
        environment[name] = os.pathsep.join(os.path.abspath(each) for each in folders if each)
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environment,
            cwd="/",  # an agent in the user's folder would keep its file system from being unmounted
        )  # fmt: skip
    print(f"orion: started an agent at {root} (process {process.pid}, log {log})", file=sys.stderr)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(NoAgent):
            return ask(root)
        if process.poll() is not None:
            break
        time.sleep(POLL_SECONDS)
    last = log.read_text(errors="replace").strip().rpartition("\n")[2] or "it printed nothing"
    raise Unavailable(f"the agent did not start: {last.removeprefix('orion: ')} (the whole log is in {log})")
