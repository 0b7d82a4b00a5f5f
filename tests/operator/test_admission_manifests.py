"""The chart's admission files: as narrow as they say."""

from pathlib import Path

import pytest
import yaml

from orion.operator.webhook import manifests

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", manifests.files())
def test_they_need_no_template(name: str) -> None:
    text = (ROOT / manifests.FILES / name).read_text()
    assert "{{" not in text
    assert all(document["apiVersion"] for document in yaml.safe_load_all(text))


def test_the_webhook_is_confined_by_conditions_and_leaves_no_namespace_out() -> None:
    (hook,) = manifests.webhook({"url": "https://x/admit"})["webhooks"]
    assert hook["failurePolicy"] == "Fail"
    assert hook["reinvocationPolicy"] == "IfNeeded"
    assert hook["matchConditions"]
    assert "namespaceSelector" not in hook
    assert [rule["resources"] for rule in hook["rules"]] == [["pods"], ["pods/ephemeralcontainers"]]


def test_the_webhook_may_only_list_and_watch() -> None:
    assert [rule["verbs"] for rule in manifests.role()["rules"]] == [["list", "watch"]]


def test_every_policy_is_bound_and_fails_closed_but_the_one_that_warns() -> None:
    made = manifests.policies("/hook.so")
    policies = [each for each in made if each["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [each for each in made if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert [each["metadata"]["name"] for each in policies] == [each["spec"]["policyName"] for each in bindings]
    *refusing, warning = zip(policies, bindings, strict=True)
    for policy, binding in refusing:
        assert (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"]) == ("Fail", ["Deny"])
    policy, binding = warning
    assert policy["metadata"]["name"] == "orion-names-have-an-effect"
    assert (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"]) == ("Ignore", ["Warn"])


def test_a_pods_annotations_are_not_read_again_in_each_turn_of_a_loop_over_them() -> None:
    """Of the 40 000 that a pod may have, an API server would be half a minute at each write of the pod's status."""
    made = [each for each in manifests.policies("/hook.so") if each["kind"] == "ValidatingAdmissionPolicy"]
    kept = {each["metadata"]["name"]: each for each in made}["orion-pods-keep-their-marks"]
    for validation in kept["spec"]["validations"]:
        assert "bject.metadata" not in validation["expression"]
    marks = kept["spec"]["validations"][0]["expression"]
    assert marks.startswith("(variables.annotations == variables.oldAnnotations ||")
    (hook,) = manifests.webhook({"url": "https://x/admit"})["webhooks"]
    assert "annotations.orValue({}).exists(" not in hook["matchConditions"][0]["expression"]
