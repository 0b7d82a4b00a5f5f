"""The chart rejects installations that cannot work; other tests cover rejections that depend on the cluster."""

from typing import Any

import pytest

from testbed import helm
from testbed.errors import Failed
from tests.chart import rendered_chart as chart

ANNOTATIONS = {"deviceListStrategy": "cdi-annotations"}
MONITORED = {"monitoring": {"serviceMonitor": {"enabled": True}}}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"certificates": {"source": "given"}}, "needs certificates.given.secretName"),
        ({"certificates": {"source": "given", "given": {"secretName": "mine"}}}, "certificates.given.caBundle"),
        ({"webhook": {"healthPort": 9443}}, "webhook.port and webhook.healthPort are the same"),
        ({"operator": {"nodePodsPort": 8080}}, "operator.port and operator.nodePodsPort are the same"),
        ({"node": {"agent": {"metricsPort": 9436}}}, "node.devicePlugin.metricsPort are the same"),
        ({"nodeConfiguration": {"slots": {"hp": 0, "be": 0}}}, "neither hp nor be slots"),
        ({"webhook": {"leaveSeconds": 110}}, "webhook.leaveSeconds must be less"),
        ({"allocation": "dra", "nodeConfiguration": ANNOTATIONS}, "Set cdi-cri"),
        (
            {"allocation": "dra", "nodeConfiguration": {"nodes": [{"matchLabels": {"pool": "a"}, **ANNOTATIONS}]}},
            "Set cdi-cri",
        ),
        (
            {
                "allocation": "dra",
                "nodeConfiguration": {**ANNOTATIONS, "nodes": [{"matchLabels": {"pool": "a"}, "slots": {"be": 4}}]},
            },
            "Set cdi-cri",
        ),
        (
            {
                "allocation": "dra",
                "nodeConfiguration": {
                    **ANNOTATIONS,
                    "nodes": [{"matchLabels": {"pool": "a"}, "deviceListStrategy": "cdi-cri"}],
                },
            },
            "Set cdi-cri",
        ),
        (MONITORED, "name your Prometheus in networkPolicy.metricsFrom"),
        (
            {
                "mps": {"enabled": True},
                "node": {"gpuAccess": "privileged"},
                "nodeConfiguration": {"driverRoot": "/run/nvidia/driver"},
            },
            "has to be installed on the node itself",
        ),
        (
            {
                "mps": {"enabled": True},
                "node": {"gpuAccess": "privileged"},
                "nodeConfiguration": {"nodes": [{"matchLabels": {"pool": "a"}, "driverRoot": "/run/nvidia/driver"}]},
            },
            "has to be installed on the node itself",
        ),
    ],
)
def test_values_that_cannot_work_are_rejected_with_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Failed, match="This installation cannot work") as refused:
        chart.text(values)
    assert sentence in str(refused.value)


def test_an_invalid_service_name_is_rejected() -> None:
    with pytest.raises(Failed, match=r'names would begin with "1orion"'):
        chart.text({}, "1orion")


@pytest.mark.parametrize(
    "values",
    [
        MONITORED | {"networkPolicy": {"enabled": False}},
        {"allocation": "by-node", "nodeConfiguration": ANNOTATIONS},
        {"nodeConfiguration": {"slots": {"hp": 0, "be": 0}, "slotsByGPU": [{"gpu": "0", "be": 1}]}},
        {"mps": {"enabled": True}, "simulatedGPUs": 1, "nodeConfiguration": {"driverRoot": "/run/nvidia/driver"}},
    ],
)
def test_similar_values_that_work_are_rendered(values: dict[str, Any]) -> None:
    assert chart.objects(values)


def test_claims_need_a_kubernetes_that_knows_shared_devices() -> None:
    command = ["template", "orion", str(helm.CHART), "--set", "allocation=dra", "--kube-version"]
    with pytest.raises(Failed, match=r"allocation=dra needs Kubernetes 1\.36, and this cluster is v1\.35\.9"):
        helm.run(*command, "1.35.9")
    assert helm.run(*command, "1.36.0")


def test_an_older_kubernetes_is_refused() -> None:
    with pytest.raises(Failed, match=r"requires kubeVersion: >=1\.32"):
        helm.run("template", "orion", str(helm.CHART), "--kube-version", "1.31.4")
