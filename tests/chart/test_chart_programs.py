"""The programs accept the options and the nodes' configuration that the chart gives them."""

from typing import Any

import pytest
import typer
from annotated_types import Ge, Le

from orion.cli.commands import app
from orion.crds.node_configuration import (
    SLOTS_MAX,
    DeviceListStrategy,
    NodeSettings,
    OnNoAgent,
    Preload,
    SlotNumbers,
    parse,
)
from orion.hook.policy_table import RELEASE
from orion.node_agent.settings import AgentSettings
from tests.chart import rendered_chart as chart
from tests.chart.chart_values import DEFAULTS, SCHEMA

ROWS = {row.name: row for row in RELEASE.rows}
POLICY_FIELDS = {
    "maxSlowdown": "max_slowdown",
    "sharingCost": "sharing_cost",
    "request": "request",
    "windowMicroseconds": "window_us",
    "overlapSMs": "overlap_sms",
    "longKernelMicroseconds": "long_kernel_us",
}
PARKING_FIELDS = {
    "reserveMiB": "parking_reserve_mib",
    "marginMiB": "parking_margin_mib",
    "stayFactor": "parking_stay_factor",
    "answerSeconds": "parking_answer_seconds",
    "retrySeconds": "parking_retry_seconds",
}


def test_the_opt_in_label_can_be_removed() -> None:
    values = {"node": {"nodeSelector": {"orion/enabled": None, "gpu": "shared"}}}
    selector = chart.pod_specs(chart.objects(values))["orion-node"]["nodeSelector"]
    assert selector == {"kubernetes.io/os": "linux", "gpu": "shared"}


def test_containers_get_only_existing_options() -> None:
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


@pytest.mark.parametrize("milliseconds", [0, None], ids=["never", "absent, as in an older release"])
def test_an_mps_daemon_refreshes_only_if_the_values_say_so(milliseconds: int | None) -> None:
    for value, expected in ((milliseconds, set[str]()), (40, {"--refresh-ms=40"}), (60000, {"--refresh-ms=60000"})):
        found = chart.objects({"mps": {"enabled": True, "refreshMilliseconds": value}})
        arguments = chart.container(found, "orion-mps/mps-daemon")["args"]
        assert {each for each in arguments if each.startswith("--refresh-ms")} == expected


def test_large_numbers_are_written_as_programs_read_them() -> None:
    policy = {"windowMicroseconds": 1000000, "longKernelMicroseconds": 60000000, "overlapSMs": 65535}
    values = {"node": {"agent": {"policy": policy}}, "operator": {"resyncSeconds": 86400000}}
    found = chart.objects(values)
    agent = chart.container(found, "orion-node/agent")["args"]
    assert {"--window-us=1000000", "--long-kernel-us=60000000", "--overlap-sms=65535"} <= set(agent)
    assert "--resync-seconds=86400000" in chart.container(found, "orion-operator/operator")["args"]


@pytest.mark.parametrize(("key", "value", "option"), [
    ("reserveMiB", 16777216, "--parking-reserve-mib=16777216"),
    ("marginMiB", 0, "--parking-margin-mib=0"),
    ("stayFactor", 2.5, "--parking-stay-factor=2.5"),
    ("answerSeconds", 3600, "--parking-answer-seconds=3600"),
    ("retrySeconds", 0.5, "--parking-retry-seconds=0.5"),
])  # fmt: skip
def test_the_values_of_parking_reach_the_agent(key: str, value: float, option: str) -> None:
    found = chart.objects({"node": {"agent": {"parking": {key: value}}}})
    arguments = [each for each in chart.container(found, "orion-node/agent")["args"] if each.startswith("--parking-")]
    assert option in arguments
    assert len(arguments) == len(PARKING_FIELDS)


def test_values_of_an_older_release_leave_parking_to_the_agent() -> None:
    found = chart.objects({"node": {"agent": {"parking": None}}})
    assert "--parking-" not in " ".join(chart.container(found, "orion-node/agent")["args"])


def test_the_charts_nodes_configuration_equals_the_defaults_of_the_model() -> None:
    text = chart.one(chart.objects(), "ConfigMap", "orion-nodes")["data"]["nodes.yaml"]
    assert parse(text, "values").for_labels({"any": "label"}) == NodeSettings()
    known = {field.alias or name for name, field in NodeSettings.model_fields.items()}
    assert set(DEFAULTS["nodeConfiguration"]) == known | {"nodes"}
    assert set(SCHEMA["properties"]["nodeConfiguration"]["properties"]) == known | {"nodes"}
    assert DEFAULTS["nodeConfiguration"]["slots"] == SlotNumbers().model_dump()


def test_the_schema_accepts_what_the_programs_accept() -> None:
    taken = SCHEMA["properties"]["nodeConfiguration"]["properties"]
    for key, words in (("deviceListStrategy", DeviceListStrategy), ("preload", Preload), ("onNoAgent", OnNoAgent)):
        assert set(taken[key]["enum"]) == {str(each) for each in words}
    for amount in (taken["slots"]["properties"]["hp"], taken["slotsByGPU"]["items"]["properties"]["be"]):
        assert (amount["minimum"], amount["maximum"]) == (0, SLOTS_MAX)
    policy = SCHEMA["properties"]["node"]["properties"]["agent"]["properties"]["policy"]["properties"]
    assert set(policy["name"]["enum"]) == set(RELEASE.names)
    for key, field in POLICY_FIELDS.items():
        row = ROWS[field]
        assert (policy[key]["minimum"], policy[key]["maximum"]) == (row.least, row.most), key
    parking = SCHEMA["properties"]["node"]["properties"]["agent"]["properties"]["parking"]["properties"]
    assert parking.keys() == PARKING_FIELDS.keys()
    for key, name in PARKING_FIELDS.items():
        bounds = {type(each): each for each in AgentSettings.model_fields[name].metadata}
        assert (parking[key]["minimum"], parking[key]["maximum"]) == (bounds[Ge].ge, bounds[Le].le), key


def test_settings_of_some_nodes_are_rendered() -> None:
    own = {"slots": {"hp": 2, "be": 3}, "slotsByGPU": [{"gpu": "1", "be": 1}], "gpus": ["0", "1"], "coexist": True}
    values = {
        "nodeConfiguration": {"nodes": [{"matchLabels": {"pool": "a"}, **own}], "driverRoot": "/run/nvidia/driver"}
    }
    text = chart.one(chart.objects(values), "ConfigMap", "orion-nodes")["data"]["nodes.yaml"]
    settings = parse(text, "values").for_labels({"pool": "a"})
    assert (settings.slots_of("GPU-x", 0), settings.slots_of("GPU-x", 1)) == (
        SlotNumbers(hp=2, be=3),
        SlotNumbers(hp=2, be=1),
    )
    assert settings.coexist
    assert settings.driver_root == "/run/nvidia/driver"


def test_the_charts_defaults_for_the_agent_equal_the_agents_own() -> None:
    agent = DEFAULTS["node"]["agent"]
    said = agent["policy"]
    assert said["name"] == RELEASE.names[0]
    assert {field: said[key] for key, field in POLICY_FIELDS.items()} == {
        field: ROWS[field].default for field in POLICY_FIELDS.values()
    }
    assert agent["recoverySeconds"] == AgentSettings().recovery_seconds
    assert agent["driverMemoryLimits"] is AgentSettings().driver_memory_limits
    assert agent["parking"] == {key: getattr(AgentSettings(), field) for key, field in PARKING_FIELDS.items()}
