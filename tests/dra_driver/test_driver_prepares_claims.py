"""Claims get slots: what their containers get, what the agent knows, and what is refused at once."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.dra_driver.conftest import DriverNode, claim, result
from tests.dra_driver.stand_in_kubelet import Failed
from tests.waiting import eventually

GIB = 1 << 30


def mounts(edits: dict[str, Any]) -> dict[str, Path]:
    assert all("ro" in each["options"] for each in edits["mounts"] if each["containerPath"].startswith("/run/orion/"))
    return {each["containerPath"]: Path(each["hostPath"]) for each in edits["mounts"]}


def test_a_claim_gets_a_slot_of_its_gpu(node: DriverNode) -> None:
    _, gpu = node.gpus()
    node.server.put(claim("one", result(gpu, share="s1", consumed={"time": "300", "memory": "1Gi"})))
    (device,) = node.kubelet.prepared("one")
    assert (device.pool_name, device.device_name, list(device.request_names)) == ("node-1", gpu.lower(), ["c0"])
    assert device.share_id == "s1"
    assert list(device.cdi_device_ids) == ["orion.gpu/claim=one_c0"]
    assert node.slots() == {"one s1": f"{gpu}::be-0"}
    edits = node.cdi_files()["orion.gpu/claim=one_c0"]
    assert f"ORION_SIM_VISIBLE_GPUS={gpu}" in edits["env"]
    assert mounts(edits)[f"/run/orion/slots/{gpu}"] == node.root / "gpus" / gpu / "be-0"
    assert mounts(edits)["/etc/ld.so.preload"].read_text().strip() == "/run/orion/lib/liborion_hook.so"
    assert all(path.exists() for path in mounts(edits).values())


@pytest.mark.usefixtures("by_python")
def test_programs_that_python_starts_do_the_same(bare_node: DriverNode) -> None:
    bare_node.begin_agent()
    bare_node.begin_driver()
    test_a_claim_gets_a_slot_of_its_gpu(bare_node)


def test_the_grant_is_in_the_page_before_the_answer(node: DriverNode) -> None:
    gpu, _ = node.gpus()
    node.server.put(claim("one", result(gpu, consumed={"time": "300", "memory": "1Gi"})))
    node.kubelet.prepared("one")
    (slot,) = node.claimed()
    assert (slot.memory_limit_bytes, slot.request) == (GIB, 0.3)
    assert node.pods("one") == [("pod", "uid-pod")]


def test_a_request_for_several_gpus_is_one_cdi_device(node: DriverNode) -> None:
    first, second = node.gpus()
    node.server.put(claim("one", result(first, share="a"), result(second, share="b")))
    devices = node.kubelet.prepared("one")
    assert [list(each.cdi_device_ids) for each in devices] == [["orion.gpu/claim=one_c0"], []]
    edits = node.cdi_files()["orion.gpu/claim=one_c0"]
    assert {f"/run/orion/slots/{gpu}" for gpu in (first, second)} <= mounts(edits).keys()
    assert sorted(node.slots()) == ["one a", "one b"]


def test_two_requests_are_two_slots_also_of_one_gpu(node: DriverNode) -> None:
    gpu, _ = node.gpus()
    alternative = result(gpu, request="c1/second", share="b")
    node.server.put(claim("one", result(gpu, share="a"), alternative))
    assert [list(each.request_names) for each in node.kubelet.prepared("one")] == [["c0"], ["c1"]]
    assert set(node.slots().values()) == {f"{gpu}::be-0", f"{gpu}::be-1"}
    assert sorted(node.cdi_files()) == ["orion.gpu/claim=one_c0", "orion.gpu/claim=one_c1"]


def test_claims_are_prepared_side_by_side_and_get_different_slots(node: DriverNode) -> None:
    gpu, _ = node.gpus()
    node.server.put(*(claim(uid, result(gpu)) for uid in ("one", "two", "three")))
    answers = node.kubelet.prepare("one", "two", "three")
    assert not any(answer.error for answer in answers.values())
    assert set(node.slots().values()) == {f"{gpu}::be-{number}" for number in range(3)}


def test_a_claim_that_is_prepared_again_keeps_its_mounts_as_its_containers_may_run(node: DriverNode) -> None:
    # A kubelet that has restarted prepares a claim again when another pod needs it. A later driver must not remove the
    # files that the containers of the first pod have mounted.
    node.server.put(claim("one", result(node.gpus()[0])))
    node.kubelet.prepared("one")
    before = node.cdi_files()
    node.end("driver")
    node.options += ["--hook-folder", str(node.folder / "hook-of-a-later-driver")]
    node.begin_driver()
    node.kubelet.prepared("one")
    assert node.cdi_files() == before


def test_a_claim_that_is_prepared_again_keeps_its_slot_and_learns_its_new_pods(node: DriverNode) -> None:
    gpu, _ = node.gpus()
    node.server.put(claim("one", result(gpu), role="be"))
    before = node.kubelet.prepared("one")
    slots = node.slots()
    assert node.pods("one") == [("pod", "uid-pod")]
    node.server.put(claim("one", result(gpu), pods=("pod", "second")))
    assert node.kubelet.prepared("one") == before
    assert node.slots() == slots
    assert node.pods("one") == [("pod", "uid-pod"), ("second", "uid-second")]


def test_a_slot_is_free_after_unprepare(node: DriverNode) -> None:
    gpu, _ = node.gpus()
    node.server.put(*(claim(uid, result(gpu, role="hp"), role="hp") for uid in ("one", "two")))
    node.kubelet.prepared("one")
    node.kubelet.unprepare("one")
    assert node.cdi_files() == {}
    assert list(node.records.iterdir()) == []
    node.kubelet.prepared("two")
    assert list(node.slots().values()) == [f"{gpu}::hp-0"]


def test_unprepare_of_an_unknown_claim_succeeds(node: DriverNode) -> None:
    node.kubelet.unprepare("nobody", "nobody-else")


def test_results_of_other_drivers_are_left_to_them(node: DriverNode) -> None:
    gpu, _ = node.gpus()
    node.server.put(claim("one", result(gpu), {**result(gpu), "driver": "other.example"}))
    assert len(node.kubelet.prepared("one")) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"config": []}, "use the class orion-hp or orion-be"),
        ({"role": "king"}, "use the class orion-hp or orion-be"),
        ({"source": "FromClaim"}, "only a DeviceClass may have"),
        ({"result": {"adminAccess": True}}, "asks for adminAccess"),
        ({"result": {"consumed": {"beSlots": "0"}}}, "must claim one such slot, not no slot: set beSlots to 1"),
        ({"result": {"consumed": {"hpSlots": "1"}}}, "must claim one such slot, not hpSlots 1, beSlots 1"),
        ({"uid": "another"}, "was deleted and made again"),
        ({"allocation": None}, "has no device; delete the pod"),
        ({"gone": True}, "claim n/claim-one does not exist any more; delete the pod"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_never_be_prepared_is_refused_at_once(
    node: DriverNode, changes: dict[str, Any], sentence: str
) -> None:
    gpu, _ = node.gpus()
    made = claim("one", result(gpu, **changes.get("result", {})), role=changes.get("role", "be"))
    if "config" in changes:
        made["status"]["allocation"]["devices"]["config"] = changes["config"]
    if "source" in changes:
        made["status"]["allocation"]["devices"]["config"][0]["source"] = changes["source"]
    if "allocation" in changes:
        made["status"]["allocation"] = None
    made["metadata"]["uid"] = changes.get("uid", "one")
    if "gone" not in changes:
        node.server.put(made)
    began = time.monotonic()
    with pytest.raises(Failed, match=sentence):
        node.kubelet.prepared("one")
    assert time.monotonic() - began < 20
    assert node.cdi_files() == {}
    assert node.slots() == {}


CONFIGS: dict[str, Any] = {
    "later": {"apiVersion": "orion.gpu/v2", "kind": "Role", "role": "be"},
    "long": {"role": "be" * 5_000},
    "longer": {"role": "be", "rubbish": {"of": ["every"] * 2_000}},
    "text": "be",
    "nothing": None,
}


def test_config_of_a_later_version_or_of_10_kib_is_refused_in_a_short_sentence(node: DriverNode) -> None:
    gpu, _ = node.gpus()
    for uid, parameters in CONFIGS.items():
        made = claim(uid, result(gpu))
        made["status"]["allocation"]["devices"]["config"][0]["opaque"]["parameters"] = parameters
        node.server.put(made)
    answers = node.kubelet.prepare(*CONFIGS)
    for uid, answer in answers.items():
        assert f"the DeviceClass of request c0 in claim n/claim-{uid} does not say one role" in answer.error
        assert len(answer.error) < 512
    assert node.slots() == {}
    foreign = claim("foreign", result(gpu))
    strange = {"source": "FromClaim", "opaque": {"driver": "other.example", "parameters": CONFIGS["longer"]}}
    foreign["status"]["allocation"]["devices"]["config"].append(strange)
    node.server.put(foreign)
    node.kubelet.prepared("foreign")


def test_all_gpus_of_a_node_are_one_request_and_the_role_is_that_of_the_alternative_that_was_chosen(
    node: DriverNode,
) -> None:
    """What `allocationMode: All` and `firstAvailable` lead to."""
    first, second = node.gpus()
    every = claim("all", result(first, share="a"), result(second, share="b"))
    chosen = claim("chosen", result(first, request="c0/second", share="c"), result(first, "hp", "c1/first", "d"))
    given = {role: {"driver": "orion.gpu", "parameters": {"role": role}} for role in ("hp", "be")}
    chosen["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClass", "requests": ["c0/first", "c1/first"], "opaque": given["hp"]},
        {"source": "FromClass", "requests": ["c0/second", "c1/second"], "opaque": given["be"]},
    ]
    node.server.put(every, chosen)
    answers = node.kubelet.prepare("all", "chosen")
    assert [list(each.request_names) for each in answers["all"].devices] == [["c0"], ["c0"]]
    assert [list(each.request_names) for each in answers["chosen"].devices] == [["c0"], ["c1"]]
    assert [list(each.cdi_device_ids) for each in answers["chosen"].devices] == [
        ["orion.gpu/claim=chosen_c0"],
        ["orion.gpu/claim=chosen_c1"],
    ]
    slots = node.slots()
    assert {slots["all a"].partition("::")[0], slots["all b"].partition("::")[0]} == {first, second}
    assert slots["chosen c"].startswith(f"{first}::be-")
    assert slots["chosen d"] == f"{first}::hp-0"


def test_cdi_annotations_are_refused_as_the_kubelet_passes_none(node: DriverNode) -> None:
    gpu, _ = node.gpus()
    node.configure(deviceListStrategy="cdi-annotations")
    node.end("driver")
    node.begin_driver()
    node.server.put(claim("one", result(gpu)))
    with pytest.raises(Failed, match="set it to cdi-cri"):
        node.kubelet.prepared("one")


def test_the_health_of_all_gpus_is_reported(node: DriverNode) -> None:
    assert node.kubelet.health() == {gpu.lower(): (True, "") for gpu in node.gpus()}


def test_a_kubelet_that_knows_only_the_stream_of_kubernetes_1_36_learns_the_health(bare_node: DriverNode) -> None:
    node = bare_node
    node.kubelet.health_versions = ("v1alpha1.DRAResourceHealth",)
    node.begin_agent()
    node.begin_driver()
    first, second = node.gpus()
    assert node.kubelet.health() == {gpu.lower(): (True, "") for gpu in (first, second)}
    node.fault("lose", first)
    eventually(lambda: not node.kubelet.health()[first.lower()][0], what="the lost GPU is sick")
    assert node.kubelet.health()[second.lower()] == (True, "")
