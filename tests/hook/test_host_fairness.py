"""be slots share a GPU's time by their weights, in real processes, whatever their kernels are like."""

import time

import pytest

from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import Client, warm

LOADS = {"be-0": "loop 30 5000 1", "be-1": "loop 30 1000 4", "be-2": "flood 30 200", "be-3": "loop 30 300 8"}
SECONDS = 6.0


@pytest.mark.parametrize("heavy", [1.0, 2.0])
def test_gpu_time_is_shared_by_weight(machine: Machine, heavy: float) -> None:
    clients = {slot: machine.start(slot) for slot in LOADS}
    machine.agent.set_grant(machine.uuids[0], "be-1", weight=heavy)
    for slot, client in clients.items():
        warm(client, int(LOADS[slot].split()[2]))
    for slot, client in clients.items():
        client.send(LOADS[slot])
    time.sleep(1.5)  # until all are seen to be at it

    def used() -> dict[str, float]:
        return {slot: _seconds(machine, client) for slot, client in clients.items()}

    before = used()
    time.sleep(SECONDS)  # the time over which shares are measured
    gained = {slot: seconds - before[slot] for slot, seconds in used().items()}
    weights = {slot: heavy if slot == "be-1" else 1.0 for slot in LOADS}
    fair = {slot: sum(gained.values()) * weight / sum(weights.values()) for slot, weight in weights.items()}
    off = [gained[slot] / fair[slot] for slot in LOADS]
    figure(f"share over fair share, weights {list(weights.values())}", off, "x")
    figure("GPU time that be had", [sum(gained.values()) / SECONDS], "of the time")
    assert all(abs(each - 1) < 0.15 for each in off), gained
    assert sum(gained.values()) > 0.6 * SECONDS


def _seconds(machine: Machine, client: Client) -> float:
    shown = machine.shown(client)
    assert shown is not None
    return shown.gpu_seconds
