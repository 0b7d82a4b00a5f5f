"""Pods that compute while Orion is installed, replaced and removed under them, and how they fared meanwhile."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kubernetes import client

from measurements.cluster.chart_disturbance import Disturbance, Seat, Seats, Watch
from orion.node_agent.api.client import NoAgent
from tests.node.gpu_tenants import GpuNode, Manifest, Tenants, main_container, serving, share, training
from tests.node.seen_from_below import RunningPod
from tests.waiting import eventually

REPORT = {"report": 0.5}
LIMIT = {"memory": {"limit": "6Gi"}}


@dataclass
class ComputingTenants:
    """An hp pod `serve` and a be pod `train` of one namespace, each with a share, and what is known of them."""

    tenants: Tenants
    gpus: GpuNode

    @property
    def pods(self) -> dict[str, RunningPod]:
        """The pods, by name."""
        return {name: RunningPod.of(self.gpus, pod) for name, pod in self.tenants.pods().items()}

    def begin(self) -> None:
        """Make them, and return when they compute in their slots."""
        core = self.tenants.core
        core.create_namespace({"metadata": {"name": self.tenants.namespace}})
        accounts = core.list_namespaced_service_account
        eventually(lambda: accounts(self.tenants.namespace, field_selector="metadata.name=default").items)
        server = serving(**REPORT)
        main_container(server)["resources"]["requests"]["cpu"] = (
            "500m"  # pods that begin take what nobody has asked for
        )
        for pod in (server, training(**REPORT)):
            self.tenants.create(share(pod, **LIMIT))
            self.join(pod)
        self.compute()

    def join(self, pod: Manifest) -> None:
        """Make another one, and return when it has its slot."""
        self.tenants.create(pod)
        self.pods[pod["metadata"]["name"]].seated()

    def compute(self) -> None:
        """Return when each of them has computed for a while from now on."""
        for pod in self.pods.values():
            pod.computes()

    def seats(self) -> Seats:
        """Return where their processes have joined, when all have."""
        seated = [pod.seated() for pod in self.pods.values()]
        return {seat.process_id: Seat(seat.gpu, seat.slot, seat.place, seat.generation) for seat in seated}

    def restarts(self) -> int:
        """Return how often their containers have begun again."""
        statuses = [status for pod in self.tenants.pods().values() for status in pod.status.container_statuses or ()]
        return sum(int(status.restart_count) for status in statuses)

    def latency(self, since: int = 0) -> float:
        """Return the 99th percentile of the server's requests in milliseconds, the mean of its reports since one."""
        reports = self.pods["serve"].said("report")[since:]
        return statistics.mean(float(each["p99_ms"]) for each in reports if each["count"])

    def failures(self) -> list[Any]:
        """Return what requests and steps that failed have said; a program ends with the first."""
        return [said for pod in self.pods.values() for said in pod.said("error")]

    def try_to_make_one(self) -> None:
        """Make a pod as a trial.

        Raises:
            client.ApiException: it was refused.
        """
        self.tenants.core.create_namespaced_pod(self.tenants.namespace, training("trial"), dry_run="All")

    @contextmanager
    def watched(self) -> Iterator[Disturbance]:
        """Watch them, from their seats now on; what is yielded is complete when the context is left."""
        seats, before, reports = self.seats(), self.latency(), len(self.pods["serve"].said("report"))
        with Watch(self._seats_now, self.try_to_make_one, seats, NoAgent, client.ApiException) as watch:
            yield watch.seen
        print(f"\nwithout an agent for {watch.seen.away_seconds:.1f} s, {watch.seen.looks} looks, ", end="")
        print(f"{watch.seen.trials} pods tried; p99 {self.latency(reports) / before:.2f} times what it was before")

    def _seats_now(self) -> Seats:
        return {
            each.process_id: Seat(gpu.uuid, slot.name, each.place, each.generation)
            for gpu in self.gpus.snapshot().gpus
            for slot in gpu.slots
            for each in slot.clients
        }
