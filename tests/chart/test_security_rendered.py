"""The chart's security per component: a test fails if a change gives a component more rights or access."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import Object

SIMULATED: Mapping[str, Any] = {"simulatedGPUs": 2}
MPS: Mapping[str, Any] = {"mps": {"enabled": True}}
DEVICE_NODES: Mapping[str, Any] = {"nodeConfiguration": {"deviceListStrategy": "device-nodes"}}
ALL: list[Mapping[str, Any]] = [{}, SIMULATED, MPS, DEVICE_NODES, {"certificates": {"source": "cert-manager"}}]
NAMES = ["default", "simulated", "mps", "device-nodes", "cert-manager"]

RESTRICTED = {"orion-operator", "orion-webhook", "orion-test-slot", "orion-cleanup"}
""" The pods that satisfy the pod security standard `restricted`. """
CAPABILITIES = {"orion-node/agent": ["SYS_RESOURCE"], "orion-mps/mps-daemon": ["SYS_RESOURCE"]}
""" All capabilities that a container may have; the others have none. """
TOKENS = {"orion-operator/operator", "orion-webhook/webhook", "orion-node/agent", "orion-cleanup/cleanup"}
HOST_PATHS = {
    "orion-node/agent": {"/run/orion": True, "/var/lib/kubelet/pod-resources": False, "/sys/fs/cgroup": False},
    "orion-node/device-plugin": {
        "/run/orion": True,
        "/var/lib/orion/hook": True,
        "/var/lib/kubelet/device-plugins": True,
    },
    "orion-mps/mps-daemon": {"/run/orion/mps": True},
}
""" The host paths of each container with the default values, and whether it may write to each. """
MORE_HOST_PATHS = {
    "simulated": {
        "orion-node/agent": {"/dev/shm/orion-sim": True},
        "orion-node/device-plugin": {"/dev/shm/orion-sim": False},
    },
    "device-nodes": {"orion-node/device-plugin": {"/": False}},
}


@pytest.fixture(params=ALL, ids=NAMES)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    return chart.objects(request.param)


def mounts(spec: Object, container: Object) -> dict[str, Object]:
    """Return a container's volumes by mount path; `writable` says whether it may write."""
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    return {
        mount["mountPath"]: {**volumes[mount["name"]], "writable": not mount.get("readOnly", False)}
        for mount in container.get("volumeMounts", [])
    }


def all_mounts(objects: list[Object]) -> dict[str, dict[str, Object]]:
    return {
        f"{name}/{container['name']}": mounts(spec, container)
        for name, spec in chart.pod_specs(objects).items()
        for container in spec["containers"] + spec.get("initContainers", [])
    }


def effective(spec: Object, container: Object, key: str) -> Any:
    return container.get("securityContext", {}).get(key, spec.get("securityContext", {}).get(key))


def test_no_container_is_privileged_and_each_has_only_the_listed_capabilities(
    objects: list[Object],
) -> None:
    for name, container in chart.containers(objects):
        context = container["securityContext"]
        assert context.get("privileged", False) is False, name
        assert context["allowPrivilegeEscalation"] is False, name
        assert context["readOnlyRootFilesystem"] is True, name
        assert context["capabilities"]["drop"] == ["ALL"], name
        assert set(context["capabilities"].get("add", [])) <= set(CAPABILITIES.get(name, [])), name


def test_the_agent_may_send_any_number_of_descriptors() -> None:
    # With simulated GPUs the chart adds no capability, because a root container on a laptop may be unable to get it.
    for values, added in (({}, ["SYS_RESOURCE"]), (SIMULATED, None)):
        agent = chart.container(chart.objects(values), "orion-node/agent")
        assert agent["securityContext"]["capabilities"].get("add") == added


def test_no_tenants_root_has_all_capabilities_of_the_mps_daemon() -> None:
    # The kernel compares the capabilities of two processes of one user before it lets one access the other.
    simulated = {**SIMULATED, **MPS}
    for values, added in ((MPS, ["SYS_RESOURCE"]), (simulated, None)):
        (found,) = (each for name, each in chart.containers(chart.objects(values)) if name.startswith("orion-mps/"))
        assert found["securityContext"]["capabilities"].get("add") == added


def test_only_the_agent_is_privileged_if_the_values_ask_for_it() -> None:
    objects = chart.objects({"node": {"gpuAccess": "privileged"}})
    privileged = {name for name, each in chart.containers(objects) if each["securityContext"].get("privileged")}
    assert privileged == {"orion-node/agent"}


def test_every_pod_has_the_runtimes_seccomp_profile_and_only_the_needed_host_namespaces(
    objects: list[Object],
) -> None:
    for name, spec in chart.pod_specs(objects).items():
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not spec.get("hostNetwork"), name
        assert not spec.get("hostIPC"), name
        assert spec.get("hostPID", False) is (name in ("orion-node", "orion-mps")), name
        assert spec["enableServiceLinks"] is False, name


def test_pods_that_need_nothing_of_their_node_are_restricted(objects: list[Object]) -> None:
    found = chart.pod_specs(objects)
    for name in RESTRICTED & found.keys():
        for container in found[name]["containers"]:
            assert effective(found[name], container, "runAsNonRoot") is True, name
            assert effective(found[name], container, "runAsUser") > 0, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        volumes = found[name].get("volumes", [])
        kinds = {kind for volume in volumes for kind in volume if kind != "name"}
        assert kinds <= {"projected", "secret", "configMap", "emptyDir", "downwardAPI"}, name
    assert found.keys() - RESTRICTED <= {"orion-node", "orion-mps"}


def test_a_token_is_mounted_only_in_clients_of_the_api_server(objects: list[Object]) -> None:
    for name, spec in chart.pod_specs(objects).items():
        assert spec["automountServiceAccountToken"] is False, name
    for name, account in chart.of_kind(objects, "ServiceAccount").items():
        assert account["automountServiceAccountToken"] is False, name
    with_token = {
        name
        for name, found in all_mounts(objects).items()
        for volume in found.values()
        if "serviceAccountToken" in json.dumps(volume.get("projected", {}))
    }
    assert with_token == TOKENS


def test_tokens_are_short_lived_and_bound_to_the_pod(objects: list[Object]) -> None:
    for container, found in all_mounts(objects).items():
        for path, volume in found.items():
            for source in volume.get("projected", {}).get("sources", []):
                if token := source.get("serviceAccountToken"):
                    assert token["expirationSeconds"] <= 3607
                    of_operator = container == "orion-node/agent" and path.startswith("/var/run/secrets/orion.gpu/")
                    assert token.get("audience") == ("orion-operator" if of_operator else None), container


@pytest.mark.parametrize(("values", "name"), list(zip(ALL, NAMES, strict=True)), ids=NAMES)
def test_each_container_has_only_the_listed_host_paths(values: Mapping[str, Any], name: str) -> None:
    for container, found in all_mounts(chart.objects(values)).items():
        of_host = {volume["hostPath"]["path"]: volume["writable"] for volume in found.values() if "hostPath" in volume}
        allowed = HOST_PATHS.get(container, {}) | MORE_HOST_PATHS.get(name, {}).get(container, {})
        assert of_host.keys() <= allowed.keys(), container
        assert {path for path, writable in of_host.items() if writable and not allowed[path]} == set(), container


def test_the_agent_can_write_into_no_hierarchy_of_cgroups(objects: list[Object]) -> None:
    """`readOnly` alone holds for the folder, and not for the mounts in it, which cgroup v1 has."""
    mounted = chart.container(objects, "orion-node/agent")["volumeMounts"]
    (cgroups,) = (each for each in mounted if each["mountPath"] == "/sys/fs/cgroup")
    assert cgroups["readOnly"] is True
    assert cgroups["recursiveReadOnly"] == "IfPossible"
    assert "mountPropagation" not in cgroups, "the API server refuses both"


def test_only_the_webhook_mounts_its_key(objects: list[Object]) -> None:
    assert "secretKeyRef" not in json.dumps(objects)
    assert "secretRef" not in json.dumps(objects)
    for name, found in all_mounts(objects).items():
        secrets = [volume for volume in found.values() if "secret" in volume]
        assert len(secrets) == ("webhook" in name), name
        for volume in secrets:
            assert volume["secret"]["defaultMode"] == 0o440
            assert {item["key"] for item in volume["secret"]["items"]} == {"tls.crt", "tls.key"}
            assert not volume["writable"]


def test_the_rendering_contains_no_secret(objects: list[Object]) -> None:
    for name, secret in chart.of_kind(objects, "Secret").items():
        assert not secret.get("data"), name
        assert not secret.get("stringData"), name
    assert "PRIVATE KEY" not in json.dumps(objects)


def test_roles_have_no_wildcards_and_no_rights_that_lead_to_more_rights(objects: list[Object]) -> None:
    roles = [*chart.of_kind(objects, "ClusterRole").values(), *chart.of_kind(objects, "Role").values()]
    for role, rule in ((each, rule) for each in roles for rule in each["rules"]):
        name = role["metadata"]["name"]
        words = {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}
        assert "*" not in words, name
        assert words.isdisjoint({"escalate", "bind", "impersonate", "pods/exec", "pods/attach", "nodes/proxy"}), name
        if "secrets" in rule["resources"]:
            assert role["kind"] == "Role", name
            assert rule["verbs"] == ["create"] or rule["resourceNames"], name
    cluster_wide = json.dumps([role["rules"] for role in roles if role["kind"] == "ClusterRole"])
    assert "secrets" not in cluster_wide


def test_without_certificates_of_its_own_the_operator_reads_no_secret() -> None:
    assert "secrets" not in json.dumps(
        chart.of_kind(chart.objects({"certificates": {"source": "cert-manager"}}), "Role")
    )


def test_policies_restrict_the_accounts_that_roles_cannot_restrict(objects: list[Object]) -> None:
    policies = chart.of_kind(objects, "ValidatingAdmissionPolicy")
    wanted = {
        "orion-agents-keep-to-their-node",
        "orion-operator-creates-configmaps",
        "orion-operator-labels-nodes",
        "orion-operator-releases-gpus",
        "orion-pods-have-been-admitted",
        "orion-pods-keep-their-marks",
        "orion-bindings-bring-no-marks",
        "orion-shares-keep-to-ceilings",
        "orion-pods-keep-to-ceilings",
        "orion-ceilings-can-be-read",
    }
    assert wanted <= policies.keys()
    bindings = chart.of_kind(objects, "ValidatingAdmissionPolicyBinding").values()
    assert wanted <= {each["spec"]["policyName"] for each in bindings if each["spec"]["validationActions"] == ["Deny"]}
    assert {name for name, policy in policies.items() if policy["spec"]["failurePolicy"] != "Fail"} == {
        "orion-names-have-an-effect"  # it only warns
    }


def test_every_pod_has_a_network_policy_and_only_named_peers_reach_metrics(objects: list[Object]) -> None:
    covered = chart.of_kind(objects, "NetworkPolicy").values()
    selectors = [policy["spec"]["podSelector"]["matchLabels"] for policy in covered]
    workloads = [each for each in objects if each["kind"] in ("Deployment", "DaemonSet", "Job")]
    for workload in workloads:
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert any(selector.items() <= labels.items() for selector in selectors), workload["metadata"]["name"]
    for policy in covered:
        assert "Ingress" in policy["spec"]["policyTypes"]
        open_ports = [port["port"] for rule in policy["spec"].get("ingress", []) for port in rule["ports"]]
        served = {"orion-webhook": ["https"], "orion-operator": ["node-pods"]}
        assert open_ports == served.get(policy["metadata"]["name"], [])


def test_every_container_that_may_restart_has_a_memory_limit(objects: list[Object]) -> None:
    for name, container in chart.containers(objects):
        resources = container.get("resources", {})
        assert "memory" in resources.get("requests", {}), name
        # If the kernel killed an MPS daemon because of a memory limit, all of its clients would end.
        assert ("memory" in resources.get("limits", {})) is (name != "orion-mps/mps-daemon"), name


def test_no_two_components_share_an_account(objects: list[Object]) -> None:
    accounts = {name: spec.get("serviceAccountName", "default") for name, spec in chart.pod_specs(objects).items()}
    used = [account for account in accounts.values() if account != "default"]
    assert all(one != other for one, other in itertools.combinations(used, 2))
