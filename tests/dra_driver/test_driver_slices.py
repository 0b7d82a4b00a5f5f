"""What a node's slice says of its GPUs. tests/cluster has the API server that stores it."""

from dataclasses import replace

import pytest

from orion.dra_driver import slices
from orion.injection.slots import Slot
from orion.injection.snapshot import AdvertisedGPU, Snapshot

GIB = 1 << 30


def gpu(number: int = 0, **fields: object) -> AdvertisedGPU:
    uuid = f"GPU-0000000{number}-0000-4000-8000-00000000000A"
    slots = (Slot(uuid, "hp", 0), *(Slot(uuid, "be", each) for each in range(3)))
    made = AdvertisedGPU(uuid, index=number, slots=slots, memory_bytes=80 * GIB, model="A model")
    return replace(made, **fields)  # type: ignore[arg-type]


def devices(*gpus: AdvertisedGPU, slot_memory: int = 512 << 20) -> list[dict[str, object]]:
    return slices.devices(Snapshot({each.uuid: each for each in gpus}), slot_memory)


def test_a_gpu_is_a_device_that_claims_share() -> None:
    (device,) = devices(gpu(numa_node=1))
    memory = {"default": "0", "validRange": {"min": "0", "max": "79872Mi", "step": "1Mi"}}
    places = ["0", "1", "2", "4", "8", "16", "32", "64"]
    assert device == {
        "name": "gpu-00000000-0000-4000-8000-00000000000a",
        "allowMultipleAllocations": True,
        "attributes": {
            "uuid": {"string": gpu().uuid},
            "model": {"string": "A model"},
            "mode": {"string": "timeslice"},
            "simulated": {"bool": False},
            "resource.kubernetes.io/numaNode": {"int": 1},
        },
        "capacity": {
            "time": {
                "value": "1000",
                "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "1000", "step": "1"}},
            },
            "memory": {"value": "79872Mi", "requestPolicy": memory},
            "hpSlots": {"value": "1", "requestPolicy": {"default": "0", "validValues": ["0", "1"]}},
            "beSlots": {"value": "3", "requestPolicy": {"default": "1", "validValues": ["0", "1"]}},
            "spread": {"value": "127", "requestPolicy": {"default": "0", "validValues": places}},
        },
    }


def test_versions_and_places_have_the_form_that_selectors_compare() -> None:
    (device,) = devices(
        gpu(
            compute_capability="9.0",
            driver_version="580.95.05",
            pci_bus_id="0000:17:00.0",
            pcie_root="pci0000:16",
        )
    )
    attributes = device["attributes"]
    assert attributes["computeCapability"] == {"version": "9.0.0"}  # type: ignore[index]
    assert attributes["driverVersion"] == {"version": "580.95.5"}  # type: ignore[index]
    assert attributes["resource.kubernetes.io/pciBusID"] == {"string": "0000:17:00.0"}  # type: ignore[index]
    assert attributes["resource.kubernetes.io/pcieRoot"] == {"string": "pci0000:16"}  # type: ignore[index]
    (strange,) = devices(gpu(driver_version="r580-beta"))
    assert "driverVersion" not in strange["attributes"]  # type: ignore[operator]


def test_a_capacity_of_nothing_is_left_out() -> None:
    without_hp = gpu().slots[1:]
    (device,) = devices(gpu(slots=without_hp, memory_bytes=GIB))
    assert set(device["capacity"]) == {"time", "beSlots", "spread"}  # type: ignore[call-overload]


def test_a_closed_slot_is_for_nobody_and_a_successor_has_one_more() -> None:
    two = (Slot(gpu().uuid, "hp", 1), *gpu().slots)
    offered = [
        device["capacity"]["hpSlots"]["value"]  # type: ignore[index]
        for (device,) in (devices(gpu(slots=two)), devices(gpu(slots=two, closed=frozenset(two[:1]))))
    ]
    assert offered == ["2", "1"]


@pytest.mark.parametrize(
    ("fields", "taints"),
    [
        ({}, None),
        ({"healthy": False, "reason": "Xid79"}, [{"key": "orion.gpu/unhealthy", "value": "Xid79"}]),
        ({"cordoned": True, "reason": "Cordoned"}, [{"key": "orion.gpu/cordoned", "value": "Cordoned"}]),
        (
            {"healthy": False, "cordoned": True, "reason": "Xid79"},
            [{"key": "orion.gpu/unhealthy", "value": "Xid79"}, {"key": "orion.gpu/cordoned"}],
        ),
    ],
)
def test_taints_keep_new_claims_away_and_evict_nobody(
    fields: dict[str, object], taints: list[dict[str, str]] | None
) -> None:
    (device,) = devices(gpu(0, **fields))
    expected = None if taints is None else [{**each, "effect": "NoSchedule"} for each in taints]
    assert device.get("taints") == expected


def test_gpus_that_nvlink_joins_have_a_number_in_common() -> None:
    first, second, third, fourth, alone = (gpu(number) for number in range(5))
    joined = [
        replace(first, linked=frozenset({second.uuid})),
        second,
        replace(third, linked=frozenset({fourth.uuid})),
        fourth,
        alone,
    ]
    groups = [device["attributes"].get("nvlink") for device in devices(*joined)]  # type: ignore[attr-defined]
    assert groups == [{"int": 0}, {"int": 0}, {"int": 1}, {"int": 1}, None]


def test_different_groups_have_different_numbers_however_the_links_are_listed() -> None:
    links = {0: (5,), 1: (6,), 2: (7,), 3: (5, 6), 4: (8,)}
    uuids = [gpu(number).uuid for number in range(9)]
    gpus = [gpu(number, linked=frozenset(uuids[each] for each in links.get(number, ()))) for number in range(9)]
    groups = [device["attributes"]["nvlink"]["int"] for device in devices(*gpus)]  # type: ignore[index]
    assert groups == [0, 0, 1, 0, 2, 0, 0, 1, 2]


def test_slices_of_like_nodes_differ_in_uuids_and_addresses_alone() -> None:
    """An autoscaler copies them, and its copy stands for a new node."""

    def on(node: int) -> list[dict[str, object]]:
        uuids = [f"GPU-{node}000000{number}-0000-4000-8000-00000000000A" for number in range(4)]
        return devices(
            *(
                gpu(
                    number,
                    uuid=uuid,
                    slots=(Slot(uuid, "hp", 0), Slot(uuid, "be", 0)),
                    linked=frozenset({uuids[number ^ 1]}),
                    pci_bus_id=f"0000:{node}{number}:00.0",
                    pcie_root=f"pci0000:{node}{number}",
                    numa_node=number // 2,
                )
                for number, uuid in reversed(list(enumerate(uuids)))
            )
        )

    def without_its_own(device: dict[str, object]) -> dict[str, object]:
        own = {"uuid", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot"}
        attributes: dict[str, object] = device["attributes"]  # type: ignore[assignment]
        assert own <= attributes.keys()
        return {**device, "name": "", "attributes": {name: attributes[name] for name in attributes.keys() - own}}

    one, other = on(1), on(2)
    assert {str(device["name"]) for device in one}.isdisjoint(str(device["name"]) for device in other)
    assert list(map(without_its_own, one)) == list(map(without_its_own, other))


def test_what_the_api_server_adds_and_how_it_writes_amounts_makes_no_difference() -> None:
    (wanted,) = devices(gpu(healthy=False, reason="Xid79"))
    stored = {**wanted, "bindsToNode": False}
    stored["taints"] = [{**wanted["taints"][0], "timeAdded": "2026-01-01T00:00:00Z"}]  # type: ignore[index]
    time = wanted["capacity"]["time"]  # type: ignore[index]
    stored["capacity"] = {**wanted["capacity"], "time": {**time, "value": "1k"}}  # type: ignore[dict-item]
    assert slices.same(wanted, stored)
    assert not slices.same(wanted, {**stored, "allowMultipleAllocations": None})
    del stored["allowMultipleAllocations"]
    assert not slices.same(wanted, stored)
