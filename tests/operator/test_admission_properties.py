"""Properties of admission for all pods: the decision is idempotent and safe, and its patch gives the decided pod."""

import copy
import json
from typing import Any

import jsonpatch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orion.crds.allocation import Allocation, Giver
from orion.crds.annotations import PINNED_SHARE, PRIORITY, RESOURCES
from orion.crds.claims import SHAPE, ClaimShape
from orion.crds.governing import Shares
from orion.crds.share import GPUShare
from orion.operator.webhook.admitting import Cluster, admit
from orion.operator.webhook.cluster_facts import Gpus
from orion.operator.webhook.decisions import Outcome
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.patching import difference
from orion.operator.webhook.slots import WHOLE_GPUS
from tests.operator.pod_strategies import CALM_PODS, PODS

DEFAULTS, CLAIMS = Defaults(), Defaults(allocation=Allocation.DRA, gpu_taints=("nvidia.com/gpu",))
BY_NODE = [Defaults(allocation=Allocation.BY_NODE, by_node_default=giver) for giver in Giver]
EITHER = st.sampled_from([DEFAULTS, CLAIMS, *BY_NODE])
CHAT = GPUShare.read({
    "metadata": {"name": "chat", "uid": "1", "generation": 3},
    "spec": {"priority": "hp", "selector": {"matchLabels": {"app": "chat"}}, "memory": {"limit": "8Gi"}},
})  # fmt: skip
GPUS = (Gpus(80 * 2**30, some_claims=True), Gpus(2**30))
CLUSTERS = st.sampled_from([Cluster(), *(Cluster(Shares([CHAT]), gpus) for gpus in GPUS)])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("a/~0", max_size=3), inner, max_size=4),
    max_leaves=20,
)
relaxed = settings(
    suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=100, derandomize=True, database=None
)


def containers(pod: Any) -> list[Any]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


@relaxed
@given(st.one_of(PODS, CALM_PODS), CLUSTERS, EITHER)
def test_a_second_invocation_changes_nothing(pod: Any, cluster: Cluster, defaults: Defaults) -> None:
    decision = admit(pod, cluster, defaults)
    again = admit(decision.pod, cluster, defaults)
    assert again.outcome is not Outcome.PATCHED
    assert again.pod == decision.pod
    assert (again.outcome is Outcome.REFUSED) == (decision.outcome is Outcome.REFUSED)


@relaxed
@given(st.one_of(PODS, CALM_PODS), CLUSTERS, EITHER)
def test_the_patch_gives_the_patched_pod_and_the_input_is_unchanged(
    pod: Any, cluster: Cluster, defaults: Defaults
) -> None:
    before = copy.deepcopy(pod)
    decision = admit(pod, cluster, defaults)
    assert pod == before
    assert jsonpatch.apply_patch(pod, difference(pod, decision.pod)) == decision.pod


@relaxed
@given(JSON, JSON)
def test_the_difference_turns_any_object_into_any_other(before: Any, after: Any) -> None:
    operations = difference({"at": before}, {"at": after})
    made = jsonpatch.apply_patch({"at": before}, operations)
    assert json.dumps(made, sort_keys=True) == json.dumps({"at": after}, sort_keys=True)


@relaxed
@given(CALM_PODS)
def test_n_gpus_become_n_slots_and_no_gpu_remains(pod: Any) -> None:
    decision = admit(pod, Cluster(), DEFAULTS)
    if decision.outcome is Outcome.REFUSED:
        return
    assert decision.priority is not None
    slot = RESOURCES[decision.priority]
    asked = {c["name"]: int(((c.get("resources") or {}).get("limits") or {}).get("nvidia.com/gpu", 0))
             for c in containers(pod)}  # fmt: skip
    for container in containers(decision.pod):
        resources = container.get("resources") or {}
        amounts = [int((resources.get(kind) or {}).get(slot, 0)) for kind in ("limits", "requests")]
        wanted = asked[container["name"]] or (1 if not any(asked.values()) else 0)
        assert amounts == [wanted, wanted]
        assert decision.slots.get(container["name"], 0) == wanted
        if wanted:
            assert not any(name in (resources.get(kind) or {}) for name in WHOLE_GPUS for kind in resources)


@relaxed
@given(st.one_of(PODS, CALM_PODS), CLUSTERS, EITHER)
def test_security_is_never_lowered(pod: Any, cluster: Cluster, defaults: Defaults) -> None:
    decision = admit(pod, cluster, defaults)
    if decision.outcome is not Outcome.PATCHED:
        return
    after = decision.pod
    for key in set(pod["spec"]) | set(after["spec"]):
        if key not in ("containers", "initContainers", "affinity", "resourceClaims", "tolerations"):
            assert pod["spec"].get(key) == after["spec"].get(key)
    assert not after["spec"].get("hostPID")
    for old, new in zip(containers(pod), containers(after), strict=True):
        assert {k: v for k, v in old.items() if k not in ("env", "resources")} == {
            k: v for k, v in new.items() if k not in ("env", "resources")
        }
        kept = [v for v in old.get("env") or [] if v["name"] != "LD_PRELOAD"]
        assert [v for v in new.get("env") or [] if v["name"] != "LD_PRELOAD"][: len(kept)] == kept
        assert not (new.get("securityContext") or {}).get("privileged")


@relaxed
@given(st.one_of(PODS, CALM_PODS), CLUSTERS, EITHER)
def test_every_container_with_slots_has_the_hook_first_and_the_pod_a_pin(
    pod: Any, cluster: Cluster, defaults: Defaults
) -> None:
    decision = admit(pod, cluster, defaults)
    if decision.priority is None:
        return
    annotations = decision.pod["metadata"]["annotations"]
    assert annotations[PRIORITY] == decision.priority
    assert annotations[PINNED_SHARE] == (decision.share or "")
    for container in containers(decision.pod):
        has_slots = container["name"] in decision.slots
        preloads = [v["value"] for v in container.get("env") or [] if v["name"] == "LD_PRELOAD" and "value" in v]
        assert not has_slots or [value.split(":")[0] for value in preloads] == [DEFAULTS.hook]
        resources = container.get("resources") or {}
        claims, limits = resources.get("claims") or (), resources.get("limits") or {}
        assert has_slots == any(int(limits.get(name, 0)) > 0 for name in RESOURCES.values()) or bool(claims)
        assert has_slots == bool(claims) or defaults is not CLAIMS


@relaxed
@given(CALM_PODS, CLUSTERS)
def test_n_gpus_become_one_request_for_n_devices(pod: Any, cluster: Cluster) -> None:
    decision = admit(pod, cluster, CLAIMS)
    if decision.outcome is Outcome.REFUSED:
        return
    shape = ClaimShape.from_json(decision.pod["metadata"]["annotations"][SHAPE])
    assert decision.pod["spec"]["resourceClaims"] == [
        {"name": "orion", "resourceClaimTemplateName": shape.template_name}
    ]
    assert shape.gpus == decision.slots == admit(pod, cluster, DEFAULTS).slots
    for container in containers(decision.pod):
        resources = container.get("resources") or {}
        if container["name"] not in shape.gpus:
            assert "claims" not in resources
            continue
        assert resources["claims"] == [{"name": "orion", "request": container["name"]}]
        assert not any(name in (resources.get(kind) or {}) for name in WHOLE_GPUS for kind in ("limits", "requests"))


@relaxed
@given(st.one_of(PODS, CALM_PODS), CLUSTERS)
def test_every_decision_has_a_reason(pod: Any, cluster: Cluster) -> None:
    decision = admit(pod, cluster, DEFAULTS)
    if decision.outcome is Outcome.REFUSED:
        assert len(decision.sentence) > 20
        assert "\n" not in decision.sentence
        assert decision.pod is pod
    if decision.outcome is Outcome.PATCHED:
        assert len(decision.because) >= 3
