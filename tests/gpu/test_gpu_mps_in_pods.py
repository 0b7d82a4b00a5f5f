"""MPS as pods meet it, on a real GPU: other users, namespaces, a /dev/shm of their own, deaths of all kinds.

As root on a machine with an NVIDIA GPU and its MPS programs: `pytest -m gpu tests/gpu/test_gpu_mps_in_pods.py`, or as
a program, which goes through all of it, says what it sees and does not stop at what fails:

    PYTHONPATH=build/import:. python3 tests/gpu/test_gpu_mps_in_pods.py [NAME...]
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from orion.node_agent.mps.folder import Phase
from tests.gpu.mps_node import Client, MpsNode, eventually, say

pytestmark = pytest.mark.gpu

USER = 1000


@pytest.fixture
def mps() -> Iterator[MpsNode]:
    """A node whose GPU is in mode mps."""
    with MpsNode() as node:
        yield node


def joins(client: Client) -> None:
    """See a client share the context and work."""
    answer = client.do("begin")
    assert answer.get("mps") == 1, f"{client.name} does not run under MPS: {answer}"
    assert client.do("work 3").get("done") == 3


def test_clients_of_several_user_ids_share_one_server(mps: MpsNode) -> None:
    root, user, other = mps.client("root"), mps.client("1000", user=USER), mps.client("1001", user=USER + 1)
    for client in (root, user, other):
        joins(client)
    mps.show()
    servers = mps.servers()
    say(f"servers: {servers}; several users: {mps.state}")
    assert root.do("work 3").get("done") == 3
    assert len(servers) == 1


def test_a_dev_shm_of_its_own_changes_nothing(mps: MpsNode) -> None:
    before = set(os.listdir("/dev/shm"))
    joins(mps.client("root, the node's shm"))
    say(f"new in /dev/shm: {sorted(set(os.listdir('/dev/shm')) - before)}")
    joins(mps.client("root, own shm", own_shm=True))
    joins(mps.client("1000, own shm", own_shm=True, user=USER))


def test_an_ipc_namespace_of_its_own_changes_nothing(mps: MpsNode) -> None:
    joins(mps.client("root, own ipc", namespaces=["--ipc"], own_shm=True))
    joins(mps.client("1000, own ipc", namespaces=["--ipc"], own_shm=True, user=USER))


def test_a_pid_namespace_of_its_own_changes_nothing(mps: MpsNode) -> None:
    joins(mps.client("root, own pids", namespaces=["--pid", "--fork", "--kill-child=SIGKILL"]))
    joins(mps.client("1000, own pids", namespaces=["--pid", "--fork", "--kill-child=SIGKILL"], user=USER))
    mps.show()


def test_a_daemon_without_the_nodes_process_ids_serves_other_pods() -> None:
    """Whether the DaemonSet needs hostPID: the daemon in a pid namespace of its own, clients in others."""
    with MpsNode("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGTERM") as mps:
        joins(mps.client("root, other pids", namespaces=["--pid", "--fork", "--kill-child=SIGKILL"]))
        joins(mps.client("1000, other pids", namespaces=["--pid", "--fork", "--kill-child=SIGKILL"], user=USER))


CAPABILITIES = {
    "none": "-all",
    "chart": "-all,+chown,+dac_override,+fowner,+kill,+setgid,+setuid,+sys_ptrace",
}


@pytest.mark.parametrize("which", CAPABILITIES)
def test_a_daemon_with_few_capabilities_serves(which: str) -> None:
    few = CAPABILITIES[which]
    with MpsNode("setpriv", f"--bounding-set={few}", f"--inh-caps={few}", "--no-new-privs") as mps:
        joins(mps.client("root"))
        joins(mps.client("1000", user=USER))


def test_a_tenant_cannot_end_the_daemon(mps: MpsNode) -> None:
    """What `quit` does by what a container sees of the daemon; for a tenant that is root, too."""
    joins(mps.client("neighbour"))
    clients = mps.folder.clients(mps.gpu)
    assert os.listdir(clients) == ["control"]
    for who in (["setpriv", f"--reuid={USER}", "--clear-groups"], []):
        for question in ("get_server_list", "quit -t 1"):
            said = mps.ask(question, *who, pipe=clients)
            say(f"{'user 1000' if who else 'root'} asks {question!r}: {said!r}")
    time.sleep(2)
    say(f"after it: {mps.state}")
    assert mps.phase is Phase.RUNNING
    assert mps.clients[0].do("work 3").get("done") == 3


def test_after_the_servers_death_the_next_client_is_served(mps: MpsNode) -> None:
    clients = [mps.client("root"), mps.client("1000", user=USER)]
    for client in clients:
        joins(client)
    for server in mps.servers():
        say(f"SIGKILL to server {server}")
        os.kill(server, signal.SIGKILL)
    for _ in range(5):  # seen: right after it their work goes on
        say(f"what clients see: {[client.do('work 3') for client in clients]}")
        time.sleep(1)
    mps.show()
    next_works(mps)


def test_the_control_daemons_death_is_said_and_the_next_client_is_served(mps: MpsNode) -> None:
    client = mps.client("before")
    joins(client)
    state = mps.state
    assert state is not None
    say(f"SIGKILL to control daemon {state.process_id}; servers {state.servers or mps.servers()}")
    os.kill(state.process_id, signal.SIGKILL)
    eventually(lambda: mps.phase is not Phase.RUNNING, "it is said")
    say(f"said: {mps.state}")
    client.do("work 3")
    eventually(lambda: mps.phase is Phase.RUNNING, "it runs again")
    say(f"again: {mps.state}; servers {mps.servers()}")
    next_works(mps)
    assert "error" in client.do("work 3")
    mps.show()


def next_works(mps: MpsNode) -> None:
    """See a client that comes now be served, at the latest after a while; how long it took is said."""
    began = time.monotonic()
    while True:
        client = mps.client("next")
        answer = client.do("begin")
        if answer.get("mps") == 1 and client.do("work 3").get("done") == 3:
            say(f"the next client works {time.monotonic() - began:.2f} s after")
            return
        client.end()
        assert time.monotonic() - began < 60, "no client is served any more"
        time.sleep(0.5)


def test_a_killed_client_takes_nobody_along(mps: MpsNode) -> None:
    stays, goes = mps.client("stays"), mps.client("goes", user=USER)
    joins(stays)
    joins(goes)
    assert goes.process.stdin is not None
    goes.process.stdin.write("work 1000000\n")
    assert stays.do("work 3").get("done") == 3
    goes.kill()
    answer = stays.do("work 100")
    next_works(mps)
    assert answer.get("done") == 100


def test_a_clients_fault_ends_its_neighbours_and_the_next_client_is_served(mps: MpsNode) -> None:
    neighbour, faulty = mps.client("neighbour"), mps.client("faulty", user=USER)
    joins(neighbour)
    joins(faulty)
    assert "error" in faulty.do("fault")
    say(f"what its neighbour sees: {neighbour.do('work 3')}")
    mps.show()
    early = mps.client("comes while both are there")
    early.do("begin", 10)
    for client in (neighbour, faulty, early):
        client.end()
    next_works(mps)


def test_back_in_timeslice_a_client_with_the_empty_folder_runs_without_mps(mps: MpsNode) -> None:
    joins(mps.client("before"))
    mps.clients[0].end()
    began = time.monotonic()
    mps.folder.want(mps.gpu, None)
    eventually(lambda: mps.state is None, "nothing runs any more")
    say(f"ended {time.monotonic() - began:.2f} s after; left for clients: {os.listdir(mps.folder.clients(mps.gpu))}")
    after = mps.client("after", user=USER)
    answer = after.do("begin")
    assert answer.get("mps") == 0
    assert after.do("work 3").get("done") == 3


def test_the_mps_daemons_end_is_its_clients(mps: MpsNode) -> None:
    client = mps.client("client")
    joins(client)
    servers = mps.servers()
    assert mps.process is not None
    began = time.monotonic()
    mps.terminate()
    mps.process.wait(60)
    say(f"SIGTERM: ended with {mps.process.returncode} after {time.monotonic() - began:.2f} s; state {mps.state}")
    client.do("work 3")
    for server in servers:
        say(f"server {server} lives: {Path(f'/proc/{server}').exists()}")
    mps.start()
    next_works(mps)


def facts() -> None:
    """Say where this runs."""
    for command in (
        "nvidia-smi --query-gpu=name,uuid,driver_version,compute_mode --format=csv,noheader",
        "nvidia-cuda-mps-control -v", "nvidia-cuda-mps-control -h", "uname -a", "id", "ls -la /dev/shm",
        "grep Cap /proc/self/status", "which setpriv unshare nvidia-cuda-mps-control nvidia-cuda-mps-server",
        "unshare --mount --pid --ipc --fork true", "setpriv --version",
    ):  # fmt: skip
        try:
            done = subprocess.run(command.split(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired) as error:
            say(f"$ {command}: {error}")
            continue
        said = f"{done.stdout}{done.stderr}".strip().replace("\n", "\n        ")
        say(f"$ {command} -> {done.returncode}: {said}")


def run_all(names: list[str]) -> int:
    """Go through all tests, or those whose name holds one of the words; return how many failed."""
    cases = []
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            cases += [(f"{name}[{value}]", test, value) for value in _parameters(test)]
    results = {}
    facts()
    for name, test, value in cases:
        if names and not any(word in name for word in names):
            continue
        print(f"=== {name}", flush=True)
        began = time.monotonic()
        try:
            takes = test.__code__.co_varnames[: test.__code__.co_argcount]
            given = {argument: value for argument in takes if argument != "mps"}
            if "mps" in takes:
                with MpsNode() as node:
                    test(mps=node, **given)
            else:
                test(**given)
            results[name] = "OK"
        except BaseException as error:  # the next one may still tell something
            results[name] = f"FAILED: {type(error).__name__}: {str(error)[:200]}"
            traceback.print_exc(limit=-3, file=sys.stdout)
            if isinstance(error, KeyboardInterrupt):
                raise
        print(f"--- {results[name]} ({time.monotonic() - began:.1f} s)", flush=True)
    print("\n".join(f"{result[:90]:<92}{name}" for name, result in results.items()), flush=True)
    return sum(result != "OK" for result in results.values())


def _parameters(test: object) -> list[str]:
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    return list(marks[0].args[1]) if marks else [""]


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:]))
