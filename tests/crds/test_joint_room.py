"""A claim whose requests each have room, but not together on one node."""

from typing import Any

from orion.crds.claims import ClaimShape
from orion.crds.joint_room import lacking_together
from orion.crds.policy import Priority
from orion.crds.room_of_gpus import Gpu, Request, gpus_of, lacking, requests_of, taken_by
from tests.crds.test_room_of_gpus import claimed, gpu, slice_of


def requests(gpus: dict[str, int], **fields: Any) -> list[Request]:
    shape = ClaimShape(priority=Priority.BE, gpus=gpus, **fields)
    return requests_of(shape.template()["spec"]["spec"]["devices"])


def node(name: str, *taken: dict[str, Any], count: int = 1) -> list[Gpu]:
    return gpus_of([slice_of(name, *(gpu(f"gpu-{number}") for number in range(count)))], taken_by(taken))


def test_the_request_that_finds_no_room_behind_the_others_is_named() -> None:
    wants = requests({"one": 1, "two": 1}, time_milli=600)
    gpus = [*node("a"), *node("b", claimed(pool="b", time="500"))]
    assert lacking(gpus, wants) == ""
    assert lacking_together(gpus, wants) == (
        "each request of the claim has room by itself, but no node has room for all together: with one placed, request "
        "two: no node has 1 GPU with be slots 1, time 0.6; the nearest: a, gpu-0: time: 0.6 asked, 0.4 of 1 left"
    )


def test_requests_may_share_a_gpu_and_use_several() -> None:
    assert lacking_together(node("a"), requests({"one": 1, "two": 1}, time_milli=500)) == ""
    assert lacking_together(node("a", count=2), requests({"one": 1, "two": 1}, time_milli=600)) == ""
    assert lacking_together(node("a"), requests({"one": 1}, time_milli=600)) == ""


def test_an_earlier_request_gives_way_as_with_the_scheduler() -> None:
    gpus = node("a", claimed("gpu-1", time="300"), count=2)
    wants = [Request("small", 1, {"time": 700}), Request("large", 1, {"time": 900})]
    assert lacking_together(gpus, wants) == "", "the small one takes the second GPU"


def test_what_takes_too_long_to_find_out_is_not_asserted() -> None:
    wants = [Request(f"r{number}", 4, {"time": 400}) for number in range(7)]
    assert lacking_together(node("a", count=12), wants) == ""
