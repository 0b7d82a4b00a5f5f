"""What a claim lacks on each GPU, compared with what the scheduler accounts for."""

from typing import Any

import pytest

from orion.crds.claims import ClaimShape
from orion.crds.places import PLACES, SPREAD, WHOLE
from orion.crds.policy import Mode, Priority
from orion.crds.room_of_gpus import explained, gpus_of, lacking, requests_of, taken_by

GIB = 1 << 30


def capacity(value: str, default: str, step: str = "") -> dict[str, Any]:
    policy = {"default": default} | ({"validRange": {"min": "0", "max": value, "step": step}} if step else {})
    return {"value": value, "requestPolicy": policy}


def slice_of(node: str, *devices: dict[str, Any], generation: int = 1, driver: str = "orion.gpu") -> dict[str, Any]:
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {"spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}}


def gpu(name: str = "gpu-0", mode: str = "timeslice", *taints: str) -> dict[str, Any]:
    return {
        "name": name,
        "attributes": {"mode": {"string": mode}},
        "capacity": {
            "time": capacity("1000", "0", "1"),
            "memory": capacity("80Gi", "0", "1Mi"),
            "hpSlots": capacity("1", "0"),
            "beSlots": capacity("8", "1"),
            SPREAD: capacity(str(WHOLE), "0"),
        },
        "taints": [{"key": key, "effect": "NoSchedule"} for key in taints],
    }


def claimed(device: str = "gpu-0", pool: str = "n", **amounts: str) -> dict[str, Any]:
    result = {"driver": "orion.gpu", "pool": pool, "device": device, "consumedCapacity": amounts}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


def said(
    shape: ClaimShape, *devices: dict[str, Any], claims: tuple[dict[str, Any], ...] = (), slices: Any = None
) -> list[str]:
    requests = requests_of(shape.template()["spec"]["spec"]["devices"])
    return explained(gpus_of(slices or [slice_of("n", *devices)], taken_by(claims)), requests)


def be(count: int = 1, **fields: Any) -> ClaimShape:
    return ClaimShape(priority=Priority.BE, gpus={"train": count}, **fields)


def test_time_memory_and_slots_that_are_not_left_are_named() -> None:
    taken = claimed(time="600", memory="60Gi", beSlots="8", hpSlots="1")
    head, row = said(be(time_milli=500, memory_bytes=40 * GIB), gpu(), claims=(taken,))
    assert head == ("request train: no node has 1 GPU with be slots 1, time 0.5, memory 40Gi; the nearest:")
    assert row == (
        "  n, gpu-0: time: 0.5 asked, 0.4 of 1 left; memory: 40Gi asked, 20Gi of 80Gi left; "
        "be slots: 1 asked, 0 of 8 left"
    )


def test_places_are_never_what_is_missing() -> None:
    full, of_one = claimed(beSlots="8", spread="127"), claimed(beSlots="1", spread="64")
    for claims in ((full,), (of_one,)):
        assert said(be(places=PLACES), gpu(), claims=claims) == said(be(), gpu(), claims=claims)
    assert said(be(places=PLACES), gpu(), claims=(full,))[1] == "  n, gpu-0: be slots: 1 asked, 0 of 8 left"


def test_the_gpu_that_lacks_least_comes_first() -> None:
    full = claimed("gpu-0", time="1000", beSlots="8")
    half = claimed("gpu-1", time="600")
    _, *rows = said(be(time_milli=500), gpu("gpu-0"), gpu("gpu-1"), claims=(full, half))
    assert [row.split(":")[0] for row in rows] == ["  n, gpu-1", "  n, gpu-0"]


def test_memory_is_rounded_up_to_the_step() -> None:
    almost = claimed(memory=str(80 * GIB - (1 << 20)))
    assert len(said(be(memory_bytes=1), gpu(), claims=(almost,))) == 1  # it fits
    assert "memory: 1Mi asked, 0 of 80Gi left" in said(be(memory_bytes=1), gpu(), claims=(claimed(memory="80Gi"),))[1]


@pytest.mark.parametrize(
    ("shape", "device", "reason"),
    [
        (be(2), gpu(mode="mps"), "its mode is mps"),
        (be(mode=Mode.MPS), gpu(), "its mode is timeslice"),
        (be(), gpu("gpu-0", "timeslice", "orion.gpu/cordoned"), "it has the taint orion.gpu/cordoned"),
    ],
)
def test_modes_and_taints_are_named(shape: ClaimShape, device: dict[str, Any], reason: str) -> None:
    assert reason in said(shape, device)[1]


def test_several_gpus_must_be_on_one_node() -> None:
    slices = [slice_of("a", gpu()), slice_of("b", gpu())]
    head, *rows = said(be(2), slices=slices)
    assert "no node has 2 GPUs" in head
    assert rows == ["  a, gpu-0: has room", "  b, gpu-0: has room"]
    (fits,) = said(be(2), gpu("gpu-0"), gpu("gpu-1"))
    assert fits.startswith("request train: node n has room on 2 GPUs, so something else keeps the pod away")


def test_a_selector_is_named_and_not_evaluated() -> None:
    *_, last = said(be(selector="1 == 2"), gpu(), claims=(claimed(beSlots="8"),))
    assert last == "  a GPU must also fulfil 1 == 2, which was not checked here"


def test_a_selector_is_named_although_there_is_room() -> None:
    room, last = said(be(selector="1 == 2"), gpu())
    assert room.startswith("request train: node n has room on 1 GPU")
    assert last == "  a GPU must also fulfil 1 == 2, which was not checked here"


def test_gpus_of_a_request_must_have_the_same_value_of_its_attribute() -> None:
    devices = [gpu(f"gpu-{number}") for number in range(3)]
    for device, value in zip(devices, (1, 2, None), strict=True):
        device["attributes"] |= {"nvlink": {"int": value}} if value else {}
    wants = be(2, in_common="orion.gpu/nvlink")
    head, *rows = said(wants, *devices)
    assert head == "request train: no node has 2 GPUs with be slots 1 and the same orion.gpu/nvlink; the nearest:"
    assert rows == [
        "  n, gpu-0: has room, orion.gpu/nvlink 1",
        "  n, gpu-1: has room, orion.gpu/nvlink 2",
        "  n, gpu-2: it has no orion.gpu/nvlink",
    ]
    devices[2]["attributes"]["nvlink"] = {"int": 2}
    assert said(wants, *devices)[0].startswith("request train: node n has room on 2 GPUs")


def test_old_generations_and_other_drivers_do_not_count() -> None:
    slices = [
        slice_of("n", gpu("gpu-old"), generation=1),
        slice_of("n", gpu("gpu-new", "mps"), generation=2),
        slice_of("n", gpu("gpu-other"), driver="gpu.example.com"),
    ]
    assert [each.name for each in gpus_of(slices, {})] == ["gpu-new"]
    assert said(be(), slices=[slice_of("n", driver="other")])[0].startswith("no node offers a GPU to claims")


def test_one_sentence_names_only_the_requests_that_no_node_can_fulfil() -> None:
    shape = ClaimShape(priority=Priority.BE, gpus={"one": 1, "two": 2})
    requests = requests_of(shape.template()["spec"]["spec"]["devices"])
    gpus = gpus_of([slice_of("n", gpu("gpu-0"), gpu("gpu-1"))], taken_by([claimed("gpu-1", beSlots="8")]))
    assert lacking(gpus, requests) == (
        "request two: no node has 2 GPUs with be slots 1; the nearest: n, gpu-0: has room, or n, gpu-1: be slots: "
        "1 asked, 0 of 8 left"
    )
    assert lacking(gpus, requests[:1]) == ""
    assert lacking([], requests).startswith("no node offers a GPU to claims")


def test_claims_of_several_pages_add_up() -> None:
    taken = taken_by([claimed(time="300", beSlots="1")], taken_by([claimed(time="400", beSlots="1")]))
    (only,) = gpus_of([slice_of("n", gpu())], taken)
    assert only.taken == {"time": 700, "beSlots": 2}
