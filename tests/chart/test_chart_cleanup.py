"""The Job of an uninstall: when it runs, how long it may take, and that all of its objects are deleted."""

from typing import Any

from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import EVERYTHING, Object


def hooks(found: list[Object], moment: str) -> dict[tuple[str, str], Object]:
    """Return the annotations of the Helm hooks of an event, by kind and name."""
    marked = {(each["kind"], each["metadata"]["name"]): each["metadata"].get("annotations", {}) for each in found}
    return {place: marks for place, marks in marked.items() if marks.get("helm.sh/hook") == moment}


def test_the_job_has_its_own_rights_and_runs_last(everything: list[Object]) -> None:
    found = hooks(everything, "post-delete")
    kinds = {"Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "NetworkPolicy"}
    policies = {f"ValidatingAdmissionPolicy{half}" for half in ("", "Binding")}
    named = {(kind, "orion-cleanup") for kind in kinds} | {(kind, "orion-cleanup-labels-nodes") for kind in policies}
    assert found.keys() == named
    weights = {kind: int(marks["helm.sh/hook-weight"]) for (kind, _), marks in found.items()}
    assert {kind for kind, weight in weights.items() if weight == -2} == policies
    assert {kind for kind, weight in weights.items() if weight == 0} == {"Job"}


def test_a_copy_of_the_operators_policy_restricts_the_jobs_account_to_labels_of_nodes() -> None:
    for release, named in (("orion", "orion"), ("gpus", "gpus-orion")):
        found = chart.objects(release=release)
        policy, operators = (
            chart.one(found, "ValidatingAdmissionPolicy", f"{named}-{whose}-labels-nodes")["spec"]
            for whose in ("cleanup", "operator")
        )
        account = f"system:serviceaccount:{chart.NAMESPACE}:{named}-cleanup"
        (whom,) = policy.pop("matchConditions")
        assert whom["expression"] == f"request.userInfo.username == '{account}'"
        assert policy == {name: value for name, value in operators.items() if name != "matchConditions"}
        binding = chart.one(found, "ValidatingAdmissionPolicyBinding", f"{named}-cleanup-labels-nodes")["spec"]
        assert binding == {"policyName": f"{named}-cleanup-labels-nodes", "validationActions": ["Deny"]}


def test_helm_deletes_every_object_after_the_job_succeeds_or_fails(everything: list[Object]) -> None:
    for marks in hooks(everything, "post-delete").values():
        policies = set(marks["helm.sh/hook-delete-policy"].split(","))
        assert policies == {"before-hook-creation", "hook-succeeded", "hook-failed"}


def test_only_objects_of_the_cleanup_have_its_component(everything: list[Object]) -> None:
    places = hooks(everything, "post-delete").keys()
    for each in everything:
        place = (each["kind"], each["metadata"]["name"])
        assert (place in places) is (each["metadata"]["labels"].get("app.kubernetes.io/component") == "cleanup"), place


def test_the_job_ends_in_time_and_shows_why_it_failed() -> None:
    job = chart.one(chart.objects({"uninstall": {"deadlineSeconds": 17}}), "Job", "orion-cleanup")
    assert job["spec"]["activeDeadlineSeconds"] == 17
    assert job["spec"]["ttlSecondsAfterFinished"] > 0  # Helm may have lost its connection
    assert job["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-failed"
    pod = job["spec"]["template"]["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 1)


def test_the_job_runs_on_the_operators_nodes() -> None:
    placed: dict[str, Any] = {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "mine",
        "podLabels": {"sidecar.istio.io/inject": "false"},
        "podAnnotations": {"c": "d"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": ""}],
    }
    objects = chart.objects({"operator": placed, "imagePullSecrets": [{"name": "login"}]})
    found = chart.pod_specs(objects)
    same = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "imagePullSecrets", "securityContext")
    for field in same:
        assert found["orion-cleanup"][field] == found["orion-operator"][field], field
    meta = chart.one(objects, "Job", "orion-cleanup")["spec"]["template"]["metadata"]
    assert meta["labels"].items() >= placed["podLabels"].items()
    assert meta["labels"]["app.kubernetes.io/component"] == "cleanup"
    assert meta["annotations"] == placed["podAnnotations"]
    assert found["orion-cleanup"]["containers"][0]["env"] == placed["extraEnv"]


def test_the_job_deletes_the_remains_of_the_helm_test() -> None:
    found = chart.objects({"webhook": {"requireShare": True}}, "gpus")
    (left,) = hooks(found, "test").keys() - {("GPUShare", "gpus-orion-test-slot")}
    assert f"--test={chart.NAMESPACE}/{left[1]}" in chart.container(found, "gpus-orion-cleanup/cleanup")["args"]
    rules = chart.one(found, "Role", "gpus-orion-cleanup")["rules"]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in rules] == [
        (["pods"], [left[1]], ["delete"]),
        (["gpushares"], [left[1]], ["delete"]),
    ]


def test_a_job_waits_for_claims_before_anything_is_removed() -> None:
    kinds = {"Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy"}
    for allocation in ("dra", "by-node"):
        found = hooks(chart.objects({"allocation": allocation}), "pre-delete")
        assert found.keys() == {(kind, "orion-await-claims") for kind in kinds}
        weights = {kind: marks["helm.sh/hook-weight"] for (kind, _), marks in found.items()}
        assert weights == dict.fromkeys(kinds, "-1") | {"Job": "0"}
        shown = found["Job", "orion-await-claims"]["helm.sh/hook-output-log-policy"]
        assert shown == "hook-failed"
    for values in ({}, {"allocation": "dra", "uninstall": {"claimsSeconds": 0}}):
        assert hooks(chart.objects(values), "pre-delete") == {}


def test_the_wait_for_claims_is_bounded() -> None:
    values = {"allocation": "dra", "uninstall": {"claimsSeconds": 17}}
    job = chart.one(chart.objects(values), "Job", "orion-await-claims")["spec"]
    assert (job["activeDeadlineSeconds"], job["backoffLimit"]) == (17 + 30, 0)
    (container,) = job["template"]["spec"]["containers"]
    assert container["args"] == ["await-claims", "--seconds=17"]


def test_the_job_can_be_left_out() -> None:
    found = chart.objects(EVERYTHING | {"uninstall": {"cleanup": False}})
    assert hooks(found, "post-delete") == {}
    assert [each["metadata"]["name"] for each in found if "cleanup" in each["metadata"]["name"]] == []
