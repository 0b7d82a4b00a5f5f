"""The generated admission files of the chart have only the scope and the rights that they need."""

from pathlib import Path

import pytest
import yaml

from orion.crds.allocation import Allocation
from orion.crds.annotations import WRITTEN
from orion.operator.webhook import ceilings, manifests
from orion.operator.webhook.admitting import Cluster, admit
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.names import names_have_an_effect
from tests.operator.test_admission_serving import pod

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", manifests.files())
def test_the_files_contain_no_template_syntax(name: str) -> None:
    text = (ROOT / manifests.FILES / name).read_text()
    assert "{{" not in text
    assert all(document["apiVersion"] for document in yaml.safe_load_all(text))


def test_the_webhook_has_match_conditions_and_excludes_no_namespace() -> None:
    (hook,) = manifests.webhook({"url": "https://x/admit"})["webhooks"]
    assert hook["failurePolicy"] == "Fail"
    assert hook["reinvocationPolicy"] == "IfNeeded"
    assert hook["matchConditions"]
    assert "namespaceSelector" not in hook
    assert [rule["resources"] for rule in hook["rules"]] == [["pods"], ["pods/ephemeralcontainers"]]


def test_the_webhook_may_only_list_and_watch() -> None:
    assert [rule["verbs"] for rule in manifests.role()["rules"]] == [["list", "watch"]]


def test_every_policy_has_a_binding_and_fails_closed_except_the_one_that_warns() -> None:
    made = [*manifests.bound(ceilings.policies()), *manifests.policies("/hook.so")]
    policies = [each for each in made if each["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [each for each in made if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert [each["metadata"]["name"] for each in policies] == [each["spec"]["policyName"] for each in bindings]
    *refusing, warning = zip(policies, bindings, strict=True)
    for policy, binding in refusing:
        assert (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"]) == ("Fail", ["Deny"])
    policy, binding = warning
    assert policy["metadata"]["name"] == "orion-names-have-an-effect"
    assert (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"]) == ("Ignore", ["Warn"])


def test_annotations_that_the_webhook_writes_get_no_warning() -> None:
    """The policy sees the pod after the webhook."""
    annotations = admit(pod("be"), Cluster(), Defaults(allocation=Allocation.DRA)).pod["metadata"]["annotations"]
    ours = {name for name in annotations if name.startswith(WRITTEN)}
    assert ours == {"orion.gpu/share", "orion.gpu/claim"}
    expressions = {each["name"]: each["expression"] for each in names_have_an_effect()["variables"]}
    excepted = expressions["written"].partition(" == 'Pod' && ")[2]
    assert all(f"'{name}'" in excepted for name in ours)


def test_loops_of_policies_do_not_read_annotations_in_each_iteration() -> None:
    """A pod can have 40 000 annotations. Such a loop would make each write of the pod's status take half a minute."""
    made = [each for each in manifests.policies("/hook.so") if each["kind"] == "ValidatingAdmissionPolicy"]
    kept = {each["metadata"]["name"]: each for each in made}["orion-pods-keep-their-marks"]
    for validation in kept["spec"]["validations"]:
        assert "bject.metadata" not in validation["expression"]
    marks = kept["spec"]["validations"][0]["expression"]
    assert marks.startswith("(variables.annotations == variables.oldAnnotations ||")
    (hook,) = manifests.webhook({"url": "https://x/admit"})["webhooks"]
    assert "annotations.orValue({}).exists(" not in hook["matchConditions"][0]["expression"]
