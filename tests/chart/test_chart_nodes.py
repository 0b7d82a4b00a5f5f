"""The pods on nodes: on which nodes they run, and which GPUs and files of the node they get."""

from typing import Any

import pytest

from orion.crds.annotations import STARTUP_TAINT
from tests.chart import rendered_chart as chart


def test_simulated_gpus_need_no_label_and_real_ones_do() -> None:
    real, simulated = chart.pod_specs(chart.objects()), chart.pod_specs(chart.objects({"simulatedGPUs": 2}))
    assert real["orion-node"]["nodeSelector"] == {"kubernetes.io/os": "linux", "orion/enabled": "true"}
    assert simulated["orion-node"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    everywhere = chart.pod_specs(chart.objects({"node": {"everywhere": True}}))
    assert everywhere["orion-node"]["nodeSelector"] == {"kubernetes.io/os": "linux"}


def test_agent_and_plugin_share_one_simulated_machine() -> None:
    found = chart.objects({"simulatedGPUs": 3, "node": {"simulatedState": "/run/sim"}})
    for name in ("agent", "device-plugin"):
        container = chart.container(found, f"orion-node/{name}")
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert environment["ORION_SIM_STATE"] == "/run/sim"
        assert "/run/sim" in [each["mountPath"] for each in container["volumeMounts"]]
        assert "NVIDIA_VISIBLE_DEVICES" not in environment


def test_the_agent_sees_all_real_gpus_and_the_plugin_none() -> None:
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
        ({"nodes": [{"matchLabels": {"pool": "a"}, "deviceListStrategy": "device-nodes"}]}, True),
    ],
)
def test_the_plugin_sees_the_nodes_files_only_if_it_passes_them_on(configuration: dict[str, Any], sees: bool) -> None:
    found = chart.objects({"nodeConfiguration": configuration})
    plugin = chart.container(found, "orion-node/device-plugin")
    assert ("--host=/host" in plugin["args"]) is sees
    assert ("/host" in [each["mountPath"] for each in plugin["volumeMounts"]]) is sees
    assert all(each["readOnly"] for each in plugin["volumeMounts"] if each["mountPath"] == "/host")


def test_a_moved_kubelet_folder_moves_all_sockets_except_those_of_device_plugins() -> None:
    found = chart.objects({"node": {"kubeletRoot": "/var/lib/k0s/kubelet"}})
    volumes = {each["name"]: each for each in chart.pod_specs(found)["orion-node"]["volumes"]}
    assert volumes["pod-resources"]["hostPath"]["path"] == "/var/lib/k0s/kubelet/pod-resources"
    # The sockets of device plugins are in a folder that no kubelet option moves.
    plugin = chart.container(found, "orion-node/device-plugin")
    assert "--kubelet-folder=/var/lib/kubelet/device-plugins" in plugin["args"]
    assert "/var/lib/kubelet/device-plugins" in [each["mountPath"] for each in plugin["volumeMounts"]]
    assert volumes["device-plugins"]["hostPath"]["path"] == "/var/lib/kubelet/device-plugins"
    assert "--kubelet-root=/var/lib/k0s/kubelet" in chart.container(found, "orion-webhook/webhook")["args"]


@pytest.mark.parametrize("values", [{"allocation": "dra"}, {"allocation": "by-node", "mps": {"enabled": True}}])
def test_no_pod_keeps_volumes_that_the_node_has_unmounted(values: dict[str, Any]) -> None:
    # The kubelet mounts other pods' volumes below `plugins`. In a private copy of them the device would stay in use.
    strategy = {"nodeConfiguration": {"deviceListStrategy": "device-nodes"}, "node": {"gpuAccess": "privileged"}}
    propagations = {}
    for name, spec in chart.pod_specs(chart.objects({**values, **strategy})).items():
        paths = {each["name"]: each["hostPath"]["path"] for each in spec.get("volumes", ()) if "hostPath" in each}
        for container in spec["containers"]:
            for mount in container.get("volumeMounts", ()):
                if paths.get(mount["name"]) in ("/", "/var/lib/kubelet", "/var/lib/kubelet/plugins"):
                    propagations[f"{name}/{container['name']} {mount['mountPath']}"] = mount.get("mountPropagation")
    assert "orion-dra-driver/dra-driver /var/lib/kubelet/plugins" in propagations
    assert set(propagations.values()) == {"HostToContainer"}, propagations


def test_a_pod_that_an_upgrade_adds_to_a_full_node_needs_no_room_there() -> None:
    # Its priority is higher than that of tenants: the scheduler would evict one of them.
    found = chart.objects({"allocation": "by-node", "mps": {"enabled": True}})
    surging = {
        each["metadata"]["name"]
        for each in found
        if each["kind"] == "DaemonSet" and each["spec"]["updateStrategy"].get("rollingUpdate", {}).get("maxSurge")
    }
    assert surging == {"orion-dra-driver"}
    for container in chart.pod_specs(found)["orion-dra-driver"]["containers"]:
        assert container["resources"]["requests"] == {"cpu": "0", "memory": "0"}


def test_folders_of_the_node_may_have_names_that_yaml_reads_as_other_types() -> None:
    odd = "/a, b}/c"
    simulated = chart.objects({"simulatedGPUs": 1, "node": {"simulatedState": odd, "kubeletRoot": "/a,b}"}})
    volumes = {each["name"]: each["hostPath"]["path"] for each in chart.pod_specs(simulated)["orion-node"]["volumes"]
               if "hostPath" in each}  # fmt: skip
    assert (volumes["simulated"], volumes["pod-resources"]) == (odd, "/a,b}/pod-resources")
    for name in ("agent", "device-plugin"):
        mounts = chart.container(simulated, f"orion-node/{name}")["volumeMounts"]
        assert odd in [each["mountPath"] for each in mounts]
    real = chart.pod_specs(chart.objects({"node": {"gpuAccess": "privileged", "nvml": odd}}))["orion-node"]
    assert odd in [each["hostPath"]["path"] for each in real["volumes"] if "hostPath" in each]


def test_only_the_pods_that_bring_the_slots_tolerate_the_startup_taint() -> None:
    own = {"key": "example.com/dedicated", "operator": "Exists"}
    specs = chart.pod_specs(chart.objects({"mps": {"enabled": True}, "node": {"tolerations": [own]}}))
    tolerating = {
        name
        for name, spec in specs.items()
        if {"key": STARTUP_TAINT, "operator": "Exists"} in spec.get("tolerations", ())
    }
    assert tolerating == {"orion-node", "orion-mps"}
    assert all(own in specs[name]["tolerations"] for name in tolerating)
