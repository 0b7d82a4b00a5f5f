"""Admission where GPUs are given by ResourceClaims: the claim's shape, its template, and claims that people wrote."""

import json
from typing import Any

import pytest

from orion.crds.annotations import PRIORITY_LABEL, ROLLOUT
from orion.crds.claims import SHAPE, ClaimShape
from orion.crds.places import PARTS, PLACES
from orion.crds.policy import Priority
from orion.operator.webhook.decisions import Decision, Outcome, Reason
from tests.operator.admitted_pod import BE, GPU, HP, TWO_GPUS, decide, env, pinned, pod, share

NOT_MPS = 'device.attributes["orion.gpu"].mode != "mps"'


def claimed(given: dict[str, Any], *shares: Any, **defaults: Any) -> Decision:
    return decide(given, *shares, allocation="dra", **defaults)


def shape(decision: Decision) -> ClaimShape:
    return ClaimShape.from_json(decision.pod["metadata"]["annotations"][SHAPE])


def request(decision: Decision, name: str = "c0") -> dict[str, Any]:
    """What a container's request asks for in the template of the pod's claim; of alternatives, the last."""
    devices = shape(decision).template()["spec"]["spec"]["devices"]
    (found,) = [each for each in devices["requests"] if each["name"] == name]
    exactly = found["firstAvailable"][-1] if "firstAvailable" in found else found["exactly"]
    return {key: value for key, value in exactly.items() if key != "name"}


def uses(decision: Decision, index: int = 0, of: str = "containers") -> list[dict[str, str]]:
    found: list[dict[str, str]] = decision.pod["spec"][of][index].get("resources", {}).get("claims", [])
    return found


def by_hand(*containers: dict[str, Any], name: str = "orion", **source: str) -> dict[str, Any]:
    """A pod with a claim that somebody wrote."""
    source = source or {"resourceClaimName": "mine"}
    return pod(*containers, annotations=BE, resourceClaims=[{"name": name, **source}])


USES = {"resources": {"claims": [{"name": "orion", "request": "gpu"}]}}


def test_a_pod_gets_one_claim_in_place_of_its_gpus() -> None:
    decision = claimed(pod(GPU, annotations=BE))
    assert decision.pod["spec"]["resourceClaims"] == [
        {"name": "orion", "resourceClaimTemplateName": shape(decision).template_name}
    ]
    assert decision.pod["spec"]["containers"][0]["resources"] == {
        "limits": {},
        "claims": [{"name": "orion", "request": "c0"}],
    }
    assert [each["name"] for each in env(decision)] == ["LD_PRELOAD"]
    assert decision.pod["metadata"]["labels"][PRIORITY_LABEL] == "be"
    assert "affinity" not in decision.pod["spec"]
    assert "gets 1 slot by request c0 of the pod's claim in place of 1 nvidia.com/gpu" in " ".join(decision.because)


def test_an_hp_pod_leaves_the_slots_of_rolling_updates_to_others() -> None:
    for given in (pod(), {**by_hand(USES), "metadata": pod()["metadata"]}):
        decision = claimed(given)
        required = decision.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        none = {"key": ROLLOUT, "operator": "DoesNotExist"}
        assert required["nodeSelectorTerms"] == [{"matchExpressions": [none]}]


def test_the_claim_asks_for_what_the_share_requests() -> None:
    chat = share("chat", app="chat", compute={"request": 0.9}, memory={"request": "8Gi", "limit": "20Gi"})
    assert request(claimed(pod(), chat)) == {
        "deviceClassName": "orion-hp",
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {"hpSlots": "1", "beSlots": "0", "time": "900", "memory": str(8 << 30)}},
        "selectors": [],
    }
    only_limit = share("chat", "be", app="chat", memory={"limit": "20Gi"})
    amounts = request(claimed(pod(annotations=BE), only_limit))["capacity"]["requests"]
    assert amounts == {"beSlots": "1", "hpSlots": "0", "memory": str(20 << 30)}
    assert request(claimed(pod(annotations=BE)))["capacity"]["requests"] == {"beSlots": "1", "hpSlots": "0"}


def test_the_first_request_asks_for_each_place_of_a_gpu_and_at_last_for_none() -> None:
    decision = claimed(pod(GPU, TWO_GPUS, annotations=BE), share("chat", "be", app="chat", compute={"request": 0.1}))
    first, second = shape(decision).template()["spec"]["spec"]["devices"]["requests"]
    alternatives = first["firstAvailable"]
    names = [each["name"] for each in alternatives]
    assert names == [*(f"place-{number}" for number in range(1, PLACES + 1)), "any"]
    asked = [each["capacity"]["requests"] for each in alternatives]
    assert [int(each.get("spread", 0)) for each in asked] == [*PARTS[:PLACES], 0]
    same = {"beSlots": "1", "hpSlots": "0", "time": "100"}
    assert all(same.items() <= each.items() for each in asked)
    assert second["exactly"]["count"] == 2
    assert "spread" not in second["exactly"]["capacity"]["requests"]
    (asks_for_none,) = shape(claimed(pod(), spread=False)).template()["spec"]["spec"]["devices"]["requests"]
    assert set(asks_for_none) == {"name", "exactly"}


def test_shapes_of_the_former_release_have_the_same_template() -> None:
    former = '{"format":1,"gpus":{"c0":1},"memoryBytes":0,"priority":"be","timeMilli":0}'
    assert ClaimShape.from_json(former).as_json() == former


def test_pods_of_one_shape_have_one_template_and_a_changed_share_another() -> None:
    before, after = (share("chat", app="chat", memory={"limit": f"{size}Gi"}) for size in (8, 9))
    first, same, other = (shape(claimed(pod(), each)).template_name for each in (before, before, after))
    assert first == same != other
    assert first.startswith("orion-hp-")
    renamed = share("renamed", app="chat", memory={"limit": "8Gi"})
    assert shape(claimed(pod(), renamed)).template_name == first


def test_selectors_and_common_attributes_of_a_share() -> None:
    devices = {"selector": 'device.attributes["orion.gpu"].model == "H200"', "inCommon": "orion.gpu/nvlink"}
    decision = claimed(pod(GPU, TWO_GPUS), share("chat", app="chat", devices=devices))
    of_devices = shape(decision).template()["spec"]["spec"]["devices"]
    assert of_devices["constraints"] == [{"requests": ["c1"], "matchAttribute": "orion.gpu/nvlink"}]
    one, two = (request(decision, name) for name in ("c0", "c1"))
    assert one["selectors"] == [{"cel": {"expression": devices["selector"]}}]
    assert two["selectors"] == [{"cel": {"expression": each}} for each in (NOT_MPS, devices["selector"])]
    assert two["count"] == 2


def test_a_share_with_sm_share_needs_mode_mps_and_one_gpu() -> None:
    part = share("chat", app="chat", smShare=0.5)
    assert request(claimed(pod(), part))["selectors"] == [
        {"cel": {"expression": 'device.attributes["orion.gpu"].mode == "mps"'}}
    ]
    refused = claimed(pod(TWO_GPUS), part)
    assert refused.reason is Reason.WRONG_AMOUNT
    assert refused.of_cluster


def test_an_init_container_uses_the_request_of_an_app_container_and_a_sidecar_its_own() -> None:
    sidecar = {"name": "side", "restartPolicy": "Always", **GPU}
    decision = claimed(pod(TWO_GPUS, GPU, annotations=BE, initContainers=[{"name": "init", **GPU}, sidecar]))
    assert shape(decision).gpus == {"c0": 2, "c1": 1, "side": 1}
    assert uses(decision, 0, "initContainers") == [{"name": "orion", "request": "c1"}]
    assert uses(decision, 1, "initContainers") == [{"name": "orion", "request": "side"}]


def test_a_share_that_has_changed_between_two_reviews_changes_the_claim() -> None:
    before, after = (share("chat", app="chat", memory={"limit": f"{size}Gi"}) for size in (8, 9))
    first = claimed(pod(), before)
    second = claimed(dict(first.pod), after)
    assert second.outcome is Outcome.PATCHED
    assert second.pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == shape(second).template_name
    assert shape(second).memory_bytes == 9 << 30
    assert claimed(dict(second.pod), after).outcome is Outcome.UNCHANGED


def test_a_container_that_another_webhook_has_added_joins_the_claim() -> None:
    after = json.loads(json.dumps(claimed(pod(GPU, annotations=BE)).pod))
    after["spec"]["containers"].append({"name": "added", **GPU})
    assert shape(claimed(after)).gpus == {"added": 1, "c0": 1}


def test_other_claims_of_the_pod_stay() -> None:
    network = {"name": "nic", "resourceClaimName": "nic"}
    used = {"resources": {"limits": {"nvidia.com/gpu": "1"}, "claims": [{"name": "nic"}]}}
    decision = claimed(pod(used, annotations=BE, resourceClaims=[network]))
    assert decision.pod["spec"]["resourceClaims"][0] == network
    assert uses(decision) == [{"name": "nic"}, {"name": "orion", "request": "c0"}]


def test_a_forged_shape_has_no_effect() -> None:
    forged = ClaimShape(priority=Priority.HP, gpus={"c0": 8}, time_milli=1000)
    source = {"name": "orion", "resourceClaimTemplateName": forged.template_name}
    given = pod(GPU, annotations={**BE, SHAPE: forged.as_json()}, resourceClaims=[source])
    decision = claimed(given)
    assert shape(decision) == ClaimShape(priority=Priority.BE, gpus={"c0": 1}, places=PLACES)
    assert decision.pod["spec"]["resourceClaims"] == [
        {"name": "orion", "resourceClaimTemplateName": shape(decision).template_name}
    ]


@pytest.mark.parametrize("allocation", ["dra", "device-plugin"])
def test_a_claim_that_somebody_wrote_is_kept_and_its_pod_governed(allocation: str) -> None:
    decision = decide(by_hand(USES, {}), share("batch", "be", app="chat"), allocation=allocation)
    assert decision.outcome is Outcome.PATCHED
    assert decision.slots == {"c0": 1}
    assert pinned(decision) == "batch"
    assert decision.pod["spec"]["resourceClaims"] == [{"name": "orion", "resourceClaimName": "mine"}]
    assert uses(decision) == USES["resources"]["claims"]
    assert SHAPE not in decision.pod["metadata"]["annotations"]


def test_a_claim_by_hand_needs_a_priority_and_excludes_gpus() -> None:
    given = by_hand(USES)
    given["metadata"]["annotations"] = {}
    assert claimed(given).reason is Reason.NO_PRIORITY
    both = claimed(by_hand(USES, GPU))
    assert both.reason is Reason.TWO_KINDS_OF_GPU
    assert "container c1 asks for nvidia.com/gpu" in both.sentence


@pytest.mark.parametrize("of", ["containers", "initContainers"])
def test_a_container_that_uses_several_requests_of_a_claim_is_refused(of: str) -> None:
    two = {"resources": {"claims": [{"name": "orion", "request": "a"}, {"name": "orion", "request": "b"}]}}
    given = by_hand(USES)
    given["spec"][of] = [{"name": "mixed", **two}]
    refused = claimed(given)
    assert refused.reason is Reason.WRONG_AMOUNT
    assert "container mixed uses several requests of the pod's claim orion (a and b)" in refused.sentence
    given["spec"][of] = [{"name": "other", "resources": {"claims": [{"name": "net"}, {"name": "orion"}]}}]
    given["spec"]["resourceClaims"].append({"name": "net", "resourceClaimName": "theirs"})
    assert claimed(given).outcome is not Outcome.REFUSED


def test_a_claim_of_another_name_is_not_ours() -> None:
    given = by_hand({"resources": {"claims": [{"name": "gpu"}]}}, name="gpu")
    given["metadata"]["annotations"] = {}
    assert claimed(given).reason is Reason.NOT_OURS


def test_more_gpus_than_a_claim_can_have_and_a_named_node_are_refused() -> None:
    many = [{"resources": {"limits": {"nvidia.com/gpu": "17"}}}] * 2
    assert "34 slots" in claimed(pod(*many, annotations=BE)).sentence
    assert claimed(pod(GPU, annotations=HP, nodeName="n")).reason is Reason.NO_SCHEDULER
    assert claimed({**by_hand(USES), "spec": {**by_hand(USES)["spec"], "nodeName": "n"}}).reason is Reason.NO_SCHEDULER


def test_a_pod_tolerates_the_taints_of_gpu_nodes_once() -> None:
    taint = {"key": "nvidia.com/gpu", "operator": "Exists"}
    assert claimed(pod(), gpu_taints=("nvidia.com/gpu",)).pod["spec"]["tolerations"] == [taint]
    for enough in ({"operator": "Exists"}, {**taint, "effect": "NoSchedule"}):
        assert claimed(pod(tolerations=[enough]), gpu_taints=("nvidia.com/gpu",)).pod["spec"]["tolerations"] == [enough]
    for other in ({"key": "nvidia.com/gpu", "value": "x"}, {**taint, "effect": "NoExecute"}):
        both = claimed(pod(tolerations=[other]), gpu_taints=("nvidia.com/gpu",)).pod["spec"]["tolerations"]
        assert both == [other, taint]
    assert claimed(by_hand(USES), gpu_taints=("nvidia.com/gpu",)).pod["spec"]["tolerations"] == [taint]


def test_a_copied_manifest_works_with_a_device_plugin_again() -> None:
    admitted = claimed(pod(TWO_GPUS, GPU, annotations=BE, initContainers=[{"name": "init", **GPU}]))
    back = decide(json.loads(json.dumps(admitted.pod)))
    assert back.slots == {"c0": 2, "c1": 1, "init": 1}
    assert back.pod["spec"]["resourceClaims"] == []
    assert [uses(back, 0), uses(back, 1), uses(back, 0, "initContainers")] == [[], [], []]
    assert SHAPE not in back.pod["metadata"]["annotations"]
    assert back.pod["spec"]["containers"][0]["resources"]["limits"] == {"orion.gpu/be": "2"}
    assert decide(dict(back.pod)).outcome is Outcome.UNCHANGED


def test_a_second_use_of_the_claim_is_removed() -> None:
    after = json.loads(json.dumps(claimed(pod(GPU, GPU, annotations=BE)).pod))
    after["spec"]["containers"][0]["resources"]["claims"].append({"name": "orion", "request": "c1"})
    assert uses(claimed(after)) == [{"name": "orion", "request": "c0"}]


def test_a_copied_manifest_without_a_priority_is_refused() -> None:
    after = json.loads(json.dumps(claimed(pod(GPU, annotations=BE)).pod))
    del after["metadata"]["annotations"]["orion/priority"]
    assert claimed(after).reason is Reason.NO_PRIORITY


@pytest.mark.parametrize("allocation", ["dra", "device-plugin"])
def test_a_device_by_its_class_name_is_refused(allocation: str) -> None:
    implicit = {"resources": {"limits": {"deviceclass.resource.kubernetes.io/orion-be": "1"}}}
    decision = decide(pod(implicit, annotations={}), allocation=allocation)
    assert decision.reason is Reason.TWO_KINDS_OF_GPU
    assert "without a GPUShare" in decision.sentence
