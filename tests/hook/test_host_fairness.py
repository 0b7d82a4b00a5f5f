"""be slots share a GPU's time by their requests, in real processes, whatever their kernels are like.

The test uses the times that the hooks report, because the agent has only these. It prints what the GPU really gave. The
two differ where the hooks learn durations while several contexts are time-sliced.
"""

import time

import pytest

from tests.hook.gpu_time import start_traced
from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import Client, eventually, warm

pytestmark = pytest.mark.quiet

LOADS = {"be-0": "loop 30 5000 1", "be-1": "loop 30 1000 4", "be-2": "flood 30 200", "be-3": "loop 30 300 8"}
SECONDS = 6.0


@pytest.mark.parametrize("heavy", [0.2, 0.4])
def test_reported_gpu_time_is_shared_by_request(machine: Machine, heavy: float) -> None:
    started = {slot: start_traced(machine, slot) for slot in LOADS}
    clients = {slot: client for slot, (client, _) in started.items()}
    requests = {slot: heavy if slot == "be-1" else 0.2 for slot in LOADS}
    for slot, request in requests.items():
        machine.agent.set_grant(machine.uuids[0], slot, request=request)
    for slot, client in clients.items():
        warm(client, int(LOADS[slot].split()[2]))
    for slot, client in clients.items():
        client.send(LOADS[slot])
    time.sleep(1.5)  # until all visibly work

    def used() -> dict[str, float]:
        return {slot: _seconds(machine, client) for slot, client in clients.items()}

    before, began = used(), time.monotonic_ns()
    time.sleep(SECONDS)  # the time over which shares are measured
    gained = {slot: seconds - before[slot] for slot, seconds in used().items()}
    ended = time.monotonic_ns()
    true = [timeline.seconds(began, ended) for _, timeline in started.values()]
    figure("GPU time reported, over the time that there was", [sum(gained.values()) / SECONDS], "x")
    figure("GPU time given to each", true, "s")
    fair = {slot: sum(gained.values()) * request / sum(requests.values()) for slot, request in requests.items()}
    off = [gained[slot] / fair[slot] for slot in LOADS]
    figure(f"share over fair share, requests {list(requests.values())}", off, "x")
    assert all(abs(each - 1) < 0.15 for each in off), gained
    assert sum(true) > 0.6 * SECONDS


def test_slices_of_other_contexts_do_not_make_kernels_look_long(machine: Machine) -> None:
    """The policy's bound is 5 ms. Each kernel here takes 1.8 ms, and slices of 2 ms of others come in between."""
    clients = [machine.start(slot) for slot in ("be-0", "be-1", "be-2")]
    for client in clients:
        warm(client, 1800)
        client.send("loop 60 1800 1")
    eventually(lambda: all(_seconds(machine, client) > 1 for client in clients), "each has computed for a second")
    shown = [machine.shown(client) for client in clients]
    assert [each and each.long_kernel for each in shown] == ["", "", ""]


def _seconds(machine: Machine, client: Client) -> float:
    shown = machine.shown(client)
    assert shown is not None
    return shown.gpu_seconds
