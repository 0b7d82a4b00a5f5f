"""The hook's threads in a program's process: on which CPUs they run."""

import contextlib
import os
from pathlib import Path

from tests.hook.harness import Machine
from tests.hook.scripted_client import DEADLINE, eventually


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
    for slot, names in (("hp-0", {"orion", "orion-drain"}), ("be-0", {"orion", "orion-valve", "orion-reap"})):
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
