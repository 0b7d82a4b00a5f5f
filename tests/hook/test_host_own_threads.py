"""The hook's threads in a program's process: on which CPUs they run, and that they keep none of its descriptors."""

import contextlib
import os
import sys
from pathlib import Path

import pytest

from tests.hook.containers import require_root
from tests.hook.harness import Machine
from tests.hook.scripted_client import DEADLINE, eventually

WITHOUT_CLOSE_RANGE = Path(__file__).with_name("without_close_range.py")
WITHOUT_PROC = 'mount -t tmpfs none /proc && exec "$@"'
OPENS = 'exec 9>"$0" && exec "$@"'


def own_threads(process_id: int) -> dict[int, str]:
    """Return the hook's threads of the process: their names by thread id."""
    names = {}
    for thread in Path(f"/proc/{process_id}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            names[int(thread.name)] = (thread / "comm").read_text().strip()
    return {thread: name for thread, name in names.items() if name.split("-")[0] == "orion"}


def test_threads_run_on_all_cpus_of_the_process(machine: Machine) -> None:
    """A program may tie the thread that launches to one CPU, also before it first uses the GPU."""
    cpus = os.sched_getaffinity(0)
    assert len(cpus) > 1, "this test needs two CPUs"
    for slot, names in (
        ("hp-0", {"orion", "orion-drain"}),
        ("be-0", {"orion", "orion-valve", "orion-reap", "orion-park"}),
    ):
        client = machine.start_in(machine.client_root(slot))
        client.must("touch 0")  # the hook is loaded
        os.sched_setaffinity(client.pid, {min(cpus)})
        client.must("init 0")
        machine.until_joined(client)
        client.do("flood 0.1 100")
        eventually(lambda: names == {*own_threads(client.pid).values()}, f"{names} run", DEADLINE)  # noqa: B023
        for thread, name in own_threads(client.pid).items():
            eventually(lambda: os.sched_getaffinity(thread) == cpus, f"{name} has all CPUs", DEADLINE)  # noqa: B023
        assert os.sched_getaffinity(client.pid) == {min(cpus)}


@pytest.mark.parametrize("proc", [True, False], ids=["proc", "no-proc"])
def test_a_pipe_that_the_program_closes_ends(machine: Machine, tmp_path: Path, proc: bool) -> None:
    """Also where the kernel, or a filter of system calls, has no close_range."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    hidden = []
    if not proc:
        require_root()
        hidden = ["unshare", "--mount", "sh", "-c", WITHOUT_PROC, "sh"]
    command = [*hidden, sys.executable, "-I", str(WITHOUT_CLOSE_RANGE), "sh", "-c", OPENS, str(pipe)]
    client = machine.start_in(machine.client_root("be-0"), *command)
    client.must("init 0")
    machine.until_joined(client)
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    client.must("closefds")
    assert os.read(reader, 1) == b""
    os.close(reader)
