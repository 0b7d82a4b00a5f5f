"""The Job of an uninstall: when it runs, how long it may take, and that none of its objects stays."""

from typing import Any

import pytest

from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import EVERYTHING, Object

pytestmark = pytest.mark.timeout(900)  # the first one builds Helm where it is not


def hooks(found: list[Object], moment: str) -> dict[tuple[str, str], Object]:
    """Return the annotations of hooks of a moment, by kind and name."""
    marked = {(each["kind"], each["metadata"]["name"]): each["metadata"].get("annotations", {}) for each in found}
    return {place: marks for place, marks in marked.items() if marks.get("helm.sh/hook") == moment}


def test_it_comes_with_its_own_rights_when_all_else_has_gone(everything: list[Object]) -> None:
    found = hooks(everything, "post-delete")
    kinds = {"Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "NetworkPolicy"}
    assert found.keys() == {(kind, "orion-cleanup") for kind in kinds}
    weights = {kind: int(marks["helm.sh/hook-weight"]) for (kind, _), marks in found.items()}
    assert all(weight < weights["Job"] for kind, weight in weights.items() if kind != "Job")


def test_none_of_it_stays_whatever_becomes_of_it(everything: list[Object]) -> None:
    for marks in hooks(everything, "post-delete").values():
        policies = set(marks["helm.sh/hook-delete-policy"].split(","))
        assert policies == {"before-hook-creation", "hook-succeeded", "hook-failed"}


def test_nothing_else_has_its_name_or_its_component(everything: list[Object]) -> None:
    places = hooks(everything, "post-delete").keys()
    for each in everything:
        place = (each["kind"], each["metadata"]["name"])
        assert (place in places) is (each["metadata"]["labels"].get("app.kubernetes.io/component") == "cleanup"), place


def test_it_ends_in_time_and_shows_why_it_failed() -> None:
    job = chart.one(chart.objects({"uninstall": {"deadlineSeconds": 17}}), "Job", "orion-cleanup")
    assert job["spec"]["activeDeadlineSeconds"] == 17
    assert job["spec"]["ttlSecondsAfterFinished"] > 0  # Helm may have been cut off
    assert job["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-failed"
    pod = job["spec"]["template"]["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 1)


def test_it_runs_where_the_operator_ran() -> None:
    placed: dict[str, Any] = {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "mine",
    }
    found = chart.pod_specs(chart.objects({"operator": placed, "imagePullSecrets": [{"name": "login"}]}))
    same = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "imagePullSecrets", "securityContext")
    for field in same:
        assert found["orion-cleanup"][field] == found["orion-operator"][field], field


def test_it_deletes_what_the_releases_own_test_has_left() -> None:
    found = chart.objects({"webhook": {"requireShare": True}}, "gpus")
    (left,) = hooks(found, "test").keys() - {("GPUShare", "gpus-orion-test-slot")}
    assert f"--test={chart.NAMESPACE}/{left[1]}" in chart.container(found, "gpus-orion-cleanup/cleanup")["args"]
    rules = chart.one(found, "Role", "gpus-orion-cleanup")["rules"]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in rules] == [
        (["pods"], [left[1]], ["delete"]),
        (["gpushares"], [left[1]], ["delete"]),
    ]


def test_it_can_be_left_out() -> None:
    found = chart.objects(EVERYTHING | {"uninstall": {"cleanup": False}})
    assert hooks(found, "post-delete") == {}
    assert [each["metadata"]["name"] for each in found if "cleanup" in each["metadata"]["name"]] == []
