"""The agent detects which of our GPUs other plugins also advertise, from the ids of the plugins' devices."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from orion.errors import Unavailable
from orion.node_agent.cluster.pod_resources import devices
from orion.node_agent.cluster.reporting.coexistence import Coexistence, claims_of_others
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.kubelet import api_pb2

FIRST, SECOND = (
    Gpu(f"GPU-0000000{number}-0000-4000-8000-00000000000a", number, "", 1, minor=5 - number) for number in (0, 1)
)

ADVERTISED = [
    ({}, []),
    ({"orion.gpu/be": [f"{FIRST.uuid}::be-0"]}, []),
    ({"nvidia.com/gpu": [FIRST.uuid]}, [FIRST]),
    ({"nvidia.com/gpu.shared": [f"{SECOND.uuid}::0", f"{SECOND.uuid}::1"]}, [SECOND]),
    ({"nvidia.com/gpu": ["0", "1::3"]}, [FIRST, SECOND]),
    ({"nvidia.com/gpu": ["7", "::", "x"]}, []),
    ({"example.com/fpga": ["0", "1"]}, []),
    ({"example.com/vgpu": [f"{FIRST.uuid.upper()}-3"]}, [FIRST]),
    ({"nvidia.com/mig-1g.18gb": ["MIG-5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a"]}, []),
    ({"gpu.nvidia.com": ["gpu-5"]}, [FIRST]),
    ({"gpu.nvidia.com": ["gpu-4-mig-9-0-1", "gpu-41"]}, [SECOND]),
    ({"gpu.nvidia.com": ["gpu-0", "gpu-1", "gpu-5x"]}, []),
    ({"gpu.example.com": ["gpu-5"]}, []),
    ({"orion.gpu": [FIRST.uuid.lower(), f"nvidia.com/gpu={FIRST.uuid}"]}, []),
    ({"gpu.example.com": [f"example.com/gpu={FIRST.uuid}"]}, [FIRST]),
]


@pytest.mark.parametrize(("allocatable", "gpus"), ADVERTISED, ids=range(len(ADVERTISED)))
def test_a_device_is_matched_by_its_id(allocatable: dict[str, list[str]], gpus: list[Gpu]) -> None:
    assert claims_of_others(allocatable, [FIRST, SECOND]) == {(gpu.uuid, *allocatable) for gpu in gpus}


def judge(reported: list[str], claim_seconds: float = 60.0) -> Coexistence:
    """Return a judge of two GPUs. At each change it appends its verdict on the first GPU to `reported`."""
    advertising = SimpleNamespace(settings=None)
    agent: Any = SimpleNamespace(
        advertising=advertising,
        settings=SimpleNamespace(claim_seconds=claim_seconds),
        gpus={gpu.uuid: SimpleNamespace(shared_gpu=SimpleNamespace(gpu=gpu)) for gpu in (FIRST, SECOND)},
    )
    made = Coexistence(agent, SimpleNamespace())  # type: ignore[arg-type]
    advertising.changed = lambda: reported.append(made.verdict(FIRST.uuid).reason)
    return made


def test_the_kubelets_last_answer_stays_valid_while_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orion.node_agent.cluster.reporting.coexistence._LOOK_SECONDS", 0.001)
    answers: list[dict[str, list[str]] | None] = [{"nvidia.com/gpu": [FIRST.uuid]}, None, None, {}, {}]
    reported: list[str] = []
    asked = asyncio.Event()

    async def allocatable() -> dict[str, list[str]]:
        if not answers:
            asked.set()
            await asyncio.Event().wait()
        answer = answers.pop(0)
        if answer is None:
            assert reported == ["AdvertisedByAnother"]
            raise Unavailable("UNAVAILABLE: no such file")
        return answer

    async def pods() -> list[api_pb2.PodResources]:
        return []

    coexistence = judge(reported, claim_seconds=0.0)
    monkeypatch.setattr(coexistence, "_kubelet", SimpleNamespace(allocatable=allocatable, pods=pods))

    async def scenario() -> None:
        running = asyncio.create_task(coexistence.run())
        await asyncio.wait_for(asked.wait(), 60)
        running.cancel()

    asyncio.run(scenario())
    assert reported == ["AdvertisedByAnother", ""]


def test_a_claim_stays_valid_for_a_while_after_it_was_last_seen() -> None:
    """The kubelet lists healthy devices only, so it lists none while a plugin restarts or its GPU is unhealthy."""
    reported: list[str] = []
    coexistence, advertised = judge(reported), {"nvidia.com/gpu": [FIRST.uuid]}
    coexistence._take(advertised, {}, now=0.0)
    coexistence._take({}, {}, now=59.0)
    coexistence._take(advertised, {}, now=60.0)
    coexistence._take({}, {}, now=119.0)
    assert reported == ["AdvertisedByAnother"]
    coexistence._take({}, {}, now=121.0)
    assert reported == ["AdvertisedByAnother", ""]


def test_a_claim_does_not_age_while_the_kubelet_is_silent() -> None:
    """The kubelet's first answer may come before the other plugin has registered again."""
    reported: list[str] = []
    coexistence = judge(reported)
    coexistence._take({"nvidia.com/gpu": [FIRST.uuid]}, {}, now=0.0)
    coexistence._away = "UNAVAILABLE: no such file"
    coexistence._take({}, {}, now=300.0)
    coexistence._away = ""
    coexistence._take({}, {}, now=359.0)
    assert reported == ["AdvertisedByAnother"]
    coexistence._take({}, {}, now=361.0)
    assert reported == ["AdvertisedByAnother", ""]


def test_a_claim_stays_valid_while_a_container_has_the_device() -> None:
    reported: list[str] = []
    coexistence = judge(reported)
    container = api_pb2.ContainerResources(
        name="main", devices=[api_pb2.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[FIRST.uuid])]
    )
    held = devices([api_pb2.PodResources(name="theirs", namespace="team", containers=[container, container])])
    assert held == {"nvidia.com/gpu": [FIRST.uuid] * 2}
    coexistence._take({}, held, now=0.0)  # no plugin has advertised the device since this agent started
    coexistence._take({}, held, now=1_000.0)
    assert coexistence.others(FIRST.uuid) == ("nvidia.com/gpu",)
    assert coexistence.others(SECOND.uuid) == ()
    coexistence._take({}, {}, now=1_059.0)
    assert reported == ["AdvertisedByAnother"]
    coexistence._take({}, {}, now=1_061.0)
    assert reported == ["AdvertisedByAnother", ""]


def test_a_gpu_that_a_dra_driver_gave_to_a_pod_is_noticed() -> None:
    given = api_pb2.ClaimResource(
        driver_name="gpu.nvidia.com",
        pool_name="node-1",
        device_name="gpu-5",
        cdi_devices=[api_pb2.CDIDevice(name="k8s.gpu.nvidia.com/claim=4711-gpu-5")],
    )
    claim = api_pb2.DynamicResource(claim_name="one", claim_namespace="team", claim_resources=[given])
    container = api_pb2.ContainerResources(name="main", dynamic_resources=[claim])
    held = devices([api_pb2.PodResources(name="theirs", namespace="team", containers=[container])])
    coexistence = judge([])
    coexistence._take({}, held, now=0.0)
    assert coexistence.others(FIRST.uuid) == ("gpu.nvidia.com",)
    assert coexistence.others(SECOND.uuid) == ()


def test_the_configuration_may_allow_two_plugins() -> None:
    coexistence = judge([])
    coexistence._take({"nvidia.com/gpu": [FIRST.uuid], "example.com/vgpu": [FIRST.uuid]}, {}, now=0.0)
    verdict = coexistence.verdict(FIRST.uuid)
    assert (verdict.healthy, verdict.reason) == (False, "AdvertisedByAnother")
    assert "example.com/vgpu, nvidia.com/gpu" in verdict.message
    advertising: Any = coexistence._agent.advertising
    advertising.settings = SimpleNamespace(coexist=True)
    assert coexistence.verdict(FIRST.uuid).healthy
