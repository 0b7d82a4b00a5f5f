"""Which of our GPUs other plugins offer too, by the ids that they give their devices."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.cluster.coexistence import Coexistence, offered_by
from orion.node_agent.cluster.pod_resources import KubeletAway
from orion.node_agent.gpus.interface import Gpu

FIRST, SECOND = (Gpu(f"GPU-0000000{number}-0000-4000-8000-00000000000a", number, "", 1) for number in (0, 1))

OFFERED = [
    ({}, []),
    ({"orion.gpu/be": [f"{FIRST.uuid}::be-0"]}, []),
    ({"nvidia.com/gpu": [FIRST.uuid]}, [FIRST]),
    ({"nvidia.com/gpu.shared": [f"{SECOND.uuid}::0", f"{SECOND.uuid}::1"]}, [SECOND]),
    ({"nvidia.com/gpu": ["0", "1::3"]}, [FIRST, SECOND]),
    ({"nvidia.com/gpu": ["7", "::", "x"]}, []),
    ({"example.com/fpga": ["0", "1"]}, []),
    ({"example.com/vgpu": [f"{FIRST.uuid.upper()}-3"]}, [FIRST]),
    ({"nvidia.com/mig-1g.18gb": ["MIG-5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a"]}, []),
]


@pytest.mark.parametrize(("allocatable", "gpus"), OFFERED, ids=range(len(OFFERED)))
def test_a_device_is_known_by_its_id(allocatable: dict[str, list[str]], gpus: list[Gpu]) -> None:
    assert offered_by(allocatable, [FIRST, SECOND]) == {gpu.uuid: tuple(allocatable) for gpu in gpus}


def test_the_kubelets_last_word_stands_while_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orion.node_agent.cluster.coexistence._LOOK_SECONDS", 0.0)
    answers: list[dict[str, list[str]] | None] = [{"nvidia.com/gpu": [FIRST.uuid]}, None, None, {}]
    changes: list[str] = []
    asked = asyncio.Event()

    async def allocatable() -> dict[str, list[str]]:
        if not answers:
            asked.set()
            await asyncio.Event().wait()
        answer = answers.pop(0)
        if answer is None:
            raise KubeletAway("UNAVAILABLE: no such file")
        return answer

    offering = SimpleNamespace(settings=None, changed=lambda: changes.append(judge.verdict(FIRST.uuid).reason))
    agent: Any = SimpleNamespace(
        offering=offering, gpus={gpu.uuid: SimpleNamespace(board=SimpleNamespace(gpu=gpu)) for gpu in (FIRST, SECOND)}
    )
    kubelet: Any = SimpleNamespace(allocatable=allocatable)
    judge: Coexistence = Coexistence(agent, kubelet)

    async def scenario() -> None:
        running = asyncio.create_task(judge.run())
        await asyncio.wait_for(asked.wait(), 60)
        running.cancel()

    asyncio.run(scenario())
    assert changes == ["OfferedByAnother", ""]


def test_people_may_say_that_both_are_to_offer_it() -> None:
    settings = SimpleNamespace(coexist=True)
    agent: Any = SimpleNamespace(offering=SimpleNamespace(settings=settings), gpus={})
    judge = Coexistence(agent, SimpleNamespace())  # type: ignore[arg-type]
    judge._others = {FIRST.uuid: ("nvidia.com/gpu",)}
    assert judge.verdict(FIRST.uuid).healthy
    settings.coexist = False
    verdict = judge.verdict(FIRST.uuid)
    assert (verdict.healthy, verdict.reason) == (False, "OfferedByAnother")
    assert "nvidia.com/gpu" in verdict.message
