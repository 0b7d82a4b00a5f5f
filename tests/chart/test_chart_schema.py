"""The schema accepts exactly the chart's values and rejects all others."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from testbed.errors import Failed
from tests.chart import rendered_chart as chart
from tests.chart.chart_values import DEFAULTS, FREE_MAPS, LEAVES, MPS, SCHEMA, set_at


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the target of a reference."""
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = SCHEMA["definitions"][name] if name else schema
    return found


def compare(schema: dict[str, Any], values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths at which the schema has other keys than values.yaml."""
    properties = resolved(schema).get("properties")
    if not properties:
        return
    if resolved(schema).get("additionalProperties") is not False:
        yield f"{path or 'the top level'} accepts any key"
    if values and path.rpartition(".")[2] not in FREE_MAPS:
        yield from (f"{path}.{key} is missing in schema or values" for key in properties.keys() ^ values.keys())
    for key, value in values.items():
        if isinstance(value, Mapping) and key in properties:
            yield from compare(properties[key], value, f"{path}.{key}".strip("."))


def test_the_schema_knows_exactly_the_keys_of_values() -> None:
    whole = DEFAULTS | {"global": {}, "enabled": True}  # a chart that depends on Orion's chart may set these two
    assert list(compare(SCHEMA, whole)) == []


def test_an_unknown_key_is_refused_anywhere() -> None:
    folders = {"", *(path.rpartition(".")[0] for path in LEAVES)}
    values: dict[str, Any] = {}
    for folder in folders:
        values = set_at(values, f"{folder}.misspelt".strip("."), 1)
    with pytest.raises(Failed) as refused:
        chart.text(values)
    said = re.findall(r"at '/?([^']*)': additional properties 'misspelt' not allowed", str(refused.value))
    assert {place.replace("/", ".") for place in said} == folders


def test_a_value_of_another_type_is_refused_anywhere() -> None:
    values: dict[str, Any] = {}
    for path in LEAVES:
        values = set_at(values, path, [[1]])
    with pytest.raises(Failed) as refused:
        chart.text(values)
    said = {place.replace("/", ".") for place in re.findall(r"at '/([^']*)'", str(refused.value))}
    assert [path for path in LEAVES if not any(f"{place}.".startswith(f"{path}.") for place in said)] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.digest", "latest"),
        ("image.tag", "a b"),
        ("image.registry", "https://registry.example.com"),
        ("image.repository", "/orion"),
        ("image.repository", "orion/"),
        ("simulatedGPUs", 17),
        ("nodeConfiguration.slots.be", 65),
        ("nodeConfiguration.nodes", [{"matchLabels": {"pool": "a"}, "slot": 1}]),
        ("nodeConfiguration.nodes", [{"slots": {"be": 1}}]),
        ("nodeConfiguration.nodes", {"node-a": {"slots": {"be": 1}}}),
        ("nodeConfiguration.driverRoot", "run"),
        ("node.kubeletRoot", "/var/lib/kubelet/"),
        ("node.kubeletRoot", "/"),
        ("fullnameOverride", "1st"),
        ("node.maxUnavailable", "0%"),
        ("node.agent.policy.request", 0.4),
        ("node.agent.metricsPort", 65536),
        ("mps.refreshMilliseconds", 1),
        ("webhook.timeoutSeconds", 31),
        ("webhook.replicas", 0),
        ("certificates.source", "self"),
        ("certificates.given.caBundle", "no PEM"),
        ("commonLabels", {"app.kubernetes.io/name": "a"}),
        ("operator.podLabels", {"app.kubernetes.io/component": "a"}),
        ("networkPolicy.apiServerCIDRs", ["10.0.0.1"]),
        ("webhook.apiServerCIDRs", ["10.0.0.1"]),
        ("sharesPerNamespace", 0),
    ],
)
def test_invalid_values_are_rejected(path: str, value: Any) -> None:
    with pytest.raises(Failed, match="don't meet the specifications of the schema"):
        chart.text(set_at({}, path, value))


def test_an_optional_map_may_be_removed() -> None:
    """`--set node.nodeSelector=null` removes a map."""
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


def sections(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the required keys: templates read them without a check that they exist."""
    for key in schema.get("required", ()):
        yield path + key
        yield from sections(schema["properties"][key], f"{path}{key}.")


def mappings(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield path + key
            yield from mappings(value, f"{path}{key}.")


def test_a_section_cannot_be_removed_and_all_else_can() -> None:
    """`--set uninstall=null` removes a section. The test does not try sections inside a removed section."""
    needed = set(sections(SCHEMA))
    assert {key for key in DEFAULTS if "properties" in resolved(SCHEMA["properties"][key])} <= needed
    for depth in {path.count(".") for path in needed}:
        paths, values = [path for path in needed if path.count(".") == depth], dict[str, Any]()
        for path in paths:
            values = set_at(values, path, None)
        with pytest.raises(Failed) as refused:
            chart.text(values)
        said = re.findall(r"at '/?([^']*)': missing propert(?:y|ies) (.*)", str(refused.value))
        missing = {f"{place.replace('/', '.')}.{key}".strip(".") for place, keys in said
                   for key in re.findall(r"'([^']+)'", keys)}  # fmt: skip
        assert missing == set(paths)
    free: dict[str, Any] = {}
    for path in sorted(set(mappings(DEFAULTS)) - needed, reverse=True):  # a key inside an earlier one
        free = set_at(free, path, None)
    assert chart.objects(free)


def test_a_chart_that_depends_on_this_one_may_set_its_own_values() -> None:
    assert chart.text({"global": {"storageClass": "fast"}, "enabled": True}) == chart.text()
