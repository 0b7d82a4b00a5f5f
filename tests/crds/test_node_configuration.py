"""The configuration file of nodes: defaults, settings of one node, and errors for invalid files."""

import pytest

from orion.crds.node_configuration import DeviceListStrategy, NodeSettings, SlotNumbers, parse
from orion.errors import Unreadable

FILE = """
version: v1
slots: {hp: 1, be: 6}
slotsByGPU:
  - {gpu: "1", be: 2}
deviceListStrategy: cdi-cri
nodes:
  - matchLabels: {pool: a}
    gpus: [GPU-a, "3"]
    slots: {hp: 2, be: 4}
  - matchLabels: {pool: a, kubernetes.io/hostname: node-7}
    slots: {be: 2}
"""


def test_a_section_overrides_the_settings_for_all_nodes() -> None:
    other, own = parse(FILE, "file").for_labels({"pool": "b"}), parse(FILE, "file").for_labels({"pool": "a", "x": "y"})
    assert other.slots_of("GPU-x", 0) == SlotNumbers(hp=1, be=6)
    assert other.slots_of("GPU-x", 1) == SlotNumbers(hp=1, be=2)
    assert other.includes("GPU-x", 7)
    assert own.slots_of("GPU-a", 0) == SlotNumbers(hp=2, be=4)
    assert own.slots_of("GPU-a", 1) == SlotNumbers(hp=2, be=2)
    assert own.device_list_strategy is DeviceListStrategy.CDI_CRI
    assert [own.includes("GPU-a", 0), own.includes("GPU-b", 3), own.includes("GPU-b", 0)] == [True, True, False]


def test_the_last_section_that_matches_applies_field_by_field() -> None:
    found = parse(FILE, "file").for_labels({"pool": "a", "kubernetes.io/hostname": "node-7"})
    assert found.slots == SlotNumbers(hp=1, be=2)
    assert found.gpus == ["GPU-a", "3"]
    assert parse(FILE, "file").for_labels({"kubernetes.io/hostname": "node-7"}).slots == SlotNumbers(hp=1, be=6)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("slots: {hp: 1}", "version"),
        ("version: v2", "version"),
        ("version: v1\nslot: {hp: 1}", "slot"),
        ("version: v1\nslots: {hp: 65}", "slots.hp"),
        ("version: v1\ncoexist: 'yes'", "coexist"),
        ("version: v1\nnodes: [{matchLabels: {a: b}, slots: {pb: 1}}]", "nodes.*slots"),
        ("version: v1\nnodes: [{slots: {be: 1}}]", "matchLabels"),
        ("version: v1\nnodes: [{matchLabels: {}}]", "matchLabels"),
        ("version: v1\nnodes: {node-a: {slots: {be: 1}}}", "nodes"),
        ("- 1", "version"),
        ("a: [", "YAML"),
    ],
)
def test_an_invalid_file_is_rejected_with_the_path(text: str, named: str) -> None:
    with pytest.raises(Unreadable, match=named):
        parse(text, "file")


def test_an_absent_field_has_its_default() -> None:
    assert NodeSettings().slots_of("GPU-x", 0) == SlotNumbers(hp=1, be=8)
