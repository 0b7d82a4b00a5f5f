"""Pods that compute while Orion is installed, upgraded and removed, and checks that they were not disturbed."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kubernetes import client

from measurements.cluster.chart_disturbance import Client, Clients, Disturbance, Watch
from orion.node_agent.api.client import NoAgent
from tests.node.gpu_tenants import GpuNode, Manifest, Tenants, main_container, serving, share, training
from tests.node.running_pod import RunningPod

REPORT = {"report": 0.5}
LIMIT = {"memory": {"limit": "6Gi"}}


@dataclass
class ComputingTenants:
    """An hp pod `serve` and a be pod `train` of one namespace, each with a share, and functions that observe them."""

    tenants: Tenants
    gpus: GpuNode

    @property
    def pods(self) -> dict[str, RunningPod]:
        """The pods, by name."""
        return {name: RunningPod.of(self.gpus, pod) for name, pod in self.tenants.pods().items()}

    def begin(self) -> None:
        """Create the pods, and return when they compute in their slots."""
        self.tenants.make_namespace()
        server = serving(**REPORT)
        # Without a request, pods that start would take the server's CPU time.
        main_container(server)["resources"]["requests"]["cpu"] = "500m"
        for pod in (server, training(**REPORT)):
            self.tenants.create(share(pod, **LIMIT))
            self.join(pod)
        self.compute()

    def join(self, pod: Manifest) -> None:
        """Create another pod, and return when it has its slot."""
        self.tenants.create(pod)
        self.pods[pod["metadata"]["name"]].joined_client()

    def compute(self) -> None:
        """Return when each pod has computed for a while from now on."""
        for pod in self.pods.values():
            pod.computes()

    def clients(self) -> Clients:
        """Wait until the pods' processes have joined their slots, and return them as clients."""
        joined = [pod.joined_client() for pod in self.pods.values()]
        return {each.process_id: Client(each.gpu, each.slot, each.client_index, each.generation) for each in joined}

    def restarts(self) -> int:
        """Return how often the pods' containers have restarted."""
        statuses = [status for pod in self.tenants.pods().values() for status in pod.status.container_statuses or ()]
        return sum(int(status.restart_count) for status in statuses)

    def latency(self, since: int = 0) -> float:
        """Return the server's 99th percentile of latency in ms: the mean over its reports from number `since` on."""
        reports = self.pods["serve"].printed("report")[since:]
        return statistics.mean(float(each["p99_ms"]) for each in reports if each["count"])

    def failures(self) -> list[Any]:
        """Return the messages of failed requests and steps; a program ends with its first failure."""
        return [said for pod in self.pods.values() for said in pod.printed("error")]

    def try_to_create_a_pod(self) -> None:
        """Create a pod as a dry run.

        Raises:
            client.ApiException: the API server rejected the pod.
        """
        self.tenants.core.create_namespaced_pod(self.tenants.namespace, training("trial"), dry_run="All")

    @contextmanager
    def watched(self) -> Iterator[Disturbance]:
        """Watch the pods until the context ends; the yielded `Disturbance` is complete then."""
        clients, before, reports = self.clients(), self.latency(), len(self.pods["serve"].printed("report"))
        with Watch(self._clients_now, self.try_to_create_a_pod, clients, NoAgent, client.ApiException) as watch:
            yield watch.seen
        print(f"\nwithout an agent for {watch.seen.away_seconds:.1f} s, {watch.seen.looks} checks, ", end="")
        print(f"{watch.seen.trials} pods tried; p99 {self.latency(reports) / before:.2f} times what it was before")

    def _clients_now(self) -> Clients:
        return {
            each.process_id: Client(gpu.uuid, slot.name, each.place, each.generation)
            for gpu in self.gpus.snapshot().gpus
            for slot in gpu.slots
            for each in slot.clients
        }
