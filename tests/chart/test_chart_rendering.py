"""The rendered objects: names, labels, rights, images, and what every pod keeps to."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from orion.crds.share import GPUShare
from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import Object
from tools.cluster import helm

pytestmark = pytest.mark.timeout(900)  # the first one builds Helm where it is not

FILES = helm.CHART / "files"
EVERYTHING: dict[str, Any] = {
    "mps": {"enabled": True},
    "monitoring": {"serviceMonitor": {"enabled": True}, "dashboard": {"enabled": True}},
    "networkPolicy": {"metricsFrom": [{"podSelector": {}}], "apiServerCIDRs": ["10.0.0.1/32"]},
}
OURS = {"name": "orion", "instance": "orion", "part-of": "orion", "managed-by": "Helm"}
WORKLOADS = ("orion-operator", "orion-webhook", "orion-node", "orion-mps", "orion-test-slot")


@pytest.fixture
def everything() -> list[Object]:
    """All objects that the chart can make."""
    return chart.objects(EVERYTHING)


def shipped(name: str) -> list[Object]:
    """Return the objects of a file of the chart."""
    return list(yaml.safe_load_all((FILES / name).read_text()))


@pytest.mark.parametrize("values", [{}, {"simulatedGPUs": 2}, EVERYTHING], ids=["real", "simulated", "everything"])
def test_lint_finds_nothing(values: dict[str, Any]) -> None:
    said = helm.run("lint", "--strict", str(helm.CHART), "--values", "-", given=yaml.safe_dump(values))
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


# -- Names and labels --------------------------------------------------------------------------------------------------


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
def test_all_names_begin_with_that_of_the_release(release: str, values: dict[str, Any], name: str) -> None:
    found = chart.objects(EVERYTHING | values, release)
    for each in found:
        if each["kind"] != "CustomResourceDefinition":
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


def test_a_long_release_name_is_cut_where_labels_end() -> None:
    for each in chart.objects(EVERYTHING, "o" * 53):
        assert each["kind"] == "CustomResourceDefinition" or len(each["metadata"]["name"]) <= 80
        assert all(len(text) <= 63 for text in each["metadata"]["labels"].values())


def test_selectors_hold_only_what_never_changes(everything: list[Object]) -> None:
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
        for kind in ("Deployment", "DaemonSet")
        for made in chart.of_kind(everything, kind).values()
    ]
    selectors = [each["spec"]["selector"] for each in chart.of_kind(everything, "Service").values()]
    selectors += [
        each["spec"]["selector"]["matchLabels"] for each in chart.of_kind(everything, "PodDisruptionBudget").values()
    ]
    selectors += [
        each["spec"]["podSelector"]["matchLabels"] for each in chart.of_kind(everything, "NetworkPolicy").values()
    ]
    assert len(selectors) == 2 + 2 + 4
    for selector in selectors:
        assert any(selector.items() <= labels.items() for labels in pods)


# -- What is shipped as files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["operator-role", "certificates-role", "webhook-role", "agent-role"])
def test_rights_are_those_of_the_files_and_bound_to_their_accounts(name: str) -> None:
    found = chart.objects()
    account = f"orion-{'operator' if name == 'certificates-role' else name.removesuffix('-role')}"
    for role in shipped(f"{name}.yaml"):
        made = chart.one(found, role["kind"], role["metadata"]["name"])
        assert made["rules"] == role["rules"]
        binding = chart.one(found, f"{role['kind']}Binding", role["metadata"]["name"])
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["roleRef"]["kind"] == role["kind"]
        assert [(each["name"], each["namespace"]) for each in binding["subjects"]] == [(account, chart.NAMESPACE)]


def test_there_are_no_rights_beside_those_of_the_files(everything: list[Object]) -> None:
    names = {
        (role["kind"], role["metadata"]["name"]) for path in FILES.glob("*-role.yaml") for role in shipped(path.name)
    }
    for kind in ("Role", "ClusterRole"):
        bound = {(kind, each["roleRef"]["name"]) for each in chart.of_kind(everything, f"{kind}Binding").values()}
        assert bound == {each for each in names if each[0] == kind}
        unbound = {"orion-view", "orion-edit"} if kind == "ClusterRole" else set()  # Kubernetes adds them to its own
        assert {(kind, name) for name in chart.of_kind(everything, kind).keys() - unbound} == bound


def test_people_see_and_change_shares_by_the_roles_that_they_have() -> None:
    found = chart.objects()
    for role in shipped("users-roles.yaml"):
        made = chart.one(found, "ClusterRole", role["metadata"]["name"])
        assert made["rules"] == role["rules"]
        assert role["metadata"]["labels"].items() <= made["metadata"]["labels"].items()
        assert not [name for rule in role["rules"] for name in rule["resources"] if "/" in name]
    without = chart.of_kind(chart.objects({"userRoles": {"enabled": False}}), "ClusterRole")
    assert not {"orion-view", "orion-edit"} & without.keys()


def test_names_in_rights_follow_the_release() -> None:
    roles = chart.of_kind(chart.objects(release="gpus"), "Role")
    named = {name for role in roles.values() for rule in role["rules"] for name in rule.get("resourceNames", ())}
    assert named == {"gpus-orion-operator", "gpus-orion-webhook-certificate"}


def test_rights_of_certificates_are_given_only_where_they_are_used() -> None:
    for source in ({"source": "cert-manager"}, {"source": "given", "given": {"secretName": "a", "caBundle": PEM}}):
        found = chart.objects({"certificates": source})
        assert not [name for kind in ("Role", "ClusterRole") for name in chart.of_kind(found, kind) if "cert" in name]
        assert "--certificates=operator" not in chart.container(found, "orion-operator/operator")["args"]


def test_policies_and_webhook_are_those_of_the_files() -> None:
    found = chart.objects()
    for path in [FILES / "policies.yaml", *FILES.glob("*-policy.yaml")]:
        for policy in shipped(path.name):
            assert chart.one(found, policy["kind"], policy["metadata"]["name"])["spec"] == policy["spec"]
    (file,) = shipped("webhook.yaml")
    assert chart.one(found, "MutatingWebhookConfiguration", "orion")["webhooks"] == file["webhooks"]


def test_definitions_are_those_of_the_files_and_kept() -> None:
    found = chart.of_kind(chart.objects(), "CustomResourceDefinition")
    assert len(found) == len(list((FILES / "crds").glob("*.yaml")))
    for path in (FILES / "crds").glob("*.yaml"):
        (file,) = shipped(f"crds/{path.name}")
        made = found[file["metadata"]["name"]]
        assert made["spec"] == file["spec"]
        assert made["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not (helm.CHART / "crds").exists()  # Helm would install what is there, and never upgrade it
    assert not chart.of_kind(chart.objects({"crds": {"install": False}}), "CustomResourceDefinition")


# -- Certificates ------------------------------------------------------------------------------------------------------

PEM = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


def certificate_volume(found: list[Object]) -> Object:
    """Return the webhook's volume with the certificate."""
    volumes = chart.pod_specs(found)["orion-webhook"]["volumes"]
    volume: Object = next(each["secret"] for each in volumes if each["name"] == "certificate")
    return volume


def test_an_upgrade_leaves_the_certificate_and_who_signed_it_as_they_are() -> None:
    found = chart.objects()
    secret = chart.one(found, "Secret", "orion-webhook-certificate")
    assert not {"data", "stringData"} & secret.keys()
    assert certificate_volume(found)["secretName"] == "orion-webhook-certificate"
    (webhook,) = chart.one(found, "MutatingWebhookConfiguration", "orion")["webhooks"]
    assert "caBundle" not in webhook["clientConfig"]
    assert "spec" not in chart.one(found, "Lease", "orion-operator")


def test_the_webhook_mounts_no_authoritys_key() -> None:
    assert [each["key"] for each in certificate_volume(chart.objects())["items"]] == ["tls.crt", "tls.key"]


def test_certificates_of_cert_manager() -> None:
    found = chart.objects({"certificates": {"source": "cert-manager"}})
    certificate = chart.one(found, "Certificate", "orion-webhook")
    assert certificate["spec"]["secretName"] == certificate_volume(found)["secretName"]
    assert f"orion-webhook.{chart.NAMESPACE}.svc" in certificate["spec"]["dnsNames"]
    annotations = chart.one(found, "MutatingWebhookConfiguration", "orion")["metadata"]["annotations"]
    assert annotations["cert-manager.io/inject-ca-from"] == f"{chart.NAMESPACE}/{certificate['spec']['secretName']}"
    assert certificate["spec"]["issuerRef"]["name"] in chart.of_kind(found, "Issuer")
    assert not chart.of_kind(found, "Secret")
    own = {"certificates": {"source": "cert-manager", "certManager": {"issuerRef": {"name": "mine"}}}}
    assert not chart.of_kind(chart.objects(own), "Issuer")


def test_certificates_that_are_given() -> None:
    found = chart.objects({"certificates": {"source": "given", "given": {"secretName": "mine", "caBundle": PEM}}})
    assert certificate_volume(found)["secretName"] == "mine"
    (webhook,) = chart.one(found, "MutatingWebhookConfiguration", "orion")["webhooks"]
    assert base64.b64decode(webhook["clientConfig"]["caBundle"]).decode() == PEM
    assert not chart.of_kind(found, "Secret")


# -- Images ------------------------------------------------------------------------------------------------------------

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


def test_the_chart_is_of_the_version_of_the_package() -> None:
    chart_file = yaml.safe_load((helm.CHART / "Chart.yaml").read_text())
    version = re.search(r'(?m)^version = "(.*)"$', Path(helm.CHART, "../../pyproject.toml").read_text())
    assert version is not None
    assert chart_file["appVersion"] == version[1]


# -- Pods --------------------------------------------------------------------------------------------------------------


def test_all_pods_are_here(everything: list[Object]) -> None:
    assert set(chart.pod_specs(everything)) == set(WORKLOADS)


@pytest.mark.parametrize("workload", WORKLOADS[:4])
def test_every_component_has_what_its_values_say(workload: str) -> None:
    component = workload.removeprefix("orion-")
    own: dict[str, Any] = {
        "podLabels": {"a": "b"},
        "podAnnotations": {"c": "d"},
        "priorityClassName": "mine",
        "terminationGracePeriodSeconds": 7,
    }
    placement = {"tolerations": [{"key": "k", "operator": "Exists"}], "affinity": {"nodeAffinity": {}}}
    placed = "node" if component == "mps" else component
    values: dict[str, Any] = {"mps": {"enabled": True}}
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
    assert (spec["tolerations"], spec["affinity"]) == (placement["tolerations"], placement["affinity"])


@pytest.mark.parametrize("name", ["operator", "webhook"])
def test_replicas_are_apart_and_drains_leave_one(name: str) -> None:
    found = chart.objects()
    (spread,) = chart.pod_specs(found)[f"orion-{name}"]["topologySpreadConstraints"]
    selector = chart.one(found, "Deployment", f"orion-{name}")["spec"]["selector"]
    assert spread["labelSelector"] == selector
    budget = chart.one(found, "PodDisruptionBudget", f"orion-{name}")
    assert budget["spec"]["selector"] == selector
    alone = chart.objects({name: {"replicas": 1}})
    assert f"orion-{name}" not in chart.of_kind(alone, "PodDisruptionBudget")  # it would stop every drain


def test_simulated_gpus_need_no_label_and_real_ones_do() -> None:
    real, simulated = chart.pod_specs(chart.objects()), chart.pod_specs(chart.objects({"simulatedGPUs": 2}))
    assert real["orion-node"]["nodeSelector"] == {"kubernetes.io/os": "linux", "orion.gpu/enabled": "true"}
    assert simulated["orion-node"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    everywhere = chart.pod_specs(chart.objects({"node": {"everywhere": True}}))
    assert everywhere["orion-node"]["nodeSelector"] == {"kubernetes.io/os": "linux"}


def test_simulated_gpus_are_one_machine_of_agent_and_plugin() -> None:
    found = chart.objects({"simulatedGPUs": 3, "node": {"simulatedState": "/run/sim"}})
    for name in ("agent", "device-plugin"):
        container = chart.container(found, f"orion-node/{name}")
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert environment["ORION_SIM_STATE"] == "/run/sim"
        assert "/run/sim" in [each["mountPath"] for each in container["volumeMounts"]]
        assert "NVIDIA_VISIBLE_DEVICES" not in environment


def test_the_agent_of_a_real_gpu_sees_all_and_the_plugin_none() -> None:
    found = chart.objects()
    seen = {
        name: {each["name"]: each.get("value") for each in chart.container(found, f"orion-node/{name}")["env"]}
        for name in ("agent", "device-plugin")
    }
    assert seen["agent"]["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert seen["device-plugin"]["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_without_nvidias_runtime_the_agent_is_privileged_and_has_the_drivers_library() -> None:
    found = chart.objects({"node": {"gpuAccess": "privileged", "nvml": "/opt/libnvidia-ml.so.1"}})
    agent = chart.container(found, "orion-node/agent")
    assert agent["securityContext"]["privileged"]
    assert "NVIDIA_VISIBLE_DEVICES" not in {each["name"] for each in agent["env"]}
    volumes = {each["name"]: each for each in chart.pod_specs(found)["orion-node"]["volumes"]}
    assert volumes["nvml"]["hostPath"]["path"] == "/opt/libnvidia-ml.so.1"
    assert not chart.container(found, "orion-node/device-plugin")["securityContext"].get("privileged")


@pytest.mark.parametrize(
    ("configuration", "sees"),
    [
        ({}, False),
        ({"deviceListStrategy": "cdi-cri"}, False),
        ({"deviceListStrategy": "device-nodes"}, True),
        ({"nodes": {"a": {"deviceListStrategy": "device-nodes"}}}, True),
    ],
)
def test_the_plugin_sees_the_nodes_files_only_where_it_hands_them_over(
    configuration: dict[str, Any], sees: bool
) -> None:
    found = chart.objects({"nodeConfiguration": configuration})
    plugin = chart.container(found, "orion-node/device-plugin")
    assert ("--host=/host" in plugin["args"]) is sees
    assert ("/host" in [each["mountPath"] for each in plugin["volumeMounts"]]) is sees
    assert all(each["readOnly"] for each in plugin["volumeMounts"] if each["mountPath"] == "/host")


def test_a_kubelet_elsewhere_has_its_sockets_there_but_for_those_of_device_plugins() -> None:
    found = chart.objects({"node": {"kubeletRoot": "/var/lib/k0s/kubelet"}})
    volumes = {each["name"]: each for each in chart.pod_specs(found)["orion-node"]["volumes"]}
    assert volumes["pod-resources"]["hostPath"]["path"] == "/var/lib/k0s/kubelet/pod-resources"
    # Those are in a folder that no option of the kubelet moves.
    plugin = chart.container(found, "orion-node/device-plugin")
    assert "--kubelet-folder=/var/lib/kubelet/device-plugins" in plugin["args"]
    assert "/var/lib/kubelet/device-plugins" in [each["mountPath"] for each in plugin["volumeMounts"]]
    assert volumes["device-plugins"]["hostPath"]["path"] == "/var/lib/kubelet/device-plugins"
    assert "--kubelet-root=/var/lib/k0s/kubelet" in chart.container(found, "orion-webhook/webhook")["args"]


@pytest.mark.parametrize(
    ("slots", "priority"), [({}, "be"), ({"be": 0}, "hp"), ({"hp": 0}, "be"), ({"hp": 4, "be": 1}, "be")]
)
def test_its_own_test_asks_for_a_slot_that_there_is(slots: dict[str, int], priority: str) -> None:
    pod = chart.one(chart.objects({"nodeConfiguration": {"slots": slots}}), "Pod", "orion-test-slot")
    assert pod["metadata"]["annotations"]["orion/priority"] == priority
    assert f"orion.gpu/{priority}" in pod["spec"]["containers"][0]["resources"]["limits"]


def test_its_own_test_brings_a_share_where_every_pod_needs_one() -> None:
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


def test_every_other_container_is_probed_and_bounded(everything: list[Object]) -> None:
    for name, container in chart.containers(everything):
        if name.startswith(("orion-mps", "orion-test")):
            continue
        assert {"livenessProbe", "readinessProbe", "startupProbe"} <= container.keys(), name
        assert "memory" in container["resources"]["limits"], name
        ports = {each["name"] for each in container["ports"]}
        assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports, name


# -- Metrics and networks ----------------------------------------------------------------------------------------------


def test_every_port_of_metrics_is_scraped_and_only_by_those_who_may(everything: list[Object]) -> None:
    monitor = chart.one(everything, "ServiceMonitor", "orion")["spec"]
    scraped = {each["port"] for each in monitor["endpoints"]}
    service = chart.one(everything, "Service", "orion-metrics")
    assert scraped == {each["targetPort"] for each in service["spec"]["ports"]}
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    offered = {port["name"] for _, each in chart.containers(everything) for port in each.get("ports", ())}
    assert offered == scraped | {"https"}
    for policy in chart.of_kind(everything, "NetworkPolicy").values():
        for rule in policy["spec"].get("ingress", ()):
            ports = {each["port"] for each in rule["ports"]}
            assert ports == {"https"} or (ports <= scraped and rule["from"])


def test_nobody_reaches_metrics_unless_named() -> None:
    policies = chart.of_kind(chart.objects(), "NetworkPolicy")
    assert set(policies) == {"orion-operator", "orion-webhook", "orion-node"}
    for name, policy in policies.items():
        ingress = policy["spec"].get("ingress", [])
        assert ingress == ([{"ports": [{"port": "https"}]}] if name == "orion-webhook" else [])
        assert policy["spec"]["policyTypes"] == ["Ingress"]


def test_the_webhook_answers_only_those_who_are_named_and_the_operator() -> None:
    server = {"ipBlock": {"cidr": "10.0.0.1/32"}}
    found = chart.objects({"networkPolicy": {"webhookFrom": [server]}})
    (rule,) = chart.one(found, "NetworkPolicy", "orion-webhook")["spec"]["ingress"]
    assert rule["ports"] == [{"port": "https"}]
    assert rule["from"] == [
        server,
        {"podSelector": chart.one(found, "Deployment", "orion-operator")["spec"]["selector"]},
    ]


def test_egress_is_bounded_where_the_api_server_is_named(everything: list[Object]) -> None:
    for name, policy in chart.of_kind(everything, "NetworkPolicy").items():
        assert "Egress" in policy["spec"]["policyTypes"]
        assert ("egress" in policy["spec"]) is (name != "orion-mps")
