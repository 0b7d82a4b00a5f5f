"""Events are posted once each, in order, within bounds, and over an API server that is away."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from orion.api_server.requests import ApiError
from orion.crds.policy import Priority
from orion.node_agent.cluster.reporting import events
from orion.node_agent.cluster.reporting.device_events import say_of_pods
from orion.node_agent.cluster.reporting.events import Events, Subject, device, node, pod
from orion.node_agent.cluster.state import GpuState, HolderState, PolicyState
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.pages import policy_words
from orion.node_agent.slots.holders import Holder
from orion.node_agent.snapshots import GpuView

GPU = "GPU-00000000-0000-4000-8000-000000000000"
POD = pod(Holder("team", "train-0", "main", "a-uid"))


class Server:
    """Takes what is posted, or answers as the test says."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.bodies: list[dict[str, Any]] = []
        self.enough = asyncio.Event()
        self.wanted = 1

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert path == f"/apis/events.k8s.io/v1/namespaces/{body['metadata']['namespace']}/events"
        if self.answers:
            raise ApiError(self.answers.pop(0), "no")
        self.bodies.append(dict(body))
        if len(self.bodies) == self.wanted:
            self.enough.set()
        return {}


def posted(server: Server, wanted: int, say: Any) -> Events:
    """Let something be said, and return when that many Events have been posted."""

    async def scenario() -> Events:
        made: Any = server
        server.wanted, server.enough = wanted, asyncio.Event()
        speaker = Events(made, "a-node")
        say(speaker)
        running = asyncio.create_task(speaker.run())
        await asyncio.wait_for(server.enough.wait(), 60)
        await asyncio.sleep(0)
        running.cancel()
        return speaker

    return asyncio.run(scenario())


def test_an_event_says_about_whom_and_by_whom() -> None:
    server = Server()

    def say(speaker: Events) -> None:
        speaker.say(POD, "ProcessWithoutHook", "a note of more than 1024 bytes: " + "ü" * 1_000)
        speaker.say(device("GPU-AB", "its-uid"), "GPUReady", "well again", warning=False)
        speaker.say(node("a-node"), "GPUNotAdvertised", "why")

    posted(server, 3, say)
    first, second, third = server.bodies
    assert first["regarding"] == {"apiVersion": "v1", "kind": "Pod", "name": "train-0", "uid": "a-uid",
                                  "namespace": "team"}  # fmt: skip
    assert (first["type"], first["reportingController"], first["reportingInstance"]) == (
        "Warning", "orion.gpu/agent", "a-node",
    )  # fmt: skip
    assert len(first["note"].encode()) <= 1_024
    assert first["note"].endswith("ü")
    assert (second["regarding"]["kind"], second["regarding"]["name"], second["type"]) == (
        "GPUDevice", "gpu-ab", "Normal",
    )  # fmt: skip
    assert [each["metadata"]["namespace"] for each in (first, second, third)] == ["team", "default", "default"]


def test_what_is_said_again_is_posted_once_and_has_the_same_name_after_a_restart() -> None:
    server = Server()

    def say(speaker: Events) -> None:
        for number in range(5):
            speaker.say(POD, "LongKernels", f"runs kernels of {number} ms", key="its process")
        speaker.say(POD, "LongKernels", "of another process", key="another process")
        speaker.say(Subject("Pod", "new", ""), "LongKernels", "nothing is said of a pod without a uid")

    posted(server, 2, say)
    before = {each["metadata"]["name"] for each in server.bodies}
    server.bodies.clear()
    posted(server, 2, say)
    assert {each["metadata"]["name"] for each in server.bodies} == before


@pytest.mark.parametrize("answers", [(0, 503, 429), (409,), (403,)])
def test_what_cannot_be_posted_now_comes_later_and_what_never_can_is_passed_over(
    answers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_BACKOFF_SECONDS", (0.001, 0.001))
    server = Server(*answers)

    def say(speaker: Events) -> None:
        speaker.say(POD, "First", "1")
        speaker.say(POD, "Second", "2")

    wanted = 2 if answers[0] in (0, 503, 429) else 1
    speaker = posted(server, wanted, say)
    assert [each["reason"] for each in server.bodies] == ["First", "Second"][-wanted:]
    assert speaker.failed == (0 if answers == (409,) else len(answers))


def test_one_object_cannot_use_up_what_others_have_to_say() -> None:
    server = Server()

    def say(speaker: Events) -> None:
        for number in range(1_000):
            speaker.say(POD, "Noise", str(number))
        speaker.say(node("a-node"), "GPUNotAdvertised", "why")

    posted(server, events._BURST + 1, say)
    assert server.bodies[-1]["reason"] == "GPUNotAdvertised"


# -- Memory that was promised twice ------------------------------------------------------------------------------------


def reserving(*mib: int) -> GpuState:
    """A GPU whose pods reserve so much of it."""
    held = [
        HolderState(GPU, f"be-{number}", Priority.BE, Holder("team", f"p{number}", "main", f"u{number}"))
        for number, _ in enumerate(mib)
    ]
    slots = [replace(slot, memory_request_bytes=each << 20) for slot, each in zip(held, mib, strict=True)]
    return GpuState(GPU, {}, (*slots, HolderState(GPU, "be-9", Priority.BE, None)), PolicyState(policy_words.DEFAULT))


def test_each_pod_that_reserves_memory_of_a_gpu_that_has_too_little_hears_of_it_once() -> None:
    server = Server()
    page = policy_words.DEFAULT
    view = GpuView(Gpu(GPU, 0, "a name", 100 << 20), page, 0.0, 0, (), ())

    def say(speaker: Events) -> None:
        say_of_pods(speaker, view, reserving(60, 40))  # up to the last byte is as promised
        for _ in range(2):
            say_of_pods(speaker, view, reserving(60, 0, 41))

    posted(server, 2, say)
    assert [body["regarding"]["name"] for body in server.bodies] == ["p0", "p2"]
    assert {body["reason"] for body in server.bodies} == {"MemoryOverReserved"}
    assert "reserve 101 MiB of its 100 MiB, of which this one reserves 41 MiB" in server.bodies[1]["note"]

    def say_more(speaker: Events) -> None:
        say_of_pods(speaker, replace(view, gpu=Gpu(GPU, 0, "a name", 0)), reserving(60, 41))  # not known
        say_of_pods(speaker, view, reserving(60, 0, 41, 1))

    posted(server, 3, say_more)
    assert sorted(body["regarding"]["name"] for body in server.bodies[2:]) == ["p0", "p2", "p3"]
