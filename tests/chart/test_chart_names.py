"""Names and labels of all objects, and the pods that their selectors match."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from testbed import helm
from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import EVERYTHING, Object

OURS = {"name": "orion", "instance": "orion", "part-of": "orion", "managed-by": "Helm"}


@pytest.mark.parametrize("values", [{}, {"simulatedGPUs": 2}, EVERYTHING], ids=["real", "simulated", "everything"])
def test_lint_finds_nothing(values: dict[str, Any]) -> None:
    said = helm.run("lint", "--strict", str(helm.CHART), "--values", "-", given=yaml.safe_dump(values))
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


def test_every_object_has_the_common_labels(everything: list[Object]) -> None:
    for each in everything:
        labels = each["metadata"]["labels"]
        assert {key: labels[f"app.kubernetes.io/{key}"] for key in OURS} == OURS
        assert labels["app.kubernetes.io/version"]
        assert labels["helm.sh/chart"].startswith("orion-")


def test_labels_and_annotations_of_the_installation_are_on_every_object() -> None:
    for each in chart.objects(EVERYTHING | {"commonLabels": {"team": "a"}, "commonAnnotations": {"note": "b"}}):
        assert each["metadata"]["labels"]["team"] == "a", each["metadata"]["name"]
        assert each["metadata"]["annotations"]["note"] == "b", each["metadata"]["name"]


def test_labels_of_one_object_win_over_those_of_the_installation() -> None:
    """Prometheus and Grafana choose objects by such labels."""
    one, all_ = {"release": "own"}, {"release": "all"}
    own = {
        "monitoring": {
            "serviceMonitor": {"enabled": True, "labels": one},
            "dashboard": {"enabled": True, "labels": one},
        },
        "operator": {"podLabels": one},
    }
    found = chart.objects(EVERYTHING | own | {"commonLabels": all_})
    for kind, name in (("ServiceMonitor", "orion"), ("ConfigMap", "orion-dashboard")):
        assert chart.one(found, kind, name)["metadata"]["labels"]["release"] == "own"
    pods = chart.one(found, "Deployment", "orion-operator")["spec"]["template"]["metadata"]["labels"]
    assert (pods["release"], pods["app.kubernetes.io/component"]) == ("own", "operator")
    assert chart.one(found, "Deployment", "orion-webhook")["metadata"]["labels"]["release"] == "all"


def test_no_object_is_made_twice(everything: list[Object]) -> None:
    named = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in everything]
    assert len(set(named)) == len(named)


def test_every_object_is_in_the_releases_namespace_or_in_none(everything: list[Object]) -> None:
    assert {each["metadata"].get("namespace", chart.NAMESPACE) for each in everything} == {chart.NAMESPACE}


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("orion", {}, "orion"),
        ("gpus", {}, "gpus-orion"),
        ("my-orion", {}, "my-orion"),
        ("gpus", {"nameOverride": "share"}, "gpus-share"),
        ("gpus", {"fullnameOverride": "shared-gpus"}, "shared-gpus"),
        ("orion.prod", {}, "orion-prod"),
        ("gpus.prod", {}, "gpus-prod-orion"),
        ("1", {"fullnameOverride": "first"}, "first"),
    ],
)
def test_all_names_begin_with_the_name_of_the_release(release: str, values: dict[str, Any], name: str) -> None:
    found = chart.objects(EVERYTHING | values, release)
    for each in found:
        if each["kind"] not in ("CustomResourceDefinition", "DeviceClass"):  # pods and claims contain these names
            assert each["metadata"]["name"] == name or each["metadata"]["name"].startswith(f"{name}-")
    (webhook,) = chart.one(found, "MutatingWebhookConfiguration", name)["webhooks"]
    service = webhook["clientConfig"]["service"]
    assert (service["name"], service["namespace"]) == (f"{name}-webhook", chart.NAMESPACE)
    assert service["name"] in chart.of_kind(found, "Service")
    arguments = chart.container(found, f"{name}-operator/operator")["args"]
    assert {
        f"--lease-name={name}-operator",
        f"--webhook-service={name}-webhook",
        f"--webhook-secret={name}-webhook-certificate",
        f"--webhook-configuration={name}",
    } <= set(arguments)
    for binding in chart.of_kind(found, "ValidatingAdmissionPolicyBinding").values():
        assert binding["spec"]["policyName"] in chart.of_kind(found, "ValidatingAdmissionPolicy")


def test_a_long_release_name_is_shortened_to_fit_labels() -> None:
    for each in chart.objects(EVERYTHING, "o" * 53):
        assert each["kind"] == "CustomResourceDefinition" or len(each["metadata"]["name"]) <= 80
        assert all(len(text) <= 63 for text in each["metadata"]["labels"].values())


TEXTS = ("name", "namespace", "serviceAccountName", "priorityClassName", "runtimeClassName", "secretName")
MAPS_OF_TEXTS = ("labels", "annotations", "matchLabels", "nodeSelector")


def other_than_text(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of names and labels that are numbers or booleans."""
    if isinstance(value, dict):
        for key, inner in value.items():
            texts = {key: inner} if key in TEXTS else inner if key in MAPS_OF_TEXTS and isinstance(inner, dict) else {}
            yield from (f"{path}.{name}: {text!r}" for name, text in texts.items() if not isinstance(text, str))
            yield from other_than_text(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from other_than_text(inner, f"{path}[{index}]")


@pytest.mark.parametrize(("word", "full"), [("no", "no"), ("123", "orion")])
def test_names_that_yaml_reads_as_other_types_stay_names(word: str, full: str) -> None:
    values = EVERYTHING | {
        "crds": {"install": False},
        "fullnameOverride": full,
        "nameOverride": word,
        "node": {"runtimeClassName": word, "priorityClassName": word, "serviceAccount": {"name": word}},
        "operator": {"priorityClassName": word, "serviceAccount": {"create": False, "name": word}},
        "certificates": {"source": "given", "given": {"secretName": word, "caBundle": chart.PEM}},
    }
    made = yaml.safe_load_all(chart.text(values, word, "--namespace", word))
    assert [place for each in made if each for place in other_than_text(each, each["kind"])] == []


def test_selectors_contain_only_constant_labels(everything: list[Object]) -> None:
    for kind in ("Deployment", "DaemonSet"):
        for made in chart.of_kind(everything, kind).values():
            selector = made["spec"]["selector"]["matchLabels"]
            assert set(selector) == {f"app.kubernetes.io/{key}" for key in ("name", "instance", "component")}
            assert selector.items() <= made["spec"]["template"]["metadata"]["labels"].items()


def test_another_version_of_the_chart_replaces_no_pod_by_its_labels(everything: list[Object]) -> None:
    for kind in ("Deployment", "DaemonSet"):
        for made in chart.of_kind(everything, kind).values():
            labels = made["spec"]["template"]["metadata"]["labels"]
            assert not {"helm.sh/chart", "app.kubernetes.io/version"} & labels.keys()


def test_every_service_budget_and_network_policy_selects_pods(everything: list[Object]) -> None:
    pods = [
        made["spec"]["template"]["metadata"]["labels"]
        for kind in ("Deployment", "DaemonSet", "Job")
        for made in chart.of_kind(everything, kind).values()
    ]
    selectors = [each["spec"]["selector"] for each in chart.of_kind(everything, "Service").values()]
    selectors += [
        each["spec"]["selector"]["matchLabels"] for each in chart.of_kind(everything, "PodDisruptionBudget").values()
    ]
    selectors += [
        each["spec"]["podSelector"]["matchLabels"] for each in chart.of_kind(everything, "NetworkPolicy").values()
    ]
    assert len(selectors) == 3 + 2 + 7
    for selector in selectors:
        assert any(selector.items() <= labels.items() for labels in pods)
