"""The operator's rights: exactly those that the chart ships, none missing and none unused, as the audit log saw it."""

import json
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from kubernetes import client

from tests.cluster.conftest import client_for
from tests.cluster.operator_process import ROLE, OperatorProcess, World, apply, apply_definitions, grant_rights
from tests.cluster.waiting import eventually
from tools.cluster import binaries
from tools.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

USER = "system:serviceaccount:default:orion-operator"
POLICIES = ROLE.with_name("policies.yaml")
MARKS_POLICY = "orion-pods-keep-their-marks"
ASKED_BY_POLICY = {("orion.gpu", "grants", "update"), ("orion.gpu", "gpudevices", "release")}
GPU, LOST_GPU = (f"GPU-00000000-0000-4000-8000-00000000000{number}" for number in range(2))


class Audited(NamedTuple):
    plane: ControlPlane
    log: Path
    operator_kubeconfig: Path
    world: World
    api: client.ApiClient


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Audited]:
    """A control plane that writes down what the operator asks of it, under the chart's rules and its policy on pods."""
    log, policy = tmp_path / "audit.log", tmp_path / "audit.yaml"
    rules = [{"level": "Metadata", "users": [USER]}, {"level": "None"}]
    policy.write_text(
        json.dumps({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": rules,
        })
    )  # fmt: skip
    programs = dict(binaries.find_all())
    with_audit = tmp_path / "kube-apiserver"
    options = f"--audit-policy-file={policy} --audit-log-path={log}"
    with_audit.write_text(f'#!/bin/sh\nexec {shlex.quote(str(programs["kube-apiserver"]))} "$@" {options}\n')
    with_audit.chmod(0o700)
    plane = ControlPlane(tmp_path / "plane", programs | {"kube-apiserver": with_audit})
    with plane, client_for(plane.access.kubeconfig) as api:
        apply_definitions(plane.access.kubeconfig, api)
        apply(plane.access.kubeconfig, _only(MARKS_POLICY, tmp_path))
        grant_rights(api, USER, "default")
        kubeconfig = plane.access.kubeconfig_for(USER, [], tmp_path / "operator.kubeconfig")
        yield Audited(plane, log, kubeconfig, World(api, "default"), api)


def test_every_right_is_used_and_none_is_missing(audited: Audited, tmp_path: Path) -> None:
    world = audited.world
    process = OperatorProcess(audited.operator_kubeconfig, tmp_path, "--lease-namespace", "default").start()
    try:
        process.wait_until_ready()
        _all_that_it_does(audited)
        eventually(lambda: ("coordination.k8s.io", "leases", "update") in _asked(audited.log))  # a renewal
        assert _asked(audited.log) | ASKED_BY_POLICY == _granted()

        # The one rule that no request shows: the policy on pods asks for it.
        _without_grants(audited)
        world.change_share("mild", memory={"limit": "2Gi"})
        eventually(lambda: "annotation orion/grant is changed by Orion's operator only" in process.log.read_text())
        assert world.grant("mild")["shareGeneration"] == 1
    finally:
        assert process.end(signal.SIGTERM) == 0
    refused = [each for each in _lines(audited.log) if each["responseStatus"]["code"] == 403]
    assert {each["objectRef"].get("subresource") for each in refused} == {"status"}


def test_what_it_may_not_do_it_cannot(audited: Audited) -> None:
    with client_for(audited.operator_kubeconfig) as operator:
        core = client.CoreV1Api(operator)
        forbidden: list[tuple[Callable[..., object], tuple[object, ...]]] = [
            (core.list_secret_for_all_namespaces, ()),
            (core.list_namespaced_config_map, ("default",)),
            (core.patch_namespaced_pod, ("p", "default", {"metadata": {"labels": {"a": "b"}}})),
            (core.delete_namespaced_pod, ("p", "default")),
            (core.delete_node, ("n",)),
        ]
        for call, arguments in forbidden:
            with pytest.raises(client.ApiException) as refusal:
                call(*arguments)
            assert refusal.value.status == 403


def _all_that_it_does(audited: Audited) -> None:
    world, core = audited.world, client.CoreV1Api(audited.api)
    core.create_node({"metadata": {"name": "node"}})
    world.share("mild", memory={"limit": "1Gi"})
    world.share("strict", failClosed=True)
    for name in ("mild", "strict"):
        world.pod(name, name, "node")
        world.run(name)
    strangers = [{"processId": 9, "pod": world.reference("strict")}]
    world.fake_agent_says(GPU, node="node", strangers=strangers, strangerCount=1)
    eventually(lambda: world.read_pod("strict").metadata.deletion_timestamp)
    eventually(lambda: world.grant("mild").get("shareGeneration") == 1)
    eventually(lambda: world.condition("mild", "Ready") == ("True", "Granted"))
    eventually(lambda: "orion/gpus" in (core.read_node("node").metadata.labels or {}))
    world.fake_agent_says(LOST_GPU, node="gone", health="Healthy")
    eventually(lambda: world.device_status(LOST_GPU)["health"] == "Unknown")


def _granted() -> set[tuple[str, str, str]]:
    """Return group, resource and verb of all that the chart's rules allow."""
    return {
        (group, resource, verb)
        for document in yaml.safe_load_all(ROLE.read_text())
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _asked(log: Path) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of all that the operator asked for; what everybody may ask is left out."""
    found = set()
    for line in _lines(log):
        reference = line.get("objectRef")
        if reference and "resource" in reference:
            resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
            found.add((reference.get("apiGroup", ""), resource, line["verb"]))
    return found


def _lines(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last may be half written


def _without_grants(audited: Audited) -> None:
    rights = client.RbacAuthorizationV1Api(audited.api)
    role = next(each for each in yaml.safe_load_all(ROLE.read_text()) if each["kind"] == "ClusterRole")
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["grants"]]
    rights.replace_cluster_role(role["metadata"]["name"], role)


def _only(name: str, folder: Path) -> Path:
    """Return a file with one of the chart's policies and its binding."""
    found = [each for each in yaml.safe_load_all(POLICIES.read_text()) if each["metadata"]["name"] == name]
    assert len(found) == 2
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump_all(found))
    return path
