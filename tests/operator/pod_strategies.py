"""Hypothesis strategies for pods of all kinds, for property tests of admission."""

from typing import Any

from hypothesis import strategies as st

AMOUNTS = st.sampled_from(["1", "2", 1, "3", "0"])
RESOURCES = ("nvidia.com/gpu", "orion.gpu/hp", "orion.gpu/be", "nvidia.com/gpu.shared", "cpu", "memory")
VALUES = st.sampled_from(
    ["", "/a.so", "/a.so:/b.so", "/a.so /b.so", "$(DIR)/a.so", "/run/orion/lib/liborion_hook.so:/a"]
)
VARIABLES = st.one_of(
    st.builds(lambda value: {"name": "LD_PRELOAD", "value": value}, VALUES),
    st.sampled_from([
        {"name": "DIR", "value": "/opt"},
        {"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "LD_AUDIT", "value": "/audit.so"},
        {"name": "ORION_ROOT", "value": "/run/orion"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
    ]),
)  # fmt: skip
SOURCES = st.sampled_from([{"configMapRef": {"name": "c"}}, {"prefix": "APP_", "secretRef": {"name": "s"}}])


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


RESOURCE_SETS = st.dictionaries(st.sampled_from(RESOURCES), AMOUNTS, max_size=2)
CONTAINERS = st.builds(
    _without_none,
    name=st.just(""),
    image=st.just("i"),
    env=st.none() | st.lists(VARIABLES, max_size=3),
    envFrom=st.none() | st.lists(SOURCES, max_size=2),
    resources=st.none() | st.builds(lambda limits: {"limits": limits, "requests": dict(limits)}, RESOURCE_SETS)
    | st.builds(lambda limits: {"limits": limits}, RESOURCE_SETS),
    securityContext=st.none() | st.sampled_from([{"privileged": True}, {"runAsNonRoot": True}]),
    volumeMounts=st.none() | st.sampled_from([[{"name": "v", "mountPath": "/data"}]]),
)  # fmt: skip
INIT_CONTAINERS = st.builds(
    lambda container, restart: container | ({"restartPolicy": restart} if restart else {}),
    CONTAINERS,
    st.sampled_from([None, "Always"]),
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(["orion/priority", "orion/share", "orion/containers", "orion.gpu/share", "other"]),
    st.sampled_from(["hp", "be", "chat", "c0", "c0,c1", "{}"]),
    max_size=3,
)


def _pod(containers: list[Any], init: list[Any], annotations: Any, labels: Any, host_pid: Any) -> dict[str, Any]:
    for number, container in enumerate(containers):
        container["name"] = f"c{number}"
    for number, container in enumerate(init):
        container["name"] = f"i{number}"
    spec = _without_none(containers=containers, initContainers=init or None, hostPID=host_pid)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": annotations, "labels": labels}, "spec": spec}


PODS = st.builds(
    _pod,
    st.lists(CONTAINERS, min_size=1, max_size=3),
    st.lists(INIT_CONTAINERS, max_size=2),
    ANNOTATIONS,
    st.dictionaries(st.just("app"), st.sampled_from(["chat", "train"])),
    st.sampled_from([None, None, None, True]),
)

# Pods that admission usually accepts: they have one priority, and no field that admission rejects.
CALM_CONTAINERS = st.builds(
    _without_none,
    name=st.just(""),
    image=st.just("i"),
    env=st.none() | st.lists(
        st.builds(lambda value: {"name": "LD_PRELOAD", "value": value}, VALUES), max_size=1
    ),
    envFrom=st.none() | st.lists(SOURCES, max_size=2),
    resources=st.none() | st.builds(lambda n: {"limits": {"nvidia.com/gpu": n}}, AMOUNTS),
)  # fmt: skip
CALM_PODS = st.builds(
    _pod,
    st.lists(CALM_CONTAINERS, min_size=1, max_size=3),
    st.just([]),
    st.sampled_from([{"orion/priority": "hp"}, {"orion/priority": "be"}]),
    st.just({}),
    st.none(),
)
