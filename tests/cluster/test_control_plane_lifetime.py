"""A control plane ends when all processes that use it have ended in any way, and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import keeping
from testbed.supervisor import lock_path
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
USER = """
import sys
from pathlib import Path
from testbed import keeping
with keeping.shared(Path(sys.argv[1])) as access:
    print(access.url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="orion-lifetime-"))
    yield parent / "run"
    shutil.rmtree(parent)


def a_user(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USER, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(user: subprocess.Popen[str]) -> str:
    assert user.stdout
    return user.stdout.readline().strip()


def processes_of(folder: Path) -> list[int]:
    """The running processes whose command line contains the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in command:
                found.append(int(entry.name))
    return found


def test_two_users_share_a_control_plane_that_ends_when_both_have_been_killed(folder: Path) -> None:
    users = [a_user(folder), a_user(folder)]
    urls = {line_of(user) for user in users}
    assert len(urls) == 1
    assert urls.pop().startswith("https://127.0.0.1:")
    assert len(processes_of(folder / "plane")) == 5  # the supervisor and its four components
    for user in users:
        assert keeping.keeper(folder / "plane")
        user.kill()
        user.communicate()
    eventually(lambda: not folder.exists())
    eventually(lambda: not processes_of(folder))


def test_components_do_not_outlive_a_supervisor_that_is_killed(folder: Path) -> None:
    plane = folder / "plane"
    keeping.start_or_join(plane)
    supervisor = int(lock_path(plane).read_text())
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: not processes_of(folder))
    assert keeping.keeper(plane) is None
    assert not keeping.stop(plane)  # removes what is left
    assert [path.name for path in folder.iterdir()] == ["plane.gate"]


def test_the_logs_of_a_plane_whose_component_has_ended_stay(folder: Path) -> None:
    """A person looks there for the reason; the next start removes them."""
    plane = folder / "plane"
    keeping.start_or_join(plane)
    etcd = next(each for each in processes_of(folder) if Path(f"/proc/{each}/comm").read_text() == "etcd\n")
    os.kill(etcd, signal.SIGKILL)
    eventually(lambda: not processes_of(folder))
    assert f"etcd was killed by SIGKILL; the end of its log {plane / 'logs' / 'etcd.log'}" in (
        plane.with_name("plane.log").read_text()
    )
    assert (plane / "logs" / "etcd.log").stat().st_size > 0
    assert [path.name for path in plane.iterdir()] == ["logs"]
    keeping.stop(plane)
    assert not plane.exists()


def test_a_plane_for_a_person_runs_until_it_is_ended_by_name(folder: Path) -> None:
    def command(*action: str) -> str:
        arguments = [sys.executable, "-m", "testbed", *action, "--folder", str(folder / "plane")]
        return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100).stdout

    assert f"export KUBECONFIG={folder / 'plane' / 'kubeconfig'}" in command("up", "--no-node")
    assert "already running" in command("up")
    assert "ended" in command("down")
    assert processes_of(folder) == []
    assert [path.name for path in folder.iterdir()] == ["plane.gate"]
    assert "none was running" in command("down")
