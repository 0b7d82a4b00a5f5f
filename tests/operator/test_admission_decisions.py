"""Admission of single pods: the changes, and the sentence of each rejection."""

import time
from typing import Any

import pytest

from orion.crds.annotations import PINNED_SHARE
from orion.crds.governing import Shares
from orion.crds.share import GPUShare
from orion.errors import Unreadable
from orion.operator.webhook.admitting import Cluster, admit, admit_ephemeral
from orion.operator.webhook.cluster_facts import Gpus, read_gpu
from orion.operator.webhook.decisions import Decision, Outcome, Reason
from orion.operator.webhook.defaults import Defaults

DEFAULTS = Defaults()
HOOK = DEFAULTS.hook
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


def share(name: str, priority: str = "hp", app: str | None = None, **spec: Any) -> GPUShare:
    selector = {"selector": {"matchLabels": {"app": app}}} if app else {}
    return GPUShare.read({"metadata": {"name": name}, "spec": {"priority": priority, **selector, **spec}})


def pod(*containers: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod with containers c0, c1, ...; it has priority hp unless `annotations` are given."""
    named = [{"name": f"c{number}", **container} for number, container in enumerate(containers or (GPU,))]
    marks = {"orion/priority": "hp"} if annotations is None else annotations
    return {"metadata": {"annotations": marks, "labels": {"app": "chat"}}, "spec": {"containers": named, **spec}}


def decide(
    given: dict[str, Any], *shares: GPUShare, largest: int | None = None, some_claims: bool = False, **defaults: Any
) -> Decision:
    return admit(given, Cluster(Shares(shares), Gpus(largest, some_claims)), Defaults(**defaults))


def slots(decision: Decision) -> dict[str, int]:
    spec = decision.pod["spec"]
    limits = {
        each["name"]: (each.get("resources") or {}).get("limits", {})
        for each in (*spec["containers"], *spec.get("initContainers", ()))
    }
    return {
        container: int(amount)
        for container, all_limits in limits.items()
        for name, amount in all_limits.items()
        if name.startswith("orion.gpu/")
    }


def pinned(decision: Decision) -> str:
    return str(decision.pod["metadata"]["annotations"][PINNED_SHARE])


def env(decision: Decision, index: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decision.pod["spec"]["containers"][index].get("env", [])
    return found


# -- Placement ---------------------------------------------------------------------------------------------------------

BE, HP = {"orion/priority": "be"}, {"orion/priority": "hp"}
TWO_GPUS = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
ENOUGH = {"key": "orion.gpu/gpus", "operator": "Gt", "values": ["1"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}


def terms(decision: Decision) -> list[dict[str, Any]]:
    required = decision.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: list[dict[str, Any]] = required["nodeSelectorTerms"]
    return found


def affinity(*alternatives: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*alternatives]}}
    return {"nodeAffinity": {**required, "preferredDuringSchedulingIgnoredDuringExecution": []}, "podAffinity": {}}


def test_a_container_with_several_gpus_needs_a_node_with_as_many() -> None:
    assert terms(decide(pod(GPU, TWO_GPUS, annotations=BE))) == [{"matchExpressions": [ENOUGH]}]
    for given in (pod(GPU, GPU, annotations=BE), pod(TWO_GPUS, annotations=BE, nodeName="n")):
        assert "affinity" not in decide(given).pod["spec"]


def test_every_alternative_of_the_pods_own_affinity_needs_enough_gpus() -> None:
    own = affinity({"matchExpressions": [ZONE]}, NAMED, {})
    decision = decide(pod(TWO_GPUS, affinity=own, annotations=BE))
    assert terms(decision) == [{"matchExpressions": [ZONE, ENOUGH]}, {**NAMED, "matchExpressions": [ENOUGH]}, {}]
    assert decision.pod["spec"]["affinity"]["podAffinity"] == {}
    assert own == affinity({"matchExpressions": [ZONE]}, NAMED, {})
    assert decide(dict(decision.pod)).outcome is Outcome.UNCHANGED


NO_ROLLOUT = {"key": "orion.gpu/rollout", "operator": "DoesNotExist"}


def of_deployment(namespace: str = "team", name: str = "web", template: str = "7d9f", **spec: Any) -> dict[str, Any]:
    """An hp pod of a Deployment's ReplicaSet."""
    found = pod(GPU, annotations=HP, **spec)
    found["metadata"] |= {"namespace": namespace, "labels": {"pod-template-hash": template}}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{name}-{template}",
        "uid": "1",
        "controller": True,
    }
    found["metadata"]["ownerReferences"] = [owner]
    return found


def own_rollout(given: dict[str, Any]) -> list[str]:
    """The values of a node's label with which an hp pod accepts the node."""
    alone, own = terms(decide(given))
    assert alone["matchExpressions"][-1] == NO_ROLLOUT
    expression = own["matchExpressions"][-1]
    assert (expression["key"], expression["operator"]) == ("orion.gpu/rollout", "In")
    values: list[str] = expression["values"]
    return values


def test_an_hp_pod_accepts_only_nodes_without_a_rolling_update_of_others() -> None:
    assert terms(decide(pod(GPU, annotations=HP))) == [{"matchExpressions": [NO_ROLLOUT]}]
    revision, ends = own_rollout(of_deployment())
    assert ends == f"ends-{revision}"
    assert len(ends) <= 63
    for other in (of_deployment(namespace="other"), of_deployment(name="api"), of_deployment(template="5c8b")):
        assert not {revision, ends} & set(own_rollout(other))


def test_a_pod_that_asks_for_the_node_of_another_rolling_update_gets_no_such_node() -> None:
    revision, _ = own_rollout(of_deployment())
    forged = {"key": "orion.gpu/rollout", "operator": "In", "values": [revision]}
    own = affinity({"matchExpressions": [forged]}, {"matchExpressions": [ZONE, NO_ROLLOUT]})
    decision = decide(pod(GPU, annotations=HP, affinity=own))
    assert terms(decision) == [{"matchExpressions": [forged, NO_ROLLOUT]}, {"matchExpressions": [ZONE, NO_ROLLOUT]}]
    assert decide(dict(decision.pod)).outcome is Outcome.UNCHANGED


def test_the_second_review_of_a_pod_of_a_workload_changes_nothing() -> None:
    decision = decide(of_deployment(affinity=affinity({"matchExpressions": [ZONE]}, NAMED)))
    assert len(terms(decision)) == 4
    assert decide(dict(decision.pod)).outcome is Outcome.UNCHANGED


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


# -- Refusals ----------------------------------------------------------------------------------------------------------


def variable(name: str, value: str = "x") -> dict[str, Any]:
    return pod({**GPU, "env": [{"name": name, "value": value}]})


def host_path(path: str) -> dict[str, Any]:
    return pod(volumes=[{"name": "v", "hostPath": {"path": path}}])


def asking(**limits: Any) -> dict[str, Any]:
    return pod({"resources": {"limits": {name.replace("__", "/").replace("_", "."): n for name, n in limits.items()}}})


BY_REFERENCE = {"name": "LD_PRELOAD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
TWICE = [{"name": "LD_PRELOAD", "value": "/a.so"}, {"name": "LD_PRELOAD", "value": "/b.so"}]
OVER = [{"name": "v", "mountPath": "/run//orion/slots/"}]
REFUSED: dict[str, tuple[dict[str, Any], Reason, str]] = {
    "priority": (pod(annotations={"orion/priority": "HP"}), Reason.UNKNOWN_ANNOTATION_VALUE, "hp or be, not 'HP'"),
    "containers without priority": (pod(annotations={"orion/containers": "c0"}), Reason.NO_PRIORITY, "orion/priority"),
    "unknown container": (
        pod(annotations={"orion/priority": "hp", "orion/containers": "nope"}), Reason.NO_CONTAINER, "containers are c0",
    ),
    "asks but is not named": (
        pod(GPU, GPU, annotations={"orion/priority": "hp", "orion/containers": "c0"}), Reason.NO_CONTAINER, "c1 asks",
    ),
    "no container asks": (pod({}, {}), Reason.NO_CONTAINER, "none of the containers c0, c1 asks"),
    "missing share": (
        pod(annotations={"orion/priority": "hp", "orion/share": "s"}), Reason.SHARE_NOT_FOUND, "which does not exist",
    ),
    "hp and be": (asking(orion_gpu__hp=1, orion_gpu__be=1), Reason.MIXED_PRIORITIES, "either hp or be"),
    "slots and GPUs": (asking(orion_gpu__hp=1, nvidia_com__gpu=1), Reason.TWO_KINDS_OF_GPU, "already gives access"),
    "MIG": (asking(**{"nvidia_com__mig-1g_5gb": 1}), Reason.TWO_KINDS_OF_GPU, "shares whole GPUs"),
    "no such resource": (asking(orion_gpu__x=1), Reason.TWO_KINDS_OF_GPU, "ask for orion.gpu/hp or orion.gpu/be"),
    "half a GPU": (asking(nvidia_com__gpu="500m"), Reason.WRONG_AMOUNT, "500m of nvidia.com/gpu"),
    "no amount": (asking(nvidia_com__gpu="one"), Reason.WRONG_AMOUNT, "one of nvidia.com/gpu"),
    "too many": (asking(nvidia_com__gpu="65"), Reason.WRONG_AMOUNT, "up to 64"),
    "limit and request": (
        pod({"resources": {"limits": {"orion.gpu/hp": 2}, "requests": {"orion.gpu/hp": 1}}}), Reason.WRONG_AMOUNT,
        "must be equal",
    ),
    "annotation and slots": (asking(orion_gpu__be=1), Reason.MIXED_PRIORITIES, "says hp, but container c0 asks"),
    "greedy init": (
        pod(initContainers=[{"name": "i", "resources": {"limits": {"nvidia.com/gpu": 2}}}]),
        Reason.INIT_CONTAINER_ASKS_FOR_MORE, "for more than 1",
    ),
    "init alone": (
        pod({}, initContainers=[{"name": "i", **GPU}]), Reason.INIT_CONTAINER_ASKS_FOR_MORE, "for more than 0",
    ),
    "privileged": (pod({**GPU, "securityContext": {"privileged": True}}), Reason.PRIVILEGED, "c0 is privileged"),
    "privileged, no slots": (
        pod(GPU, {"securityContext": {"privileged": True}}), Reason.PRIVILEGED, "c1 is privileged",
    ),
    "hostPID": (pod(hostPID=True), Reason.HOST_PROCESSES, "hostPID"),
    "visible devices": (variable("NVIDIA_VISIBLE_DEVICES", "all"), Reason.DEVICE_ENVIRONMENT, "which GPU a container"),
    "visible devices, no slots": (
        pod(GPU, {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}]}), Reason.DEVICE_ENVIRONMENT, "c1 sets",
    ),
    "another MPS server": (variable("CUDA_MPS_PIPE_DIRECTORY"), Reason.DEVICE_ENVIRONMENT, "CUDA_MPS"),
    "audit": (variable("LD_AUDIT"), Reason.HOOK_ENVIRONMENT, "LD_AUDIT"),
    "root": (variable("ORION_ROOT"), Reason.HOOK_ENVIRONMENT, "ORION_ROOT"),
    "preload by reference": (pod({**GPU, "env": [BY_REFERENCE]}), Reason.HOOK_ENVIRONMENT, "(valueFrom)"),
    "preload twice": (pod({**GPU, "env": TWICE}), Reason.HOOK_ENVIRONMENT, "twice"),
    "mount over slots": (pod({**GPU, "volumeMounts": OVER}), Reason.HIDDEN_MOUNT, "outside /run/orion"),
    **{path: (host_path(path), Reason.HOST_PATH, f"the node's {path}") for path in (
        "/", "/dev", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/dri/card0", "/run", "/run/orion", "/run/orion/slots/x",
        "/var/run/orion", "/var/../run/./orion", "//run//orion", "/var/lib/kubelet/pod-resources/kubelet.sock", "/var",
        "/proc/1/root", "/sys/fs/cgroup", "/run/containerd/containerd.sock", "/var/run/docker.sock",
        "/run/k3s/containerd/containerd.sock", "/var/lib/k0s/kubelet", "/var/snap", "/var/lib/orion/hook",
        "/var/lib/orion/hook/0.1.0-0123456789ab/liborion_hook.so", "/var/lib/containerd", "/var/lib/docker/overlay2",
    )},
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_pod_that_cannot_work_is_rejected_with_a_sentence(case: str) -> None:
    given, reason, words = REFUSED[case]
    decision = decide(given)
    assert (decision.outcome, decision.reason) == (Outcome.REFUSED, reason), decision
    assert words in decision.sentence


@pytest.mark.parametrize(
    "path", ["/data", "/dev/shm", "/tmp", "/dev/infiniband", "/runtime", "/var/log", "/mnt/nvidia"]
)
def test_other_paths_of_the_node_may_be_mounted(path: str) -> None:
    assert decide(host_path(path)).outcome is Outcome.PATCHED


def test_another_root_folder_of_the_kubelet_is_forbidden_as_well() -> None:
    for path in ("/data/kubelet", "/data/kubelet/pods", "/data", "/var/lib/kubelet/device-plugins"):
        decision = decide(host_path(path), kubelet_root="/data/kubelet")
        assert decision.reason is Reason.HOST_PATH, path
        assert "the kubelet's sockets" in decision.sentence
    assert decide(host_path("/data/set"), kubelet_root="/data/kubelet").outcome is Outcome.PATCHED


def test_a_container_without_slots_may_set_visible_devices_to_none() -> None:
    none = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
    assert decide(pod(GPU, none)).outcome is Outcome.PATCHED
    assert decide(pod({**GPU, **none})).outcome is Outcome.REFUSED


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


LARGE = {"key": "orion.gpu/gpu-memory", "operator": "Gt", "values": [str(8 * 1024 - 1)]}


@pytest.mark.parametrize(
    ("memory", "largest", "waits"),
    [
        ({"limit": "8Gi"}, 7, True),
        ({"request": "8Gi", "limit": "20Gi"}, 7, True),
        ({"request": "1Gi", "limit": "20Gi"}, 7, False),
        ({"limit": "8Gi"}, 8, False),
        ({"limit": "8Gi"}, None, False),
        ({}, 7, False),
    ],
)
def test_a_pod_that_reserves_more_memory_than_any_known_gpu_has_waits_for_a_larger_one(
    memory: dict[str, str], largest: int | None, waits: bool
) -> None:
    chat = share("chat", app="chat", memory=memory)
    decision = decide(pod(), chat, largest=largest and largest * 2**30)
    assert decision.outcome is Outcome.PATCHED
    if waits:
        assert terms(decision) == [{"matchExpressions": [LARGE, NO_ROLLOUT]}]
        [caution] = decision.cautions
        assert "reserves 8Gi for each slot, and the largest GPU of the cluster has 7Gi" in caution
    else:
        assert terms(decision) == [{"matchExpressions": [NO_ROLLOUT]}]
        assert decision.cautions == ()


def test_a_part_of_a_mebibyte_counts_as_a_whole_one() -> None:
    decision = decide(pod(), share("chat", app="chat", memory={"request": str(2**33 + 1)}), largest=2**30)
    assert terms(decision)[0]["matchExpressions"][0]["values"] == [str(8 * 1024)]


def test_a_pod_with_several_large_gpus_needs_both_labels() -> None:
    decision = decide(pod(TWO_GPUS), share("chat", app="chat", memory={"limit": "8Gi"}), largest=2**30)
    assert terms(decision) == [{"matchExpressions": [ENOUGH, LARGE, NO_ROLLOUT]}]


def test_gpus_that_are_gone_do_not_count_as_the_largest() -> None:
    gpus = [
        {"status": {"health": health, "memory": {"total": "80Gi"}}} for health in ("Healthy", "Unhealthy", "Unknown")
    ]
    assert [read_gpu(gpu).largest for gpu in gpus] == [80 * 2**30, 80 * 2**30, None]


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
