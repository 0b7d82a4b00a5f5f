"""What Kubernetes does not do for pods with claims. Each test fails once Kubernetes does it: then docs/dra.md changes.

Two more limits are in test_claims_spread.py: kube-scheduler takes the first GPU that fits, and it counts no tenants.
Those of the API server are in test_claims_at_other_api_servers.py: it drops fields before 1.36 and tolerates no taints.
The kubelet's limits need a node.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from orion.crds.claims import CLAIM
from orion.injection.slots import Slot
from tests.cluster.claiming_cluster import HP, RESOURCES, Cluster, be, gpu, pod_spec
from tests.cluster.refusals import refusal
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

UNPLACED = "cannot allocate all claims"
TRIED = "preemption:"
""" In the scheduler's sentence: it has looked for pods that it could evict. """


@pytest.fixture
def urgent(api: client.ApiClient, namespace: str) -> Iterator[dict[str, Any]]:
    """Fields of the specs of pods that come before all others."""
    scheduling = client.SchedulingV1Api(api)
    scheduling.create_priority_class({"metadata": {"name": namespace}, "value": 1_000_000})
    yield {"priorityClassName": namespace}
    scheduling.delete_priority_class(namespace)


def container(request: str = "main", cpu: str = "0") -> dict[str, Any]:
    claim = {"name": CLAIM, "request": request} if request else {"name": CLAIM}
    return {"name": "main", "image": "none", "resources": {"claims": [claim], "requests": {"cpu": cpu}}}


def test_an_hp_pod_evicts_no_be_pods_for_a_claim(cluster: Cluster, urgent: dict[str, Any]) -> None:
    """The limit: kube-scheduler evicts no pods of lower priority for a claim, although it does so for CPU."""
    cluster.node("a", gpu(0))
    (holder,) = cluster.place(be(time_milli=600), containers=[container(cpu="600")])
    (waiting,) = cluster.begin(HP.model_copy(update={"time_milli": 500}), **urgent)
    eventually(lambda: TRIED in cluster.why_pending(waiting), f"the scheduler has tried: {cluster.events(waiting)}")
    assert UNPLACED in cluster.why_pending(waiting)
    assert not cluster.pod(waiting).status.nominated_node_name
    assert cluster.pod(holder).metadata.deletion_timestamp is None
    cluster.begin(HP, containers=[container(cpu="500")], **urgent)
    eventually(lambda: cluster.pod(holder).metadata.deletion_timestamp, "it is evicted for its CPU")


class RollingPod:
    """A Deployment of one pod with a claim. It has no kubelet: the test says that pods are ready, and ends them."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._apps, self._core, self._namespace = client.AppsV1Api(api), client.CoreV1Api(api), namespace

    def create(self, spec: dict[str, Any]) -> None:
        labels = {"app": "serve"}
        strategy = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template, "strategy": strategy}
        self._apps.create_namespaced_deployment(self._namespace, {"metadata": {"name": "serve"}, "spec": body})

    def change(self, spec: dict[str, Any]) -> None:
        self._apps.patch_namespaced_deployment("serve", self._namespace, {"spec": spec})

    def pods(self) -> dict[str, client.V1Pod]:
        found = self._core.list_namespaced_pod(self._namespace, label_selector="app=serve").items
        return {pod.metadata.name: pod for pod in found}

    def is_ready(self, name: str) -> None:
        """Say that a pod is ready; return when the Deployment counts it."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._core.patch_namespaced_pod_status(name, self._namespace, {"status": status})
        eventually(lambda: self._apps.read_namespaced_deployment("serve", self._namespace).status.available_replicas)


def test_the_new_pod_of_a_rolling_update_waits_if_both_reserve_more_than_half(
    cluster: Cluster, api: client.ApiClient, namespace: str
) -> None:
    """The limit: kube-scheduler counts old and new pod. With `maxSurge: 0` the old pod ends first."""
    serve = HP.model_copy(update={"time_milli": 600})
    slots = (*gpu(0).slots, Slot(gpu(0).uuid, "hp", 1))  # one more, as for the new pod of a rolling update
    cluster.node("a", gpu(0, slots=slots))
    cluster.make_template(serve)
    rolling = RollingPod(api, namespace)
    rolling.create(pod_spec(serve))
    (old,) = eventually(cluster.placed, "the first pod has its GPU")
    rolling.is_ready(old)

    rolling.change({"template": {"metadata": {"annotations": {"restarted": "now"}}}})
    new = eventually(lambda: next(iter(rolling.pods().keys() - {old}), ""), "the new pod")
    eventually(lambda: UNPLACED in cluster.why_pending(new), "the scheduler has tried the new pod")
    assert rolling.pods()[old].metadata.deletion_timestamp is None

    rolling.change({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}})
    eventually(lambda: rolling.pods()[old].metadata.deletion_timestamp, "the Deployment ends the old pod")
    cluster.end(old)
    eventually(lambda: list(cluster.placed()) == [new], "the new pod has the GPU")


def test_a_pod_learns_from_the_scheduler_neither_gpu_nor_amount(cluster: Cluster) -> None:
    """The limit: the scheduler says only that it cannot allocate all claims. The operator's Event says the rest."""
    cluster.node("a", gpu(0))
    cluster.place(be(time_milli=600))
    (waiting,) = cluster.begin(be(time_milli=500))
    why = eventually(lambda: cluster.why_pending(waiting), "the scheduler has tried")
    assert UNPLACED in why
    assert not any(word in why for word in ("time", "memory", "Slots", gpu(0).uuid.lower())), why


def test_the_amounts_of_a_claim_cannot_be_changed(cluster: Cluster, api: client.ApiClient, namespace: str) -> None:
    """The limit: a claim's amounts cannot be changed, neither before nor after it has its GPU."""
    objects = client.CustomObjectsApi(api)

    def more(spec: dict[str, Any]) -> dict[str, Any]:
        requests = spec["devices"]["requests"]
        requests[0]["exactly"]["capacity"]["requests"]["time"] = "200"
        return {"devices": {"requests": requests}}

    def change() -> str:
        (claim,) = cluster.claims()
        where: dict[str, str] = {**RESOURCES, "namespace": namespace, "plural": "resourceclaims"}
        body = {"spec": more(claim["spec"])}
        return refusal(objects.patch_namespaced_custom_object, **where, name=claim["metadata"]["name"], body=body)

    (name,) = cluster.begin(be(places=None, time_milli=100))
    eventually(cluster.claims, "the pod's claim")
    assert "field is immutable" in change()
    cluster.node("a", gpu(0))
    eventually(lambda: name in cluster.placed(), "the pod has its GPU")
    assert "field is immutable" in change()


def test_a_pod_that_names_its_node_gets_no_gpu(cluster: Cluster) -> None:
    """The limit: no scheduler sees a pod with spec.nodeName, so nobody allocates its claim. The webhook refuses it."""
    node = cluster.node("a", gpu(0))
    (bound,) = cluster.begin(be(), nodeName=node)
    eventually(cluster.claims, "the pod's claim")
    cluster.place(be(), 2)  # pods that came later
    assert bound not in cluster.placed()


def test_a_quota_on_claims_shows_in_an_event_and_refuses_no_pod(cluster: Cluster) -> None:
    """The limit: a quota refuses the claim and not the pod, which stays Pending with an Event."""
    cluster.node("a", gpu(0))
    used = cluster.quota(1)
    eventually(lambda: used() == "0", "the quota counts")
    (first,) = cluster.place(be())
    eventually(lambda: used() == "1", "the first pod counts")
    (second,) = cluster.begin(be())
    why = eventually(lambda: cluster.events(second).get("FailedResourceClaimCreation"), "the Event about the claim")
    assert "exceeded quota: gpus" in str(why)
    assert cluster.pod(second).status.phase == "Pending"
    assert list(cluster.placed()) == [first]


def test_a_container_may_use_a_claim_with_several_requests_and_name_none(cluster: Cluster) -> None:
    """The limit: nobody refuses such a container before the kubelet starts it with a mixture of slots."""
    cluster.node("a", gpu(0))
    shape = be().model_copy(update={"gpus": {"main": 1, "other": 1}})
    (name,) = cluster.begin(shape, containers=[container(request="")])
    eventually(lambda: len(cluster.placed().get(name, ())) == 2, "the pod has both slots")


def test_a_selector_that_fails_on_a_gpu_keeps_the_pod_from_all_others(cluster: Cluster) -> None:
    """The limit: kube-scheduler gives up a pod whose selector fails on one GPU, although another node has others."""
    linked = {number: frozenset({gpu(other).uuid}) for number, other in ((1, 2), (2, 1))}
    cluster.node("a", gpu(0))
    cluster.node("b", *(gpu(number, linked=linked[number]) for number in (1, 2)))
    (fails,) = cluster.begin(be(selector='device.attributes["orion.gpu"].nvlink == 0'))
    why = eventually(lambda: cluster.why_pending(fails), "the scheduler has tried")
    assert "no such key: nvlink" in why
    (fits,) = cluster.place(be(selector='device.attributes["orion.gpu"].?nvlink.orValue(-1) == 0'))
    assert cluster.placed()[fits][0][1] == gpu(1).uuid.lower()
