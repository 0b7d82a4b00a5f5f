"""Static pods that ask for slots: the kubelet takes them from a file of the node, so no webhook can add the hook."""

import json
from collections.abc import Callable, Iterator

import pytest

from testbed.node import Node
from tests.node.gpu_tenants import GpuNode, Manifest, Tenants, training
from tests.waiting import eventually

pytestmark = pytest.mark.node


@pytest.fixture
def write_file(node: Node, tenants: Tenants) -> Iterator[Callable[[Manifest], str]]:
    """Writes the file of a static pod, which is removed at the end; returns the pod's name at the API server."""
    file = node.folder / "lib/kubelet/static-pods/static.yaml"
    file.parent.mkdir(exist_ok=True)

    def write(pod: Manifest) -> str:
        pod["metadata"]["namespace"] = tenants.namespace
        file.write_text(json.dumps(pod))
        return f"{pod['metadata']['name']}-{node.name}"

    yield write
    file.unlink()
    eventually(lambda: not tenants.pods(), what="the kubelet deletes the mirror pod")


def test_a_static_pod_with_a_slot_does_not_start_and_its_events_say_why(
    tenants: Tenants, gpus: GpuNode, node: Node, write_file: Callable[[Manifest], str]
) -> None:
    name = write_file(training("static"))

    def sentences() -> list[str]:
        return [event.message for event in tenants.events(name) if "cannot share GPUs" in (event.message or "")]

    (sentence, *_) = eventually(sentences)
    assert f"the static pod {tenants.namespace}/{name} cannot share GPUs" in sentence

    def waits_because() -> str:
        statuses = tenants.pods()[name].status.container_statuses or ()
        return next((each.state.waiting.message or "" for each in statuses if each.state.waiting), "")

    eventually(lambda: "cannot share GPUs" in waits_because())  # the kubelet tries again every ten seconds
    assert tenants.pods()[name].status.phase == "Pending"
    assert not any(slot.clients for gpu in gpus.snapshot().gpus for slot in gpu.slots)
