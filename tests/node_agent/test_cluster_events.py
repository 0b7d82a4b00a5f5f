"""The agent posts each Event once, in order and within limits, also after the API server did not answer."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from orion.api_server.requests import ApiError
from orion.crds.policy import Priority
from orion.node_agent.cluster.reporting import events as events_module
from orion.node_agent.cluster.reporting.device_events import post_pod_events
from orion.node_agent.cluster.reporting.events import Events, Subject, device, node, pod
from orion.node_agent.cluster.state import GpuState, HolderState, PolicyState
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.pages import policy_words
from orion.node_agent.slots.holders import Holder
from orion.node_agent.snapshots import GpuView

GPU = "GPU-00000000-0000-4000-8000-000000000000"
POD = pod(Holder("team", "train-0", "main", "a-uid"))


class Server:
    """An API server that accepts each post, or answers with the errors that the test lists."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.fails_at = ""
        """ The reason of Events that it always answers with an error of its own. """
        self.bodies: list[dict[str, Any]] = []
        self.enough = asyncio.Event()
        self.wanted = 1

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert path == f"/apis/events.k8s.io/v1/namespaces/{body['metadata']['namespace']}/events"
        if body["reason"] == self.fails_at:
            raise ApiError(500, "a webhook of this namespace failed")
        if self.answers:
            raise ApiError(self.answers.pop(0), "no")
        self.bodies.append(dict(body))
        if len(self.bodies) == self.wanted:
            self.enough.set()
        return {}


def posted(server: Server, wanted: int, post: Any) -> Events:
    """Call `post`, and return when `wanted` Events have been posted."""

    async def scenario() -> Events:
        made: Any = server
        server.wanted, server.enough = wanted, asyncio.Event()
        events = Events(made, "a-node")
        post(events)
        running = asyncio.create_task(events.run())
        await asyncio.wait_for(server.enough.wait(), 60)
        await asyncio.sleep(0)
        running.cancel()
        return events

    return asyncio.run(scenario())


def test_an_event_names_its_object_and_its_reporter() -> None:
    server = Server()

    def post(events: Events) -> None:
        events.post(POD, "ProcessWithoutHook", "a note of more than 1024 bytes: " + "ü" * 1_000)
        events.post(device("GPU-AB", "its-uid"), "GPUReady", "healthy again", warning=False)
        events.post(node("a-node"), "GPUNotAdvertised", "why")

    posted(server, 3, post)
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


def test_an_event_is_posted_once_and_has_the_same_name_after_a_restart() -> None:
    server = Server()

    def post(events: Events) -> None:
        for number in range(5):
            events.post(POD, "LongKernels", f"runs kernels of {number} ms", key="its process")
        events.post(POD, "LongKernels", "of another process", key="another process")
        events.post(Subject("Pod", "new", ""), "LongKernels", "no Event about a pod without a uid")

    posted(server, 2, post)
    before = {each["metadata"]["name"] for each in server.bodies}
    server.bodies.clear()
    posted(server, 2, post)
    assert {each["metadata"]["name"] for each in server.bodies} == before


@pytest.mark.parametrize("answers", [(0, 503, 429), (409,), (403,)])
def test_a_failed_post_is_repeated_and_a_rejected_one_is_not(
    answers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_BACKOFF_SECONDS", (0.001, 0.001))
    server = Server(*answers)

    def post(events: Events) -> None:
        events.post(POD, "First", "1")
        events.post(POD, "Second", "2")

    wanted = 2 if answers[0] in (0, 503, 429) else 1
    events = posted(server, wanted, post)
    assert [each["reason"] for each in server.bodies] == ["First", "Second"][-wanted:]
    assert events.failed == (0 if answers == (409,) else len(answers))


def test_an_event_at_which_the_api_server_fails_keeps_no_other_one_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "_BACKOFF_SECONDS", (0.001, 0.001))
    server = Server()
    server.fails_at = "First"

    def post(events: Events) -> None:
        for reason in ("First", "Second", "Third"):
            events.post(POD, reason, "a note")

    assert posted(server, 2, post).failed >= events_module._TRIES
    assert [each["reason"] for each in server.bodies] == ["Second", "Third"]


def test_one_object_cannot_use_up_the_limit_of_others() -> None:
    server = Server()

    def post(events: Events) -> None:
        for number in range(1_000):
            events.post(POD, "Noise", str(number))
        events.post(node("a-node"), "GPUNotAdvertised", "why")

    posted(server, events_module._BURST + 1, post)
    assert server.bodies[-1]["reason"] == "GPUNotAdvertised"


# -- More memory reserved than the GPU has -----------------------------------------------------------------------------


def reserving(*mib: int) -> GpuState:
    """Return a GPU whose pods reserve this much of its memory."""
    held = [
        HolderState(GPU, f"be-{number}", Priority.BE, Holder("team", f"p{number}", "main", f"u{number}"))
        for number, _ in enumerate(mib)
    ]
    slots = [replace(slot, memory_request_bytes=each << 20) for slot, each in zip(held, mib, strict=True)]
    return GpuState(GPU, {}, (*slots, HolderState(GPU, "be-9", Priority.BE, None)), PolicyState(policy_words.DEFAULT))


def test_each_pod_that_reserves_memory_of_an_over_reserved_gpu_gets_one_event() -> None:
    server = Server()
    page = policy_words.DEFAULT
    view = GpuView(Gpu(GPU, 0, "a name", 100 << 20), page, 0.0, 0, (), ())

    def post(events: Events) -> None:
        post_pod_events(events, view, reserving(60, 40))  # the pods reserve exactly all memory: no problem
        for _ in range(2):
            post_pod_events(events, view, reserving(60, 0, 41))

    posted(server, 2, post)
    assert [body["regarding"]["name"] for body in server.bodies] == ["p0", "p2"]
    assert {body["reason"] for body in server.bodies} == {"MemoryOverReserved"}
    assert "reserve 101 MiB of its 100 MiB, of which this one reserves 41 MiB" in server.bodies[1]["note"]

    def post_more(events: Events) -> None:
        post_pod_events(events, replace(view, gpu=Gpu(GPU, 0, "a name", 0)), reserving(60, 41))  # memory size not known
        post_pod_events(events, view, reserving(60, 0, 41, 1))

    posted(server, 3, post_more)
    assert sorted(body["regarding"]["name"] for body in server.bodies[2:]) == ["p0", "p2", "p3"]


def test_each_pod_that_came_later_to_a_claim_gets_an_event_about_whose_limits_apply() -> None:
    server, first = Server(), Holder("team", "first", "", "uid-first")
    later = tuple(Holder("team", name, "", f"uid-{name}") for name in ("second", "third"))
    slot = HolderState(GPU, "be-1", Priority.BE, first, "nightly", claim="both", sharing=later)
    page = policy_words.DEFAULT
    view = GpuView(Gpu(GPU, 0, "a name", 0), page, 0.0, 0, (), ())

    def post(events: Events) -> None:
        for _ in range(2):
            post_pod_events(events, view, GpuState(GPU, {}, (slot,), PolicyState(page)))

    posted(server, 2, post)
    assert [body["regarding"]["name"] for body in server.bodies] == ["second", "third"]
    assert {(body["reason"], body["type"]) for body in server.bodies} == {("SharesSlot", "Normal")}
    assert "it uses ResourceClaim both together with team/first" in server.bodies[0]["note"]
    assert "GPUShare nightly of team/first limits both together" in server.bodies[0]["note"]
