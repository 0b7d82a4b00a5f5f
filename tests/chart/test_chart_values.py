"""The values: each has a comment, each changes something, and nothing else is taken."""

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from orion.cli.main import app
from orion.crds.node_configuration import (
    SLOTS_MAX,
    DeviceListStrategy,
    NodeSettings,
    OnNoAgent,
    Preload,
    SlotNumbers,
    parse,
)
from orion.node_agent.settings import POLICY_KINDS, AgentSettings, PolicySettings
from tests.chart import rendered_chart as chart
from tools.cluster import helm

pytestmark = pytest.mark.timeout(900)  # the first one builds Helm where it is not

VALUES = Path(helm.CHART, "values.yaml").read_text()
DEFAULTS: dict[str, Any] = yaml.safe_load(VALUES)
SCHEMA: dict[str, Any] = yaml.safe_load(Path(helm.CHART, "values.schema.json").read_text())
FREE_MAPS = ("nodeSelector", "resources", "securityContext", "labels")  # taken as a whole
SIMULATED = {"simulatedGPUs": 1}
SERVICE_MONITOR: dict[str, Any] = {
    "monitoring": {"serviceMonitor": {"enabled": True}},
    "networkPolicy": {"metricsFrom": [{"podSelector": {}}]},
}
CERT_MANAGER = {"certificates": {"source": "cert-manager"}}
GIVEN = {
    "certificates": {"source": "given", "given": {"secretName": "mine", "caBundle": "-----BEGIN CERTIFICATE-----\nx"}}
}
MPS = {"mps": {"enabled": True}}

CHANGED: dict[str, Any] = {
    "commonLabels": {"team": "a"},
    "commonAnnotations": {"note": "a"},
    "image.digest": "sha256:" + "0" * 64,
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "login"}],
    "nodeConfiguration.gpus": ["0"],
    "nodeConfiguration.slotsByGPU": [{"gpu": "0", "be": 1}],
    "nodeConfiguration.deviceListStrategy": "cdi-cri",
    "nodeConfiguration.driverRoot": "/run/nvidia/driver",
    "nodeConfiguration.preload": "file",
    "nodeConfiguration.onNoAgent": "hold",
    "nodeConfiguration.nodes": {"a": {"gpus": []}},
    "certificates.source": "cert-manager",
    "certificates.certManager.issuerRef": {"kind": "ClusterIssuer", "name": "own"},
    "certificates.given.caBundle": "-----BEGIN CERTIFICATE-----\ny",
    "operator.namespaces": ["a"],
    "webhook.failurePolicy": "Ignore",
    "webhook.logLevel": "debug",
    "node.nodeSelector": {"a": "b"},
    "node.tolerations": [],
    "node.gpuAccess": "privileged",
    "node.seLinuxOptions": {"type": "spc_t"},
    "node.maxUnavailable": 3,
    "node.agent.policy.name": "gate",
    "mps.securityContext": {"capabilities": {"add": ["KILL"]}},
    "node.agent.metricsPort": 1234,
    "networkPolicy.webhookFrom": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
    "networkPolicy.metricsFrom": [{"podSelector": {}}],
    "networkPolicy.apiServerCIDRs": ["10.0.0.1/32"],
    "networkPolicy.apiServerPorts": [8443],
    "monitoring.serviceMonitor.labels": {"a": "b"},
    "monitoring.dashboard.labels": {"a": "b"},
}
""" Another value of those of which none can be made by a rule. """

BESIDE: dict[str, dict[str, Any]] = {
    "certificates.certManager": CERT_MANAGER,
    "certificates.given": GIVEN,
    "node.nvml": {"node": {"gpuAccess": "privileged"}},
    "node.simulatedState": SIMULATED,
    "mps": MPS,
    "networkPolicy.apiServerPorts": {"networkPolicy": {"apiServerCIDRs": ["10.0.0.1/32"]}},
    "monitoring.serviceMonitor": SERVICE_MONITOR,
    "monitoring.dashboard": {"monitoring": {"dashboard": {"enabled": True}}},
}
""" What has to be set for a value to mean anything, by the beginning of its path. """


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its path."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value and key not in FREE_MAPS:
            yield from leaves(value, f"{path}{key}.")
        else:
            yield path + key, value


LEAVES = dict(leaves(DEFAULTS))


def set_at(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of values with one of them changed."""
    changed = copy.deepcopy(values)
    *above, last = path.split(".")
    place = changed
    for key in above:
        place = place.setdefault(key, {})
    place[last] = value
    return changed


def another(path: str, value: Any) -> Any:
    """Return another value than the default."""
    key = path.rpartition(".")[2]
    by_key = {
        "podAnnotations": {"a": "b"},
        "podLabels": {"a": "b"},
        "annotations": {"a": "b"},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
        ],
        "resources": {"limits": {"memory": "3Gi"}},
        "extraEnv": [{"name": "A", "value": "b"}],
        "extraArgs": ["--more"],
        "interval": "7s",
        "duration": "99h",
        "renewBefore": "9h",
    }
    if path in CHANGED:
        return CHANGED[path]
    if key in by_key:
        return by_key[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if key != "minimumShare" else 0.25
    if isinstance(value, str):
        return f"{value}x" if value not in ("", "/") else "other"
    raise AssertionError(f"name another value of {path} in CHANGED")


@pytest.mark.parametrize("path", LEAVES)
def test_each_value_changes_the_rendering(path: str) -> None:
    beside = next((values for begin, values in BESIDE.items() if f"{path}.".startswith(f"{begin}.")), {})
    if path == "mps.enabled" or path.endswith((".serviceMonitor.enabled", ".dashboard.enabled")):
        beside = SERVICE_MONITOR if "serviceMonitor" in path else {}
        assert chart.text(set_at(beside, path, True)) != chart.text(set_at(beside, path, False))
        return
    if path == "crds.keep":
        assert "helm.sh/resource-policy" not in chart.text(set_at({}, path, False))
        return
    changed = set_at(beside, path, another(path, LEAVES[path]))
    assert chart.text(changed) != chart.text(beside)


def test_every_key_has_a_comment() -> None:
    lines = VALUES.splitlines()
    bare = [
        line.strip()
        for before, line in zip(["", *lines], lines, strict=False)
        if re.match(r"\s*[A-Za-z]+:( |$)", line) and not before.strip().startswith("#")
    ]
    # Those of a map that is one thing: its own comment says what they are.
    assert [line for line in bare if not line.startswith(("requests:", "limits:", "capabilities:", "drop:", "add:",
        "allowPrivilegeEscalation:", "readOnlyRootFilesystem:"))] == []  # fmt: skip


# -- The schema --------------------------------------------------------------------------------------------------------


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference refers to."""
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = SCHEMA["definitions"][name] if name else schema
    return found


def compare(schema: dict[str, Any], values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield where the schema knows other keys than values.yaml."""
    properties = resolved(schema).get("properties")
    if not properties:
        return
    if resolved(schema).get("additionalProperties") is not False:
        yield f"{path or 'the whole'} takes any key"
    if values and path.rpartition(".")[2] not in FREE_MAPS:
        yield from (f"{path}.{key} is in one alone" for key in properties.keys() ^ values.keys())
    for key, value in values.items():
        if isinstance(value, Mapping) and key in properties:
            yield from compare(properties[key], value, f"{path}.{key}".strip("."))


def test_the_schema_knows_exactly_the_keys_of_values() -> None:
    whole = DEFAULTS | {"global": {}, "enabled": True}  # what a chart that depends on this one may bring
    assert list(compare(SCHEMA, whole)) == []


def test_an_unknown_key_is_refused_anywhere() -> None:
    folders = {"", *(path.rpartition(".")[0] for path in LEAVES)}
    values: dict[str, Any] = {}
    for folder in folders:
        values = set_at(values, f"{folder}.misspelt".strip("."), 1)
    with pytest.raises(helm.Failed) as refused:
        chart.text(values)
    said = re.findall(r"at '/?([^']*)': additional properties 'misspelt' not allowed", str(refused.value))
    assert {place.replace("/", ".") for place in said} == folders


def test_a_value_of_another_type_is_refused_anywhere() -> None:
    values: dict[str, Any] = {}
    for path in LEAVES:
        values = set_at(values, path, [[1]])
    with pytest.raises(helm.Failed) as refused:
        chart.text(values)
    said = {place.replace("/", ".") for place in re.findall(r"at '/([^']*)'", str(refused.value))}
    assert [path for path in LEAVES if not any(f"{place}.".startswith(f"{path}.") for place in said)] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.digest", "latest"),
        ("image.tag", "a b"),
        ("simulatedGPUs", 17),
        ("nodeConfiguration.slots.be", 65),
        ("nodeConfiguration.nodes", {"a": {"slot": 1}}),
        ("nodeConfiguration.driverRoot", "run"),
        ("node.kubeletRoot", "/var/lib/kubelet/"),
        ("node.kubeletRoot", "/"),
        ("fullnameOverride", "1st"),
        ("node.maxUnavailable", "0%"),
        ("node.agent.policy.minimumShare", 0.6),
        ("node.agent.metricsPort", 65536),
        ("webhook.timeoutSeconds", 31),
        ("webhook.replicas", 0),
        ("certificates.source", "self"),
        ("certificates.given.caBundle", "no PEM"),
        ("commonLabels", {"app.kubernetes.io/name": "a"}),
        ("operator.podLabels", {"app.kubernetes.io/component": "a"}),
        ("networkPolicy.apiServerCIDRs", ["10.0.0.1"]),
    ],
)
def test_values_that_have_no_meaning_are_refused(path: str, value: Any) -> None:
    with pytest.raises(helm.Failed, match="don't meet the specifications of the schema"):
        chart.text(set_at({}, path, value))


def test_the_opt_in_label_can_be_taken_away() -> None:
    values = {"node": {"nodeSelector": {"orion.gpu/enabled": None, "gpu": "shared"}}}
    selector = chart.pod_specs(chart.objects(values))["orion-node"]["nodeSelector"]
    assert selector == {"kubernetes.io/os": "linux", "gpu": "shared"}


def test_what_is_free_may_be_taken_away_as_a_whole() -> None:
    """As `--set node.nodeSelector=null` does."""
    free = {"podLabels", "podAnnotations", "nodeSelector", "podDisruptionBudget", "annotations", "labels"}
    paths = {path for path in LEAVES if path.rpartition(".")[2] in free} | {"commonLabels", "commonAnnotations"}
    paths |= {f"{component}.podDisruptionBudget" for component in ("operator", "webhook")}
    values: dict[str, Any] = {
        **MPS,
        "monitoring": {"serviceMonitor": {"enabled": True}, "dashboard": {"enabled": True}},
    }
    values["networkPolicy"] = {"metricsFrom": [{"podSelector": {}}]}
    for path in paths:
        values = set_at(values, path, None)
    found = chart.objects(values)
    assert chart.pod_specs(found)["orion-node"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert not chart.of_kind(found, "PodDisruptionBudget")


def test_a_chart_that_depends_on_this_one_may_bring_its_own() -> None:
    assert chart.text({"global": {"storageClass": "fast"}, "enabled": True}) == chart.text()


def test_containers_are_told_only_options_that_there_are() -> None:
    values = {
        "mps": {"enabled": True},
        "operator": {"verbose": True, "namespaces": ["a"]},
        "webhook": {"requireShare": True, "runtimeClassName": "a"},
        "nodeConfiguration": {"deviceListStrategy": "device-nodes"},
    }
    commands: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    for name, container in chart.containers(chart.objects(values)):
        if name == "orion-test-slot/tenant":
            continue
        command, *options = container["args"]
        known = {flag for parameter in commands[command].params for flag in parameter.opts}
        assert {option.partition("=")[0] for option in options} <= known, name


def test_large_numbers_are_written_as_programs_read_them() -> None:
    policy = {"windowMicroseconds": 1000000, "longKernelMicroseconds": 60000000, "overlapSMs": 65535}
    values = {"node": {"agent": {"policy": policy}}, "operator": {"censusSeconds": 86400000}}
    found = chart.objects(values)
    agent = chart.container(found, "orion-node/agent")["args"]
    assert {"--window-us=1000000", "--long-kernel-us=60000000", "--overlap-sms=65535"} <= set(agent)
    assert "--census-seconds=86400000" in chart.container(found, "orion-operator/operator")["args"]


# -- What programs take ------------------------------------------------------------------------------------------------


def test_the_nodes_configuration_is_that_of_the_model() -> None:
    text = chart.one(chart.objects(), "ConfigMap", "orion-nodes")["data"]["nodes.yaml"]
    assert parse(text, "values").for_node("any") == NodeSettings()
    known = {field.alias or name for name, field in NodeSettings.model_fields.items()}
    assert set(DEFAULTS["nodeConfiguration"]) == known | {"nodes"}
    assert set(SCHEMA["properties"]["nodeConfiguration"]["properties"]) == known | {"nodes"}
    assert DEFAULTS["nodeConfiguration"]["slots"] == SlotNumbers().model_dump()


def test_the_schema_takes_what_the_programs_take() -> None:
    taken = SCHEMA["properties"]["nodeConfiguration"]["properties"]
    for key, words in (("deviceListStrategy", DeviceListStrategy), ("preload", Preload), ("onNoAgent", OnNoAgent)):
        assert set(taken[key]["enum"]) == {str(each) for each in words}
    for amount in (taken["slots"]["properties"]["hp"], taken["slotsByGPU"]["items"]["properties"]["be"]):
        assert (amount["minimum"], amount["maximum"]) == (0, SLOTS_MAX)
    policy = SCHEMA["properties"]["node"]["properties"]["agent"]["properties"]["policy"]["properties"]
    assert set(policy["name"]["enum"]) == set(POLICY_KINDS)
    for key, field in (
        ("maxSlowdown", "max_slowdown"),
        ("sharingCost", "sharing_cost"),
        ("minimumShare", "minimum_share"),
        ("windowMicroseconds", "window_us"),
        ("overlapSMs", "overlap_sms"),
        ("longKernelMicroseconds", "long_kernel_us"),
    ):
        bounds = PolicySettings.model_json_schema()["properties"][field]
        assert (policy[key]["minimum"], policy[key]["maximum"]) == (bounds["minimum"], bounds["maximum"]), key


def test_a_nodes_own_settings_arrive() -> None:
    own = {"slots": {"hp": 2, "be": 3}, "slotsByGPU": [{"gpu": "1", "be": 1}], "gpus": ["0", "1"], "coexist": True}
    values = {"nodeConfiguration": {"nodes": {"a": own}, "driverRoot": "/run/nvidia/driver"}}
    text = chart.one(chart.objects(values), "ConfigMap", "orion-nodes")["data"]["nodes.yaml"]
    settings = parse(text, "values").for_node("a")
    assert (settings.slots_of("GPU-x", 0), settings.slots_of("GPU-x", 1)) == (
        SlotNumbers(hp=2, be=3),
        SlotNumbers(hp=2, be=1),
    )
    assert settings.coexist
    assert settings.driver_root == "/run/nvidia/driver"


def test_the_agents_defaults_are_the_agents_own() -> None:
    agent, policy = DEFAULTS["node"]["agent"], PolicySettings()
    said = agent["policy"]
    assert said["name"] == policy.policy
    assert (said["maxSlowdown"], said["sharingCost"], said["minimumShare"]) == (
        policy.max_slowdown,
        policy.sharing_cost,
        policy.minimum_share,
    )
    assert (said["windowMicroseconds"], said["overlapSMs"], said["longKernelMicroseconds"]) == (
        policy.window_us,
        policy.overlap_sms,
        policy.long_kernel_us,
    )
    assert agent["recoverySeconds"] == AgentSettings().recovery_seconds
