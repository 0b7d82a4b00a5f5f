"""JobSet's own controller: pods of two jobs, hp and be, over suspension, restart and deletion."""

import pytest

from testbed.neighbours import JOBSET
from tests.neighbours.conftest import Install
from tests.neighbours.workloads import Workloads, share, template
from tests.node.gpu_tenants import Manifest

pytestmark = pytest.mark.neighbours

LABEL = "jobset.sigs.k8s.io/replicatedjob-name"


def job_set(**spec: object) -> Manifest:
    def replicated(name: str, priority: str, replicas: int) -> Manifest:
        pods = template(priority, role=name)
        pods["spec"]["restartPolicy"] = "Never"
        job = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": pods}
        return {"name": name, "replicas": replicas, "template": {"spec": job}}

    jobs = [replicated("serve", "hp", 1), replicated("train", "be", 2)]
    spec = {"replicatedJobs": jobs, **spec}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"}, "spec": spec}


def test_pods_of_a_job_set_are_created_suspended_resumed_restarted_and_deleted(
    install: Install, workloads: Workloads
) -> None:
    install(JOBSET)
    workloads.apply(share("serve", "hp", role="serve"))
    workloads.apply(job_set(failurePolicy={"maxRestarts": 2}))
    workloads.running(3)
    (serving,) = workloads.running(1, **{LABEL: "serve"}).values()
    assert workloads.governed_by(serving) == "serve"
    workloads.patch("jobset", "set", {"spec": {"suspend": True}})
    workloads.running(0)
    workloads.patch("jobset", "set", {"spec": {"suspend": False}})
    before = workloads.running(3)
    failed = next(iter(workloads.running(2, **{LABEL: "train"})))
    workloads.fail(failed)  # all jobs are created again
    after = workloads.running(3, **{"jobset.sigs.k8s.io/restart-attempt": "1"})
    assert not before.keys() & after.keys()
    workloads.delete("jobset", "set")
