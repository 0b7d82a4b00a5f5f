"""Deployments whose pods can never run: their pods wait or are refused, and none of them fails in a loop.

A pod that fails for good is replaced by its controller at once, and the next pod fails in the same way.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes import client, watch

from orion.device_plugin.refused import NO_DEVICE, refuse
from testbed.node import Node
from testbed.orion import Orion
from tests.node.another_plugin import RESOURCE as ANOTHER
from tests.node.another_plugin import AnotherPlugin
from tests.node.disturbed_pods import Occupants, registrations, wait_until_registered
from tests.node.gpu_tenants import (
    GpuNode,
    Manifest,
    Tenants,
    advertising,
    deployed,
    main_container,
    serving,
    share,
    training,
)
from tests.node.shell_pods import shell_pod
from tests.waiting import eventually

pytestmark = pytest.mark.node

FAILED_AT_MOST = 1
ONE_GPU = "two slots of one GPU"
LABEL = "didn't match Pod's node affinity"


@dataclass
class Shape:
    """A Deployment, and what its user sees."""

    pod: Manifest
    shown: str
    """ A part of the sentence: a refusal, the reason why the pod is not scheduled, or why its container waits. """
    share: dict[str, Any] = field(default_factory=dict)
    """ Fields of a GPUShare for the pod; empty: it has none. """

    @property
    def name(self) -> str:
        """Of the Deployment."""
        return str(self.pod["metadata"]["name"])


def asking(pod: Manifest, resource: str, amount: int) -> Manifest:
    """The pod, with this request of its container."""
    main_container(pod)["resources"]["limits"][resource] = str(amount)
    return pod


def of_containers(pod: Manifest, count: int) -> Manifest:
    """The pod, with this many containers instead of one."""
    pod["spec"]["containers"] = [{**main_container(pod), "name": f"trainer-{number}"} for number in range(count)]
    return pod


def of_node(pod: Manifest, node: Node) -> Manifest:
    """The pod, bound to a node without a scheduler."""
    pod["spec"]["nodeName"] = node.name
    return pod


def affine(pod: Manifest, *terms: Mapping[str, Any]) -> Manifest:
    """The pod, with an affinity of its own to nodes of one of these kinds."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    pod["spec"]["affinity"] = {"nodeAffinity": required}
    return pod


def with_init(pod: Manifest, slots: int) -> Manifest:
    """The pod, with an init container that asks for more slots than the container after it."""
    limits = {**main_container(pod)["resources"]["limits"], "orion.gpu/be": str(slots)}
    pod["spec"]["initContainers"] = [{**main_container(pod), "name": "first", "resources": {"limits": limits}}]
    return pod


def annotated(pod: Manifest, **annotations: str) -> Manifest:
    """The pod, with annotations orion/..."""
    pod["metadata"]["annotations"] |= {f"orion/{name}": value for name, value in annotations.items()}
    return pod


def shapes(node: Node) -> list[Shape]:
    """All shapes. The node has two GPUs with two hp and four be slots each, and one GPU is cordoned."""
    be, hp = "orion.gpu/be", "orion.gpu/hp"
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}]}
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
    return [
        Shape(asking(training("more-than-gpus"), be, 3), LABEL),
        Shape(asking(training("one-is-cordoned"), be, 2), LABEL),
        Shape(asking(serving("two-hp"), hp, 2), LABEL),
        Shape(of_containers(training("more-than-slots"), 5), "Insufficient orion.gpu/be"),
        Shape(affine(asking(training("own-affinity"), be, 2), here, by_name), LABEL),
        Shape(of_node(asking(training("bound-be"), be, 2), node), ONE_GPU),
        Shape(of_node(asking(serving("bound-hp"), hp, 2), node), ONE_GPU),
        Shape(asking(training("hp-and-be"), hp, 1), "a container is either hp or be"),
        Shape(training("too-large"), LABEL, {"memory": {"request": "999Gi"}}),
        Shape(annotated(training("unknown-priority"), priority="medium"), "must be hp or be"),
        Shape(annotated(training("unknown-share"), share="nobody"), "does not exist"),
        Shape(with_init(training("greedy-init"), 2), "first"),
    ]


@pytest.fixture
def one_open_gpu(
    orion: Orion, node: Node, gpus: GpuNode, api: client.ApiClient, cordon: Callable[[str, bool], None]
) -> Iterator[None]:
    """The node has two GPUs with two hp and four be slots each, and one of them is cordoned."""
    core = client.CoreV1Api(api)
    with advertising(orion, node, {"slots": {"hp": 2, "be": 4}}, hp=4, be=8):
        closed = sorted(gpus.devices())[0]
        cordon(closed, True)
        eventually(lambda: core.read_node(node.name).metadata.labels["orion.gpu/gpus"] == "1")
        eventually(lambda: orion.allocatable(node)["orion.gpu/be"] == 4)
        yield
        cordon(closed, False)


class Impossible:
    """The Deployments of all shapes in one namespace."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._apps = client.AppsV1Api(tenants.api)

    def sentences(self, shape: Shape) -> str:
        """What the user of a Deployment sees."""
        deployment = self._apps.read_namespaced_deployment(shape.name, self._tenants.namespace)
        said = [condition.message for condition in deployment.status.conditions or ()]
        for pod in self._tenants.pods(shape.name).values():
            said += [condition.message for condition in pod.status.conditions or ()]
            waiting = [each.state.waiting for each in pod.status.container_statuses or ()]
            said += [each.message for each in waiting if each]
        return "\n".join(sentence for sentence in said if sentence)

    def wait(self, shapes: list[Shape]) -> None:
        """Wait until the users of all Deployments see why their pods do not run."""

        def silent() -> list[Shape]:
            self.check()
            return [shape for shape in shapes if shape.shown not in self.sentences(shape)]

        try:
            eventually(lambda: not silent())
        except AssertionError:
            shown = "\n".join(f"{shape.name}: {self.sentences(shape)}" for shape in silent())
            raise AssertionError(f"users do not see why these pods do not run:\n{shown}") from None

    def failed(self) -> dict[str, int]:
        """The number of failed pods of each Deployment that has any."""
        counts: dict[str, int] = {}
        for pod in self._tenants.pods().values():
            if pod.status.phase == "Failed":
                app = pod.metadata.labels["app"]
                counts[app] = counts.get(app, 0) + 1
        return counts

    def watch(self, until: float) -> None:
        """Receive the changes of pods until a monotonic time; fail as soon as a Deployment has too many failed pods."""
        while (left := until - time.monotonic()) > 0:
            changes: Callable[..., Any] = watch.Watch().stream
            for _ in changes(
                self._tenants.core.list_namespaced_pod, self._tenants.namespace, timeout_seconds=max(1, round(left))
            ):
                self.check()
        self.check()

    def check(self) -> None:
        """Fail if a Deployment has too many failed pods."""
        assert all(count <= FAILED_AT_MOST for count in self.failed().values()), self.failed()


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.thorough)])
def test_no_impossible_deployment_makes_failed_pods_in_a_loop(
    one_open_gpu: None, tenants: Tenants, node: Node, seconds: float
) -> None:
    impossible, made = Impossible(tenants), shapes(node)
    for shape in made:
        if shape.share:
            tenants.create(share(shape.pod, **shape.share))
        tenants.create(deployed(shape.pod, 1))
    began = time.monotonic()
    impossible.wait(made)
    impossible.watch(began + seconds)


def test_a_refused_container_waits_with_an_event_and_its_slots_are_free_after_it(
    one_open_gpu: None, occupants: Occupants, node: Node
) -> None:
    occupants.tenants.create(of_node(asking(training("refused"), "orion.gpu/be", 2), node))
    eventually(lambda: ONE_GPU in occupants.complaints("refused"))
    assert occupants.tenants.pods()["refused"].status.phase == "Pending"
    occupants.tenants.delete("refused")
    occupants.create(*(training(f"next-{number}") for number in range(4)))
    occupants.books.settle()


def test_without_prestartcontainer_the_answer_alone_prevents_the_start(occupants: Occupants, node: Node) -> None:
    pod = shell_pod("refused", "sleep 1000", {"resources": {"limits": {ANOTHER: "1"}}})
    with AnotherPlugin(node, ["another-0"], refuse("the test refuses it")):
        eventually(lambda: occupants.tenants.core.read_node(node.name).status.allocatable.get(ANOTHER) == "1")
        occupants.tenants.create(pod)
        eventually(lambda: NO_DEVICE in occupants.waits("refused"))
        occupants.tenants.delete("refused")


def test_a_pod_with_two_gpus_survives_a_cordon_and_a_restart_of_the_kubelet(
    occupants: Occupants, node: Node, orion: Orion, cordon: Callable[[str, bool], None]
) -> None:
    occupants.create(asking(training("two"), "orion.gpu/be", 2))
    occupants.books.settle()
    closed = sorted(occupants.gpus.devices())[0]
    cordon(closed, True)
    eventually(lambda: occupants.gpus.condition(closed, "Ready")["status"] == "False")
    registered = registrations(orion, node)
    node.restart("kubelet")
    wait_until_registered(orion, node, since=registered)
    occupants.pods["two"].computes()
    occupants.books.settle()
    assert occupants.tenants.pods()["two"].status.phase == "Running"
    assert occupants.restarts("two") == 0
