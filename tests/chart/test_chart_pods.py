"""Rules for every pod: its image, scheduling, values, probes and limits."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from orion.crds.annotations import STARTUP_TAINT
from testbed import helm
from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import EVERYTHING, Object

COMPONENTS = {
    "orion-operator": "operator",
    "orion-webhook": "webhook",
    "orion-node": "node",
    "orion-mps": "mps",
    "orion-dra-driver": "draDriver",
}
""" The values of each Deployment and DaemonSet. """
WORKLOADS = (*COMPONENTS, "orion-test-slot", "orion-cleanup", "orion-await-claims")
DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ({}, "orion-gpu/orion:0.1.0"),
        ({"tag": "dev"}, "orion-gpu/orion:dev"),
        ({"registry": "localhost/", "repository": "orion", "tag": "dev"}, "localhost/orion:dev"),
        ({"registry": "registry.example.com:5000"}, "registry.example.com:5000/orion-gpu/orion:0.1.0"),
        ({"tag": "dev", "digest": DIGEST}, f"orion-gpu/orion@{DIGEST}"),
    ],
)
def test_every_container_runs_the_one_image(image: dict[str, str], name: str) -> None:
    values = EVERYTHING | {"image": {**image, "pullPolicy": "Never"}, "imagePullSecrets": [{"name": "login"}]}
    found = chart.objects(values)
    for _, container in chart.containers(found):
        assert (container["image"], container["imagePullPolicy"]) == (name, "Never")
    for spec in chart.pod_specs(found).values():
        assert spec["imagePullSecrets"] == [{"name": "login"}]


def test_the_app_version_of_the_chart_is_the_version_of_the_package() -> None:
    chart_file = yaml.safe_load((helm.CHART / "Chart.yaml").read_text())
    version = re.search(r'(?m)^version = "(.*)"$', Path(helm.CHART, "../../pyproject.toml").read_text())
    assert version is not None
    assert chart_file["appVersion"] == version[1]


def test_all_pods_are_listed_here(everything: list[Object]) -> None:
    assert set(chart.pod_specs(everything)) == set(WORKLOADS)


@pytest.mark.parametrize("workload", COMPONENTS)
def test_every_component_uses_its_own_values(workload: str) -> None:
    component = COMPONENTS[workload]
    own: dict[str, Any] = {
        "podLabels": {"a": "b"},
        "podAnnotations": {"c": "d"},
        "priorityClassName": "mine",
        "terminationGracePeriodSeconds": 7,
    }
    placement = {"tolerations": [{"key": "k", "operator": "Exists"}], "affinity": {"nodeAffinity": {}}}
    placed = "node" if component in ("mps", "draDriver") else component
    values: dict[str, Any] = {"mps": {"enabled": True}, "allocation": "dra"}
    values[component] = values.get(component, {}) | own
    values[placed] = values.get(placed, {}) | placement
    found = chart.objects(values)
    (template,) = [
        each["spec"]["template"]
        for each in found
        if each["kind"] in ("Deployment", "DaemonSet") and each["metadata"]["name"] == workload
    ]
    assert template["metadata"]["labels"]["a"] == "b"
    assert template["metadata"]["annotations"]["c"] == "d"
    spec = template["spec"]
    assert (spec["priorityClassName"], spec["terminationGracePeriodSeconds"]) == ("mine", 7)
    always = [{"key": STARTUP_TAINT, "operator": "Exists"}] if placed == "node" else []
    assert (spec["tolerations"], spec["affinity"]) == ([*always, *placement["tolerations"]], placement["affinity"])


def test_a_drain_of_the_only_schedulable_node_ends() -> None:
    """An eviction needs a replacement of the pod, but the only node that could run it is the drained node."""
    assert not chart.of_kind(chart.objects(), "PodDisruptionBudget")


@pytest.mark.parametrize("name", ["operator", "webhook"])
def test_replicas_are_spread_and_drains_leave_one_on_request(name: str) -> None:
    budgeted = {"podDisruptionBudget": {"enabled": True}}
    found = chart.objects({name: budgeted})
    (spread,) = chart.pod_specs(found)[f"orion-{name}"]["topologySpreadConstraints"]
    selector = chart.one(found, "Deployment", f"orion-{name}")["spec"]["selector"]
    assert spread["labelSelector"] == selector
    budget = chart.one(found, "PodDisruptionBudget", f"orion-{name}")
    assert budget["spec"]["selector"] == selector
    alone = chart.objects({name: {**budgeted, "replicas": 1}})
    assert f"orion-{name}" not in chart.of_kind(
        alone, "PodDisruptionBudget"
    )  # for a single replica, a PodDisruptionBudget would block every drain


def test_runtime_classes_of_the_nodes_pods_and_of_tenants() -> None:
    values = {"mps": {"enabled": True}, "node": {"runtimeClassName": "a"}, "webhook": {"runtimeClassName": "b"}}
    found = chart.objects(values)
    for name, spec in chart.pod_specs(found).items():
        assert spec.get("runtimeClassName") == ("a" if name in ("orion-node", "orion-mps") else None)
    assert "--runtime-class=b" in chart.container(found, "orion-webhook/webhook")["args"]


def test_an_upgrade_never_ends_an_mps_daemon() -> None:
    mps = chart.one(chart.objects({"mps": {"enabled": True}}), "DaemonSet", "orion-mps")["spec"]
    assert mps["updateStrategy"] == {"type": "OnDelete"}
    (container,) = mps["template"]["spec"]["containers"]
    assert not {"livenessProbe", "readinessProbe", "startupProbe"} & container.keys()
    assert "limits" not in container["resources"]


def test_every_other_long_running_container_has_probes_and_limits(everything: list[Object]) -> None:
    for name, container in chart.containers(everything):
        if name.startswith(("orion-mps", "orion-test", "orion-cleanup", "orion-await-claims")):
            continue
        assert {"livenessProbe", "readinessProbe", "startupProbe"} <= container.keys(), name
        assert "memory" in container["resources"]["limits"], name
        ports = {each["name"] for each in container["ports"]}
        assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports, name
