"""Checks the pod that `helm test` runs: which slot it requests, and whether the chart creates a GPUShare for it."""

from typing import Any

import pytest

from orion.crds.share import GPUShare
from tests.chart import rendered_chart as chart


@pytest.mark.parametrize(
    ("slots", "priority"), [({}, "be"), ({"be": 0}, "hp"), ({"hp": 0}, "be"), ({"hp": 4, "be": 1}, "be")]
)
def test_the_helm_test_requests_an_existing_slot(slots: dict[str, int], priority: str) -> None:
    pod = chart.one(chart.objects({"nodeConfiguration": {"slots": slots}}), "Pod", "orion-test-slot")
    assert pod["metadata"]["annotations"]["orion/priority"] == priority
    assert f"orion.gpu/{priority}" in pod["spec"]["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize(
    ("by_gpu", "priority"), [([{"gpu": "0", "hp": 1}], "hp"), ([{"gpu": "0", "hp": 1}, {"gpu": "1", "be": 2}], "be")]
)
def test_the_helm_test_requests_a_slot_that_some_gpu_has(by_gpu: list[dict[str, Any]], priority: str) -> None:
    configuration = {"slots": {"hp": 0, "be": 0}, "slotsByGPU": by_gpu}
    pod = chart.one(chart.objects({"nodeConfiguration": configuration}), "Pod", "orion-test-slot")
    assert pod["metadata"]["annotations"]["orion/priority"] == priority


def test_helm_finds_a_pod_with_logs_for_every_test_hook() -> None:
    """At its end, `helm test --logs` reads for each test hook the logs of a pod with the hook's name.

    The GPUShare is such a hook too. So it has the pod's name, and Helm deletes both only before the next test.
    """
    found = chart.objects({"webhook": {"requireShare": True}})
    for kind in ("Pod", "GPUShare"):
        ((name, hook),) = chart.of_kind(found, kind).items()
        assert name in chart.of_kind(found, "Pod")
        assert hook["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"


def test_the_helm_test_creates_a_share_if_every_pod_needs_one() -> None:
    assert not chart.of_kind(chart.objects(), "GPUShare")
    values = {"webhook": {"requireShare": True}, "nodeConfiguration": {"slots": {"be": 0}}}
    found = chart.objects(values)
    ((name, share),) = chart.of_kind(found, "GPUShare").items()
    pod = chart.one(found, "Pod", "orion-test-slot")["metadata"]
    hooks = share["metadata"]["annotations"]
    assert pod["annotations"]["orion/share"] == name
    assert share["metadata"]["namespace"] == pod["namespace"]
    assert GPUShare.read(share, "GPUShare").spec.priority == pod["annotations"]["orion/priority"] == "hp"
    assert int(hooks["helm.sh/hook-weight"]) < int(pod["annotations"].get("helm.sh/hook-weight", 0))
    for name in ("helm.sh/hook", "helm.sh/hook-delete-policy"):
        assert hooks[name] == pod["annotations"][name]
    assert not chart.of_kind(chart.objects(values | {"tests": {"enabled": False}}), "GPUShare")
