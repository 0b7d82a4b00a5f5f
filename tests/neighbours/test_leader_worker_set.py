"""LeaderWorkerSet's own controller: groups of a leader (hp) and a worker (be), updated and scaled."""

import pytest

from testbed.neighbours import LEADER_WORKER_SET
from tests.neighbours.conftest import Install
from tests.neighbours.workloads import Workloads, share, template
from tests.node.gpu_tenants import Manifest
from tests.waiting import eventually

pytestmark = pytest.mark.neighbours

NAME = "leaderworkerset.sigs.k8s.io/name"


def groups(version: str, replicas: int = 1) -> Manifest:
    leader, worker = template("hp", role="leader"), template("be", role="worker")
    worker["metadata"]["annotations"]["version"] = leader["metadata"]["annotations"]["version"] = version
    of_group = {"size": 2, "leaderTemplate": leader, "workerTemplate": worker}
    spec = {"replicas": replicas, "leaderWorkerTemplate": of_group}
    metadata = {"name": "groups"}
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}


def versions(workloads: Workloads) -> list[str]:
    return [pod.metadata.annotations["version"] for pod in workloads.pods(**{NAME: "groups"}).values()]


def test_groups_are_created_updated_scaled_and_deleted(install: Install, workloads: Workloads) -> None:
    install(LEADER_WORKER_SET)
    workloads.apply(share("serve", "hp", role="leader"), groups("1"))
    workloads.running(2)
    (leader,) = workloads.running(1, role="leader").values()
    assert workloads.governed_by(leader) == "serve"
    workloads.apply(groups("2"))
    eventually(lambda: versions(workloads) == ["2", "2"])
    workloads.running(2)
    workloads.apply(groups("2", replicas=2))
    workloads.running(4)
    workloads.apply(groups("2", replicas=1))
    workloads.running(2)
    workloads.delete("leaderworkerset", "groups")
