"""A tenant who creates too many pods and GPUShares in one namespace does not disturb the other tenants."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kubernetes import client

from tests.cluster.admitted_pods import pod, refusal, share
from tests.cluster.refusals import refusal as said
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

SHARES = 400
LONG_SECONDS = 10.0
""" Ten times what a busy machine takes to admit a pod with an excess. """
SOON_SECONDS = 2.0
""" Ten times what a busy machine takes to admit a pod without the excess. """
GROUP = {"group": "orion.gpu", "version": "v1alpha1", "plural": "gpushares"}
ANNOTATIONS_BYTES = 250 * 1024  # the API server's limit is 256 KiB
LONGEST_NAME = 253
LONGEST_SENTENCE = 4096


def many(count: int) -> dict[str, str]:
    return {f"a{number}": "" for number in range(count)}


def report(core: client.CoreV1Api, namespace: str, name: str) -> str:
    """Write a pod's status as a kubelet does; return the error, if any."""
    condition = {"type": "Ready", "status": "False", "reason": str(time.monotonic_ns())}
    return said(core.patch_namespaced_pod_status, name, namespace, {"status": {"conditions": [condition]}})


EXCESSES: dict[str, dict[str, Any]] = {
    "one huge annotation": pod("huge", "be", annotations={"a": "x" * ANNOTATIONS_BYTES}),
    "a huge mark": pod("mark", annotations={"orion/priority": "x" * ANNOTATIONS_BYTES}),
    "a huge share": pod("share", annotations={"orion/priority": "be", "orion/share": "é" * (ANNOTATIONS_BYTES // 2)}),
    "a thousand annotations": pod("many", "be", annotations=many(1000), labels=many(1000)),
    "as many annotations as there may be": pod("most", annotations=many(40_000)),
    "the longest name": pod("n" * LONGEST_NAME, "be"),
    "unicode": pod("unicode", annotations={"orion/priority": "be", "orion/containers": "mαin,\u202e\u0000x"}),
}


@pytest.mark.parametrize("case", EXCESSES)
def test_an_excess_is_admitted_or_refused_with_a_sentence(api: client.ApiClient, admitted: str, case: str) -> None:
    core, made, began = client.CoreV1Api(api), EXCESSES[case], time.monotonic()
    sentence = refusal(api, admitted, made)
    assert time.monotonic() - began < LONG_SECONDS
    assert "error of the webhook" not in sentence
    assert len(sentence) < LONGEST_SENTENCE
    if not sentence:
        core.create_namespaced_pod(admitted, made)
        assert report(core, admitted, made["metadata"]["name"]) == ""
        core.delete_namespaced_pod(made["metadata"]["name"], admitted, grace_period_seconds=0)
    assert refusal(api, admitted, pod("other", "be")) == ""


def test_thousands_of_shares_only_affect_their_own_namespace(api: client.ApiClient, admitted: str) -> None:
    objects = client.CustomObjectsApi(api)

    def create(number: int) -> None:
        selector = {"matchLabels": {"app": f"a{number}"}} if number else {}
        made = share(f"s{number}", "be", selector=selector)
        objects.create_namespaced_custom_object(**GROUP, namespace=admitted, body=made)

    with ThreadPoolExecutor(8) as crowd:
        list(crowd.map(create, range(1, SHARES)))
    took = []

    def known() -> bool:
        began = time.monotonic()
        answer = refusal(api, admitted, pod("one", "be", annotations={"orion/share": f"s{SHARES - 1}"}))
        took.append(time.monotonic() - began)
        return "does not govern" in answer

    eventually(known, "the last share is known, and that it is beyond the bound")
    assert min(took) < SOON_SECONDS
    objects.delete_collection_namespaced_custom_object(**GROUP, namespace=admitted)
