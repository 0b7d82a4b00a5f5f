"""Admission of single pods: which containers get slots, what the webhook changes, and which share governs."""

import time
from typing import Any

import pytest

from orion.crds.annotations import PINNED_SHARE
from orion.crds.governing import Shares
from orion.crds.share import GPUShare
from orion.errors import Unreadable
from orion.operator.webhook.admitting import Cluster, admit, admit_ephemeral
from orion.operator.webhook.decisions import Decision, Outcome, Reason
from orion.operator.webhook.defaults import Defaults
from tests.operator.admitted_pod import BE, DEFAULTS, GPU, HOOK, decide, env, pinned, pod, share, slots

# -- Containers --------------------------------------------------------------------------------------------------------


def test_a_pod_that_names_a_share_beyond_the_bound_is_rejected_with_the_bound() -> None:
    marks = {"orion/priority": "be", "orion/share": "b"}
    shares = Shares([named_share("a"), named_share("b")], most=1)
    decision = admit(pod(annotations=marks), Cluster(shares), Defaults())
    assert (decision.outcome, decision.reason) == (Outcome.REFUSED, Reason.TOO_MANY_SHARES)
    assert "b, which does not govern: only the 1 oldest GPUShares" in decision.sentence
    assert decision.of_cluster


def named_share(name: str) -> GPUShare:
    return GPUShare.read({"metadata": {"name": name}, "spec": {"priority": "be", "selector": {}}})


def test_all_containers_that_ask_for_a_gpu_get_slots() -> None:
    two = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    assert slots(decide(pod(GPU, {}, two))) == {"c0": 1, "c2": 2}


def test_the_annotation_gives_slots_to_containers_that_request_no_gpu() -> None:
    marks = {"orion/priority": "be", "orion/containers": "c0, c1"}
    assert slots(decide(pod({}, GPU, {}, annotations=marks))) == {"c0": 1, "c1": 1}


def test_the_only_container_gets_the_slot_if_no_container_asks_for_one() -> None:
    assert slots(decide(pod({}))) == {"c0": 1}


def test_an_init_container_and_a_sidecar_get_slots() -> None:
    init = [{"name": "warm-up", **GPU}, {"name": "side", "restartPolicy": "Always", **GPU}]
    decision = decide(pod(GPU, initContainers=init))
    assert slots(decision) == {"c0": 1, "warm-up": 1, "side": 1}
    assert decision.pod["spec"]["initContainers"][1]["env"] == [{"name": "LD_PRELOAD", "value": HOOK}]


def test_the_requested_slots_give_the_priority() -> None:
    asks = {"resources": {"requests": {"orion.gpu/be": 1}}}
    decision = decide(pod(asks, annotations={}))
    assert decision.pod["metadata"]["annotations"]["orion/priority"] == "be"
    assert decision.pod["spec"]["containers"][0]["resources"]["limits"] == {"orion.gpu/be": "1"}


def test_a_named_share_gives_the_priority() -> None:
    decision = decide(pod(annotations={"orion/share": "train"}), share("train", "be", compute={"request": 0.4}))
    assert "orion.gpu/be" in decision.pod["spec"]["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize("forged", [None, "", "train", "chat"])
def test_the_governing_share_is_pinned_whatever_the_pod_claims(forged: str | None) -> None:
    marks = {"orion/priority": "hp"} | ({} if forged is None else {PINNED_SHARE: forged})
    assert pinned(decide(pod(annotations=marks), share("chat", app="chat"), share("train"))) == "chat"
    assert pinned(decide(pod(annotations=marks), share("train"))) == ""


def test_a_request_for_zero_gpus_is_ignored() -> None:
    none = {"resources": {"limits": {"nvidia.com/gpu": "0"}}}
    assert slots(decide(pod(none, GPU))) == {"c1": 1}


@pytest.mark.parametrize("marks", [{}, {"orion/priority": "hp"}], ids=["unmarked", "marked"])
def test_zero_slots_are_refused_with_the_reason(marks: dict[str, str]) -> None:
    given = pod({"resources": {"limits": {"orion.gpu/be": "0"}}}, annotations=marks)
    assert "container c0 asks for 0 of orion.gpu/be; remove it" in decide(given).sentence


@pytest.mark.parametrize("named", [False, True])
def test_thousands_of_containers_do_not_delay_other_reviews(named: bool) -> None:
    marks = {"orion/priority": "be"}
    if named:
        marks["orion/containers"] = ",".join(f"c{number}" for number in range(4_000))
    given = pod(*[GPU] * 4_000, annotations=marks)
    start = time.process_time()
    assert decide(given).reason is Reason.TOO_MANY_CONTAINERS
    assert time.process_time() - start < 3  # it takes 0.1 s; a comparison of all pairs takes 6 s


def test_a_pod_without_annotations_and_slots_is_unchanged() -> None:
    given = pod(GPU, annotations={}, hostPID=True)
    decision = decide(given)
    assert (decision.outcome, decision.reason) == (Outcome.UNCHANGED, Reason.NOT_OURS)
    assert decision.pod is given


# -- Runtime class -----------------------------------------------------------------------------------------------------


def test_the_mirror_pod_of_a_static_pod_is_refused_unless_the_node_sees_its_slots() -> None:
    decision = decide(pod({}, annotations={"orion/priority": "be", "kubernetes.io/config.mirror": "0"}))
    assert (decision.outcome, decision.reason) == (Outcome.REFUSED, Reason.STATIC_POD)
    asking = {"resources": {"limits": {"orion.gpu/be": "1"}}}
    decision = decide(pod(asking, annotations={"kubernetes.io/config.mirror": "0"}))
    assert (decision.outcome, decision.reason) == (Outcome.PATCHED, Reason.SLOTS_GIVEN)


def test_the_mirror_pod_of_a_static_pod_without_slots_is_unchanged() -> None:
    decision = decide(pod({}, annotations={"kubernetes.io/config.mirror": "0"}))
    assert (decision.outcome, decision.reason) == (Outcome.UNCHANGED, Reason.NOT_OURS)


def test_a_pod_has_at_most_200_containers() -> None:
    many = pod({}, annotations={"orion/priority": "be", "orion/containers": "c0"})
    many["spec"]["containers"] = [{"name": f"c{number}"} for number in range(200)]
    assert decide(many).outcome is Outcome.PATCHED
    many["spec"]["initContainers"] = [{"name": "first"}]
    assert (decide(many).outcome, decide(many).reason) == (Outcome.REFUSED, Reason.TOO_MANY_CONTAINERS)


def test_a_very_long_preload_is_refused() -> None:
    def preloading(text: str) -> Decision:
        made = pod(annotations={"orion/priority": "be"})
        made["spec"]["containers"][0]["env"] = [{"name": "LD_PRELOAD", "value": text}]
        return decide(made)

    assert preloading("/a.so " * 600).outcome is Outcome.PATCHED
    refused = preloading("/a.so " * 700)
    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, Reason.HOOK_ENVIRONMENT)


def test_pods_with_slots_get_the_runtime_class_of_the_installation() -> None:
    decision = decide(pod(), runtime_class="nvidia")
    assert decision.pod["spec"]["runtimeClassName"] == "nvidia"
    assert "the pod's runtime class is nvidia, because the pod names none" in decision.because
    again = admit(decision.pod, Cluster(), Defaults(runtime_class="nvidia"))
    assert again.outcome is Outcome.UNCHANGED


@pytest.mark.parametrize("given", [pod(runtimeClassName="kata"), pod(GPU, annotations={})], ids=["named", "not ours"])
def test_other_pods_keep_their_runtime_class(given: dict[str, Any]) -> None:
    decision = decide(given, runtime_class="nvidia")
    assert decision.pod["spec"].get("runtimeClassName") == given["spec"].get("runtimeClassName")


def test_pods_keep_their_runtime_class_if_the_installation_sets_none() -> None:
    assert "runtimeClassName" not in decide(pod()).pod["spec"]


# -- Preloading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", HOOK),
        ("/a.so", f"{HOOK}:/a.so"),
        ("/a.so /b.so", f"{HOOK}:/a.so:/b.so"),
        ("$(DIR)/a.so", f"{HOOK}:$(DIR)/a.so"),
        (f"/a.so:{HOOK}", f"{HOOK}:/a.so"),
        (HOOK, HOOK),
    ],
)
def test_the_hook_comes_first_in_ld_preload(before: str, after: str) -> None:
    first, last = {"name": "DIR", "value": "/opt"}, {"name": "LATER", "value": "$(LD_PRELOAD)"}
    given = pod({**GPU, "env": [first, {"name": "LD_PRELOAD", "value": before}, last]})
    assert env(decide(given)) == [first, {"name": "LD_PRELOAD", "value": after}, last]


def test_env_from_cannot_set_variables_that_bypass_the_hook() -> None:
    given = pod({**GPU, "envFrom": [{"configMapRef": {"name": "c"}}]})
    decision = decide(given)
    assert {each["name"]: each["value"] for each in env(decision)} == {
        "LD_PRELOAD": HOOK, "LD_AUDIT": "", "ORION_ROOT": "/run/orion",
    }  # fmt: skip
    assert "an LD_PRELOAD from envFrom has no effect" in decision.cautions[0]


def test_env_from_with_another_prefix_needs_no_pinned_variables() -> None:
    decision = decide(pod({**GPU, "envFrom": [{"prefix": "APP_", "configMapRef": {"name": "c"}}]}))
    assert env(decision) == [{"name": "LD_PRELOAD", "value": HOOK}]
    assert decision.cautions == ()


# -- Shares ------------------------------------------------------------------------------------------------------------


def test_the_share_whose_selector_matches_governs_the_pod() -> None:
    decision = decide(pod(), share("other", app="train"), share("chat", app="chat"), share("by-name"))
    assert decision.share == "chat"
    assert "GPUShare chat: its selector matches" in decision.because[1]


def test_a_named_share_takes_precedence_over_selectors() -> None:
    marks = {"orion/priority": "hp", "orion/share": "by-name"}
    assert decide(pod(annotations=marks), share("chat", app="chat"), share("by-name")).share == "by-name"


def test_two_shares_that_select_a_pod_are_both_named() -> None:
    decision = decide(pod(), share("two", app="chat"), share("one", app="chat"))
    assert decision.reason is Reason.SHARES_OVERLAP
    assert "GPUShares one and two all select this pod" in decision.sentence
    assert decision.of_cluster


def test_a_pod_is_rejected_if_annotation_and_share_contradict() -> None:
    decision = decide(pod(), share("chat", "be", app="chat"))
    assert decision.reason is Reason.PRIORITY_CONFLICT
    assert "orion/priority says hp, but GPUShare chat has spec.priority be" in decision.sentence
    assert decision.of_cluster


def test_a_share_can_be_required() -> None:
    assert decide(pod(), require_share=True).reason is Reason.SHARE_REQUIRED
    assert decide(pod(), share("chat", app="chat"), require_share=True).outcome is Outcome.PATCHED


# -- Ephemeral containers ----------------------------------------------------------------------------------------------


def test_only_new_ephemeral_containers_are_checked() -> None:
    before = pod(ephemeralContainers=[{"name": "old", "securityContext": {"privileged": True}}])
    after = {**before, "spec": {**before["spec"]}}
    assert admit_ephemeral(after, before, DEFAULTS).reason is Reason.HARMLESS
    fresh = {"name": "new", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    after["spec"]["ephemeralContainers"] = [*before["spec"]["ephemeralContainers"], fresh]
    decision = admit_ephemeral(after, before, DEFAULTS)
    assert "ephemeral container new sets NVIDIA_VISIBLE_DEVICES" in decision.sentence


def test_the_webhook_sets_a_label_that_no_selector_may_name() -> None:
    selector = {"matchLabels": {"orion.gpu/priority": "be"}}
    with pytest.raises(Unreadable, match=r"must not name the label orion\.gpu/priority"):
        GPUShare.read({"metadata": {"name": "s"}, "spec": {"priority": "be", "selector": selector}})
    decision = decide(pod(annotations=BE))
    assert decision.pod["metadata"]["labels"] == {"app": "chat", "orion.gpu/priority": "be"}
    assert pinned(decision) == pinned(decide(dict(decision.pod))) == ""


def test_a_label_with_another_priority_is_refused_and_not_replaced() -> None:
    """A ReplicaSet whose selector has the label would release each pod whose label changes, and make another one."""
    forged = pod(annotations={"orion/priority": "be"})
    forged["metadata"]["labels"]["orion.gpu/priority"] = "hp"
    decision = decide(forged)
    assert decision.reason is Reason.PRIORITY_CONFLICT
    assert "label orion.gpu/priority says hp, but the pod is be" in decision.sentence
