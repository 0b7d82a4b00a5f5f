"""A node with one GPU in mode mps: the MPS daemon as its DaemonSet runs it, and clients as in pods.

The classes print what happens; mps_report.py shows this output.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orion.hook import simulated
from orion.node_agent.mps.control import program
from orion.node_agent.mps.folder import MpsFolder, Phase, State, Wanted
from tests.processes import children
from tests.waiting import eventually

SIMULATED = os.environ.get("ORION_TEST_GPUS") == "simulated"
""" Whether the tests use a simulated GPU, which behaves like a real GPU only in part. """

DEADLINE = 60.0
IN_CONTAINER = "/run/orion/mps"
USER = 1000
PROCESS_IDS = ("--pid", "--fork", "--kill-child=SIGKILL")
POD = (*PROCESS_IDS, "--ipc", "--net", "--uts")
""" Options of unshare(1) beside --mount. PROCESS_IDS: a pid namespace; POD: all namespaces of a pod. """
_FEW = "-all," + ",".join(
    f"+{each}" for each in (
        "chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service",
        "net_raw", "sys_chroot", "mknod", "audit_write", "setfcap",
    )
)  # fmt: skip
CONTAINED = ("setpriv", f"--bounding-set={_FEW}", f"--inh-caps={_FEW}", "--no-new-privs")
""" A command prefix that keeps only the capabilities that containers have by default. """

_HERE = Path(__file__).parent
_DAEMON = (
    "import sys; from pathlib import Path; from orion.node_agent.mps.supervising import Options, run; "
    "run(Path(sys.argv[1]), Options())"
)


def print_line(*words: object) -> None:
    """Print a line for the reader of the run's output."""
    print("   ", *words, flush=True)


def first_gpu() -> str:
    """Return the UUID of the machine's first GPU."""
    if SIMULATED:
        return simulated.Machine(Path("libcuda.so.1")).uuids()[0]
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]


class Client:
    """A client in a container of its own.

    Args:
        folder: the client's pipe directory.
        name: the client's name in the output.
        user: the client's user id.
        own_shm: whether the client has a /dev/shm of its own.
        namespaces: options of unshare(1) beside --mount.
        contained: whether the client has only a container's capabilities.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        user: int = 0,
        own_shm: bool = False,
        namespaces: Sequence[str] = (),
        contained: bool = False,
    ) -> None:
        self.name = name
        mounts = [(str(folder), IN_CONTAINER, True)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_MPS")}
        environment |= {"CUDA_VISIBLE_DEVICES": first_gpu(), "CUDA_MPS_PIPE_DIRECTORY": IN_CONTAINER}
        specification = {
            "mounts": mounts, "own_shm": own_shm, "own_pids": "--pid" in namespaces, "user": user,
            "before": CONTAINED if contained else (), "environment": environment,
        }  # fmt: skip
        command = ["unshare", "--mount", *namespaces, sys.executable, str(_HERE / "mps_container.py")]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `end`)
        self.process = subprocess.Popen(
            [*command, json.dumps(specification)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, bufsize=1,
        )  # fmt: skip

    def do(self, command: str, seconds: float = DEADLINE) -> dict[str, Any]:
        """Send the client a command; return the client's answer, which may be an error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        began = time.monotonic()
        answer: dict[str, Any]
        try:
            self.process.stdin.write(command + "\n")
            if not select.select([self.process.stdout], [], [], seconds)[0]:
                answer = {"error": -2, "call": f"no answer within {seconds:g} s"}
            elif line := self.process.stdout.readline():
                answer = json.loads(line)
            else:
                answer = {"error": -3, "call": f"it has ended: {self.process.wait(10)}: {self._stderr()}"}
        except OSError as error:
            answer = {"error": -4, "call": f"{error}: {self._stderr()}"}
        print_line(f"{self.name}: {command}: {answer} ({time.monotonic() - began:.2f} s)")
        return answer

    def join(self) -> dict[str, Any]:
        """Check that the client runs under MPS and works; return its first answer."""
        answer = self.do("begin")
        assert answer.get("mps") == 1, f"{self.name} does not run under MPS: {answer}"
        assert self.do("work 3").get("done") == 3
        return answer

    def kill(self) -> None:
        """Kill unshare(1) and its child. The child changed its user, so the kernel does not end it with unshare(1)."""
        for process_id in (*children(self.process.pid), self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        self.process.wait(DEADLINE)

    def end(self) -> None:
        """Close the client's input, which ends the client; kill the client if it does not end."""
        with contextlib.suppress(OSError):
            if self.process.stdin:
                self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
        if self.process.stdout:
            self.process.stdout.close()
        self._errors.close()

    def _stderr(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-600:]


class MpsNode:
    """The MPS daemon with its folder. A context manager.

    Args:
        before: a command that executes the daemon, such as unshare(1) with its options.
    """

    def __init__(self, *before: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))
        self.root.chmod(0o755)
        self.folder = MpsFolder(self.root)
        self.gpu = first_gpu()
        self.clients: list[Client] = []
        self._before = before
        self._log = self.root / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "MpsNode":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the MPS daemon, and request mode mps for the GPU."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._before, sys.executable, "-c", _DAEMON, str(self.root)], stdout=log, stderr=log
            )
        began = time.monotonic()
        eventually(lambda: self.folder.daemon_lives() or not self.runs, "the MPS daemon runs")
        self.folder.want(self.gpu, Wanted(SIMULATED))
        eventually(lambda: self.phase in (Phase.RUNNING, Phase.FAILED) or not self.runs, "a control daemon runs")
        print_line(f"the control daemon after {time.monotonic() - began:.2f} s: {self.state}")
        eventually(lambda: self.phase is Phase.RUNNING or not self.runs, "a control daemon runs", 30)
        assert self.runs, self._log.read_text()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def state(self) -> State | None:
        return self.folder.state(self.gpu)

    @property
    def phase(self) -> Phase | None:
        state = self.state
        return state.phase if state else None

    @property
    def pipe(self) -> Path:
        return self.folder.pipe(self.gpu)

    def client(self, name: str, **options: Any) -> Client:
        """Start a client."""
        client = Client(self.folder.clients(self.gpu), name, **options)
        self.clients.append(client)
        return client

    def servers(self) -> tuple[int, ...]:
        """Query the control daemon for the process ids of its servers."""
        done = self.ask("get_server_list")
        return tuple(int(word) for word in done.split() if word.isdecimal())

    def ask(self, question: str, *before: str, pipe: Path | None = None, patience: float = 30.0) -> str:
        """Send the control daemon a command; return its answer.

        Raises:
            subprocess.TimeoutExpired: no answer within `patience` seconds.
        """
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe or self.pipe)}
        done = subprocess.run(
            [*before, *program(SIMULATED, Path("/"))], env=environment, input=f"{question}\n", capture_output=True,
            text=True, timeout=patience, check=False,
        )  # fmt: skip
        return f"{done.stdout}{done.stderr}".strip()

    def show(self) -> None:
        """Print the content of the pipe folder and the servers."""
        listing = subprocess.run(["ls", "-laR", str(self.pipe)], capture_output=True, text=True, check=False).stdout
        for line in listing.splitlines():
            print_line(line)
        print_line(f"state: {self.state}")

    def print_logs(self) -> None:
        """Print the ends of the logs."""
        for path in (self._log, *sorted(self.folder.log(self.gpu).glob("*"))):
            with contextlib.suppress(OSError):
                for line in path.read_text(errors="replace").splitlines()[-12:]:
                    print_line(f"{path.name}: {line}")

    def terminate(self) -> None:
        """End the MPS daemon. If unshare(1) started it, signal unshare's child: unshare does not forward signals."""
        assert self.process is not None
        below = children(self.process.pid) if "--fork" in self._before else set()
        for process_id in below or [self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGTERM)

    def close(self) -> None:
        for client in self.clients:
            client.end()
        if self.process is not None:
            if self.process.poll() is None:
                self.terminate()
                try:
                    self.process.wait(30)
                except subprocess.TimeoutExpired:
                    print_line("the MPS daemon did not end within 30 s")
                    self.process.kill()
                    self.process.wait(10)
            self.print_logs()
        shutil.rmtree(self.root, ignore_errors=True)
