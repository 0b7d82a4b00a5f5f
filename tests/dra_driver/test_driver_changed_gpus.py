"""GPUs change while claims have slots of them: what runs stays, nothing new comes, and a restart says why."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orion.dra_driver import slices
from orion.injection.snapshot import from_message
from orion.node_agent.api.client import AgentClient
from orion.node_agent.mps.folder import MpsFolder, Wanted
from tests.dra_driver.conftest import DriverNode, claim, result
from tests.dra_driver.stand_in_kubelet import CALL_SECONDS, Failed
from tests.waiting import eventually

NAMES = ("well", "lost", "sick", "split", "closed", "gone")
SAID = {
    "lost": "is unhealthy: the simulated GPU is lost",
    "sick": "is unhealthy: the driver reports Xid 79",
    "split": "is unhealthy: MIG is enabled on this GPU",
    "gone": "no longer has it",
}
""" Why a container cannot start on a GPU, although its claim has a slot there. """


@pytest.fixture
def large_node(socket_folder: Path) -> Iterator[DriverNode]:
    """A node with a GPU for each change."""
    node = DriverNode(socket_folder, gpus=len(NAMES))
    node.agent_options = ["--recovery-seconds", "600"]
    node.begin_agent()
    node.begin_driver()
    yield node
    node.close()


def offered(node: DriverNode) -> dict[str, dict[str, Any]]:
    """Return the devices of the slice that the driver writes for the agent's GPUs, by their names."""
    with AgentClient(node.root) as agent:
        found = slices.devices(from_message(next(agent.watch_devices())), 0)
    return {device["name"]: device for device in found}


def test_gpus_that_change_while_claims_have_slots(large_node: DriverNode) -> None:
    node = large_node
    gpus = dict(zip(NAMES, node.gpus(), strict=True))
    devices = {name: gpu.lower() for name, gpu in gpus.items()}
    node.server.put(*(claim(f"{when}-{name}", result(gpu)) for when in ("old", "new") for name, gpu in gpus.items()))

    def errors(*uids: str, seconds: float = CALL_SECONDS) -> dict[str, str]:
        return {uid: answer.error for uid, answer in node.kubelet.prepare(*uids, seconds=seconds).items()}

    old = [f"old-{name}" for name in NAMES]
    assert set(errors(*old).values()) == {""}
    files, slots = node.cdi_files(), node.slots()

    node.change_machine(ORION_SIM_GPUS=str(len(NAMES) - 1), ORION_SIM_MIG=str(NAMES.index("split")))
    node.fault("lose", gpus["lost"])
    node.fault("xid", gpus["sick"], "79")
    node.configure(slotsByGPU=[{"gpu": gpus["closed"], "hp": 0, "be": 0}])

    def taints() -> dict[str, list[str]]:
        return {
            name: [each["key"].partition("/")[2] + each.get("value", "") for each in offered(node)[device]["taints"]]
            for name, device in devices.items()
            if "taints" in offered(node).get(device, {})
        }

    unhealthy = {"lost": ["unhealthyGPULost"], "sick": ["unhealthyXid79"], "split": ["unhealthyMIGEnabled", "cordoned"]}
    eventually(lambda: taints() == unhealthy, "taints keep new claims away")
    assert offered(node).keys() == set(devices.values()) - {devices["gone"]}
    eventually(lambda: "hpSlots" not in offered(node)[devices["closed"]]["capacity"], "a free slot is closed")
    assert offered(node)[devices["closed"]]["capacity"]["beSlots"]["value"] == "1", "the slot of the claim is left"

    def sick() -> dict[str, str]:
        return {device: why for device, (is_well, why) in node.kubelet.health().items() if not is_well}

    eventually(lambda: sick().keys() == {devices[name] for name in SAID}, "the kubelet learns which GPUs are sick")
    assert all(said.rpartition(": ")[2] in sick()[devices[name]] for name, said in SAID.items())

    assert node.cdi_files() == files, "running containers may restart"
    left = {key: slot for key, slot in slots.items() if gpus["gone"] not in slot}
    eventually(lambda: node.slots() == left, "slots stay")
    assert set(errors("old-well", "old-closed", "new-well").values()) == {""}
    refused = {f"{when}-{name}": why for when in ("old", "new") for name, why in SAID.items()}
    refused["new-closed"] = "has no free be slot: others hold all 1"
    said = errors(*refused, seconds=6)
    assert all(why in said[uid] for uid, why in refused.items()), said
    node.kubelet.unprepare(*old)
    eventually(lambda: "beSlots" not in offered(node)[devices["closed"]]["capacity"], "the slot goes with its claim")
    assert [key.partition(" ")[0] for key in node.slots()] == ["new-well"]


def test_claims_keep_memory_that_is_configured_down(node: DriverNode) -> None:
    """kube-scheduler gives nothing more of such a GPU (tests/cluster)."""
    (gpu, _) = node.gpus()
    node.server.put(claim("one", result(gpu, consumed={"memory": str(60 << 30)})))
    node.kubelet.prepared("one")
    files, slots = node.cdi_files(), node.slots()
    node.end("driver")
    node.options += ["--slot-memory-mib", "1000000"]
    node.begin_driver()
    node.kubelet.prepared("one")
    assert (node.cdi_files(), node.slots()) == (files, slots)


def test_a_claim_of_two_gpus_whose_mode_changes_to_mps_before_its_pod_starts_says_why(node: DriverNode) -> None:
    first, second = node.gpus()
    node.server.put(claim("one", result(first, share="a"), result(second, share="b")))
    MpsFolder(node.root).want(second, Wanted(simulated=True))  # as the agent writes it once the GPU has no tenant
    with pytest.raises(Failed, match=f"GPU {second} is in mode mps, and a container with 2 GPUs"):
        node.kubelet.prepared("one")
    assert node.cdi_files() == {}
    node.kubelet.unprepare("one")
    assert node.slots() == {}
