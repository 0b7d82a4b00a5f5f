"""The chart renders exactly the RBAC rules, policies and definitions of the files in charts/orion/files."""

import json

import pytest

from testbed import helm
from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import FILES, PEM, Object, shipped

ACCOUNTS = {
    "operator-role": "orion-operator",
    "certificates-role": "orion-operator",
    "mps-role": "orion-operator",
    "webhook-role": "orion-webhook",
    "agent-role": "orion-agent",
    "cleanup-role": "orion-cleanup",
    "dra/driver-role": "orion-dra-driver",
    "dra/operator-role": "orion-operator",
    "dra/await-claims-role": "orion-await-claims",
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_each_role_has_the_rules_of_its_file_and_is_bound_to_its_account(name: str, everything: list[Object]) -> None:
    found, account = everything, ACCOUNTS[name]
    for role in shipped(f"{name}.yaml"):
        made = chart.one(found, role["kind"], role["metadata"]["name"])
        assert made["rules"] == role["rules"]
        binding = chart.one(found, f"{role['kind']}Binding", role["metadata"]["name"])
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["roleRef"]["kind"] == role["kind"]
        assert [(each["name"], each["namespace"]) for each in binding["subjects"]] == [(account, chart.NAMESPACE)]


def test_there_are_no_roles_besides_those_of_the_files(everything: list[Object]) -> None:
    names = {
        (role["kind"], role["metadata"]["name"])
        for path in FILES.rglob("*-role.yaml")
        for role in shipped(str(path.relative_to(FILES)))
    }
    for kind in ("Role", "ClusterRole"):
        bound = {(kind, each["roleRef"]["name"]) for each in chart.of_kind(everything, f"{kind}Binding").values()}
        assert bound == {each for each in names if each[0] == kind}
        unbound = (
            {"orion-view", "orion-edit"} if kind == "ClusterRole" else set()
        )  # Kubernetes aggregates them into its own roles
        assert {(kind, name) for name in chart.of_kind(everything, kind).keys() - unbound} == bound


def test_the_roles_view_and_edit_include_shares() -> None:
    found = chart.objects()
    for role in shipped("users-roles.yaml"):
        made = chart.one(found, "ClusterRole", role["metadata"]["name"])
        assert made["rules"] == role["rules"]
        assert role["metadata"]["labels"].items() <= made["metadata"]["labels"].items()
        assert not [name for rule in role["rules"] for name in rule["resources"] if "/" in name]
    without = chart.of_kind(chart.objects({"userRoles": {"enabled": False}}), "ClusterRole")
    assert not {"orion-view", "orion-edit"} & without.keys()


def test_resource_names_in_roles_contain_the_name_of_the_release() -> None:
    roles = chart.of_kind(chart.objects(release="gpus"), "Role")
    named = {name for role in roles.values() for rule in role["rules"] for name in rule.get("resourceNames", ())}
    assert named == {"gpus-orion-operator", "gpus-orion-webhook-certificate", "gpus-orion-test-slot"}


def test_the_policy_on_the_webhook_names_the_configuration_of_the_release() -> None:
    found = chart.objects(release="gpus")
    policy = chart.one(found, "ValidatingAdmissionPolicy", "gpus-orion-webhook-sees-no-more")
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    (role,) = (rule for rule in chart.one(found, "ClusterRole", "gpus-orion-certificates")["rules"])
    assert rule["resourceNames"] == role["resourceNames"] == list(chart.of_kind(found, "MutatingWebhookConfiguration"))


def test_the_operator_has_rights_for_certificates_only_if_it_makes_them() -> None:
    for source in ({"source": "cert-manager"}, {"source": "given", "given": {"secretName": "a", "caBundle": PEM}}):
        found = chart.objects({"certificates": source})
        assert not [name for kind in ("Role", "ClusterRole") for name in chart.of_kind(found, kind) if "cert" in name]
        assert "--certificates" not in chart.container(found, "orion-operator/operator")["args"]


def test_policies_and_webhook_equal_their_files() -> None:
    found = chart.objects()
    for path in [FILES / "policies.yaml", FILES / "ceilings.yaml", *FILES.glob("*-policy.yaml")]:
        for policy in shipped(path.name):
            assert chart.one(found, policy["kind"], policy["metadata"]["name"])["spec"] == policy["spec"]
    (file,) = shipped("webhook.yaml")
    assert chart.one(found, "MutatingWebhookConfiguration", "orion")["webhooks"] == file["webhooks"]


def test_policies_of_ceilings_can_be_left_out() -> None:
    policies = chart.of_kind(chart.objects({"ceilings": {"enabled": False}}), "ValidatingAdmissionPolicy")
    names = {each["metadata"]["name"] for each in shipped("ceilings.yaml")}
    assert not names & policies.keys()
    assert policies.keys() | names == chart.of_kind(chart.objects(), "ValidatingAdmissionPolicy").keys()


def test_defaults_of_ceilings_reach_the_policies() -> None:
    found = chart.objects({"ceilings": {"defaults": {"orion/max-priority": "be", "orion/max-memory": "20Gi"}}})
    for name in ("orion-shares-keep-to-ceilings", "orion-pods-keep-to-ceilings"):
        variables = chart.one(found, "ValidatingAdmissionPolicy", name)["spec"]["variables"]
        (defaults,) = (each["expression"] for each in variables if each["name"] == "defaults")
        assert json.loads(defaults) == {"orion/max-priority": "be", "orion/max-memory": "20Gi"}


def test_policies_about_claims_equal_their_files_and_name_the_drivers_account() -> None:
    found = chart.objects({"allocation": "dra"})
    for name in ("dra/driver-policy.yaml", "dra/claims-policy.yaml", "dra/classes.yaml"):
        for each in shipped(name):
            assert chart.one(found, each["kind"], each["metadata"]["name"])["spec"] == each["spec"]
    other = chart.objects({"allocation": "dra", "ceilings": {"enabled": False}}, "gpus")
    conditions = chart.one(other, "ValidatingAdmissionPolicy", "gpus-orion-dra-drivers-keep-to-their-node")["spec"]
    assert ":gpus-orion-dra-driver'" in conditions["matchConditions"][0]["expression"]
    variables = chart.one(other, "ValidatingAdmissionPolicy", "gpus-orion-claims-ask-for-slots")["spec"]["variables"]
    assert {"name": "maxPriority", "expression": "optional.none()"} in variables
    assert not chart.of_kind(chart.objects(), "DeviceClass")


def test_definitions_equal_their_files_and_are_kept() -> None:
    found = chart.of_kind(chart.objects(), "CustomResourceDefinition")
    assert len(found) == len(list((FILES / "crds").glob("*.yaml")))
    for path in (FILES / "crds").glob("*.yaml"):
        (file,) = shipped(f"crds/{path.name}")
        made = found[file["metadata"]["name"]]
        assert made["spec"] == file["spec"]
        assert made["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not (helm.CHART / "crds").exists()  # Helm would install definitions from there, but never upgrade them
    assert not chart.of_kind(chart.objects({"crds": {"install": False}}), "CustomResourceDefinition")
