"""Each value of the chart has a comment, and a change of any value changes the rendering."""

import re
from typing import Any

import pytest

from tests.chart import rendered_chart as chart
from tests.chart.chart_values import DRA, LEAVES, MPS, VALUES, set_at

SIMULATED = {"simulatedGPUs": 1}
SERVICE_MONITOR: dict[str, Any] = {
    "monitoring": {"serviceMonitor": {"enabled": True}},
    "networkPolicy": {"metricsFrom": [{"podSelector": {}}]},
}
CERT_MANAGER = {"certificates": {"source": "cert-manager"}}
GIVEN = {
    "certificates": {"source": "given", "given": {"secretName": "mine", "caBundle": "-----BEGIN CERTIFICATE-----\nx"}}
}


CHANGED: dict[str, Any] = {
    "allocation": "dra",
    "commonLabels": {"team": "a"},
    "commonAnnotations": {"note": "a"},
    "ceilings.defaults": {"orion/max-priority": "be"},
    "image.digest": "sha256:" + "0" * 64,
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "login"}],
    "nodeConfiguration.gpus": ["0"],
    "nodeConfiguration.slotsByGPU": [{"gpu": "0", "be": 1}],
    "nodeConfiguration.deviceListStrategy": "cdi-cri",
    "nodeConfiguration.driverRoot": "/run/nvidia/driver",
    "nodeConfiguration.preload": "file",
    "nodeConfiguration.onNoAgent": "hold",
    "nodeConfiguration.nodes": [{"matchLabels": {"pool": "a"}, "gpus": []}],
    "certificates.source": "cert-manager",
    "certificates.certManager.issuerRef": {"kind": "ClusterIssuer", "name": "own"},
    "certificates.given.caBundle": "-----BEGIN CERTIFICATE-----\ny",
    "operator.namespaces": ["a"],
    "webhook.gpuTaints": ["gpu"],
    "webhook.byNodeDefault": "dra",
    "webhook.apiServerCIDRs": ["10.0.0.1/32"],
    "webhook.failurePolicy": "Ignore",
    "webhook.logLevel": "debug",
    "node.nodeSelector": {"a": "b"},
    "node.tolerations": [],
    "node.gpuAccess": "privileged",
    "node.seLinuxOptions": {"type": "spc_t"},
    "node.maxUnavailable": 3,
    "node.agent.policy.name": "gate",
    "mps.securityContext": {"capabilities": {"add": ["KILL"]}},
    "mps.refreshMilliseconds": 40,
    "node.agent.metricsPort": 1234,
    "networkPolicy.webhookFrom": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
    "networkPolicy.metricsFrom": [{"podSelector": {}}],
    "networkPolicy.apiServerCIDRs": ["10.0.0.1/32"],
    "networkPolicy.apiServerPorts": [8443],
    "monitoring.serviceMonitor.labels": {"a": "b"},
    "monitoring.dashboard.labels": {"a": "b"},
}
""" A changed value, by the path of each value from which `another` cannot derive one. """

BESIDE: dict[str, dict[str, Any]] = {
    **{
        f"{name}.podDisruptionBudget.maxUnavailable": {name: {"podDisruptionBudget": {"enabled": True}}}
        for name in ("operator", "webhook")
    },
    "certificates.certManager": CERT_MANAGER,
    "certificates.given": GIVEN,
    "node.nvml": {"node": {"gpuAccess": "privileged"}},
    "node.simulatedState": SIMULATED,
    "mps": MPS,
    "draDriver": DRA,
    "webhook.gpuTaints": DRA,
    "spreadOverGPUs": DRA,
    "uninstall.claimsSeconds": DRA,
    "webhook.byNodeDefault": {"allocation": "by-node"},
    "networkPolicy.apiServerPorts": {"networkPolicy": {"apiServerCIDRs": ["10.0.0.1/32"]}},
    "monitoring.serviceMonitor": SERVICE_MONITOR,
    "monitoring.dashboard": {"monitoring": {"dashboard": {"enabled": True}}},
}
""" The other values that a value needs in order to have an effect, by the beginning of its path. """


def another(path: str, value: Any) -> Any:
    """Return a value that differs from the default."""
    key = path.rpartition(".")[2]
    by_key = {
        "podAnnotations": {"a": "b"},
        "podLabels": {"a": "b"},
        "annotations": {"a": "b"},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
        ],
        "resources": {"limits": {"memory": "3Gi"}},
        "extraEnv": [{"name": "A", "value": "b"}],
        "extraArgs": ["--more"],
        "interval": "7s",
        "duration": "99h",
        "renewBefore": "9h",
    }
    if path in CHANGED:
        return CHANGED[path]
    if key in by_key:
        return by_key[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if not path.endswith("policy.request") else 0.75
    if isinstance(value, str):
        return f"{value}x" if value not in ("", "/") else "other"
    raise AssertionError(f"name another value of {path} in CHANGED")


@pytest.mark.parametrize("path", LEAVES)
def test_each_value_changes_the_rendering(path: str) -> None:
    beside = next((values for begin, values in BESIDE.items() if f"{path}.".startswith(f"{begin}.")), {})
    if path == "mps.enabled" or path.endswith((".serviceMonitor.enabled", ".dashboard.enabled")):
        beside = SERVICE_MONITOR if "serviceMonitor" in path else {}
        assert chart.text(set_at(beside, path, True)) != chart.text(set_at(beside, path, False))
        return
    if path == "crds.keep":
        assert "helm.sh/resource-policy" not in chart.text(set_at({}, path, False))
        return
    changed = set_at(beside, path, another(path, LEAVES[path]))
    assert chart.text(changed) != chart.text(beside)


def test_every_key_has_a_comment() -> None:
    lines = VALUES.splitlines()
    bare = [
        line.strip()
        for before, line in zip(["", *lines], lines, strict=False)
        if re.match(r"\s*[A-Za-z]+:( |$)", line) and not before.strip().startswith("#")
    ]
    # Keys of a map that counts as one value: the map's comment describes them.
    assert [line for line in bare if not line.startswith(("requests:", "limits:", "capabilities:", "drop:", "add:",
        "allowPrivilegeEscalation:", "readOnlyRootFilesystem:"))] == []  # fmt: skip
