"""Many pods come and go on two nodes: no GPU is given beyond what it has, no pod fails, and all books agree.

The pods ask for GPUs as with a device plugin, and GPUShares say the amounts. The scheduler sees more than the nodes
have, so that pods wait for others.
"""

import contextlib
import itertools
import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import starmap
from typing import Any

import pytest
from kubernetes import client, watch
from urllib3.exceptions import HTTPError

from testbed.cluster import Cluster
from testbed.node import Node
from testbed.orion import Orion
from tests.node.claimed_gpus import CDI, DRA, RECORDS, allocate, remove_classes, until_nothing_is_left
from tests.node.gpu_tenants import GROUP, GpuNode, Manifest, Tenants
from tests.node.shell_pods import shell_pod
from tests.waiting import eventually

pytestmark = [pytest.mark.node, pytest.mark.timeout(3600)]

SEED, ROUND = 18, 40
NODES, GPUS = ("wide-1", "wide-2"), 8
COUNTS = (1, 2, 3, 4)
LASTS = "lasts"
""" In the names of pods that run until they are deleted, after each round. """
CAPACITIES = ("time", "memory", "hpSlots", "beSlots", "spread")
SHARES: dict[str, tuple[str, dict[str, Any]]] = {
    f"{role}-{number}": (role, {**time, **memory})
    for role, little in (("hp", 0.5), ("be", 0.3))
    for number, (time, memory) in enumerate(
        itertools.product(
            ({}, {"compute": {"request": little}}, {"compute": {"request": 0.7}}),
            (
                {},
                {"memory": {"request": "20Gi", "limit": "30Gi"} | ({"oversubscribe": "park"} if role == "be" else {})},
            ),
        )
    )
}
""" Role and amounts, by the name of a GPUShare and of its pods' label. """
UNITS = {"": 1, "k": 1000, "Mi": 1 << 20, "Gi": 1 << 30}


def amount(text: str) -> int:
    number = text.rstrip("kMGi")
    return int(number) * UNITS[text.removeprefix(number)]


def results(claim: Manifest) -> list[dict[str, Any]]:
    """What the scheduler has given to a claim."""
    return list(claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ()))


class Ledger:
    """What is given of each GPU, after each event of a claim; `beyond` has each moment at which it was too much."""

    def __init__(self, api: client.ApiClient) -> None:
        self._objects = client.CustomObjectsApi(api)
        slices: Any = self._objects.list_cluster_custom_object(**DRA, plural="resourceslices")
        self._limits = {
            device["name"]: {name: amount(capacity["value"]) for name, capacity in device["capacity"].items()}
            for each in slices["items"]
            for device in each["spec"].get("devices") or ()
        }
        self.beyond: list[dict[tuple[str, str], int]] = []
        self.most: Counter[str] = Counter()
        """ The most of each capacity that was ever given of one GPU. """
        self._claims: dict[str, Manifest] = {}
        self._ended = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _follow(self) -> None:
        version = "0"
        while not self._ended.is_set():
            lister, options = (
                self._objects.list_cluster_custom_object,
                {"resource_version": version, "timeout_seconds": 600},
            )
            with contextlib.suppress(HTTPError):  # the watch goes on where it ended
                for event in watch.Watch().stream(lister, **DRA, plural="resourceclaims", **options):
                    claim = event["object"]
                    version, uid = claim["metadata"]["resourceVersion"], claim["metadata"]["uid"]
                    self._claims[uid] = claim
                    if event["type"] == "DELETED":
                        del self._claims[uid]
                    self._check()
                    if self._ended.is_set():
                        return

    def _check(self) -> None:
        sums: dict[tuple[str, str], int] = defaultdict(int)
        for result in itertools.chain.from_iterable(map(results, self._claims.values())):
            for name, text in result["consumedCapacity"].items():
                sums[result["device"], name] += amount(text)
        for (_, name), count in sums.items():
            self.most[name] = max(self.most[name], count)
        beyond = {key: count for key, count in sums.items() if count > self._limits[key[0]][key[1]]}
        if beyond:
            self.beyond.append(beyond)


@pytest.fixture(scope="module")
def wide_nodes(cluster: Cluster, orion: Orion, node: Node, api: client.ApiClient) -> Iterator[list[Node]]:
    """Two nodes with eight GPUs each, which are given by claims; `node-1` offers none to claims."""
    usual, orion.gpus = orion.gpus, GPUS
    allocate(orion, node, "dra")
    made = [cluster.add_node(name) for name in NODES]
    for each in made:
        orion.begin_agent(each)
        orion.begin_driver(each)
    yield made
    orion.gpus = usual
    uuids = [uuid for each in made for uuid in GpuNode(each, api).devices()]
    for each in made:
        orion.end_on(each)
        cluster.remove_node(each.name)
        client.CoreV1Api(api).delete_node(each.name)
    for uuid in uuids:
        client.CustomObjectsApi(api).delete_cluster_custom_object(**GROUP, plural="gpudevices", name=uuid.lower())
    allocate(orion, node, "device-plugin")
    remove_classes(api)


@pytest.fixture
def ledger(wide_nodes: list[Node], api: client.ApiClient) -> Iterator[Ledger]:
    objects = client.CustomObjectsApi(api)

    def offered() -> int:
        slices: Any = objects.list_cluster_custom_object(**DRA, plural="resourceslices")
        return sum(len(each["spec"].get("devices") or ()) for each in slices["items"])

    eventually(lambda: offered() == GPUS * len(NODES), what="both nodes offer all GPUs")
    made = Ledger(api)
    yield made
    made.end()


def books(api: client.ApiClient, node: Node) -> dict[str, set[str]]:
    """The uids of the claims that have GPUs of a node, by who says so."""
    found: Any = client.CustomObjectsApi(api).list_cluster_custom_object(**DRA, plural="resourceclaims")
    gpus = GpuNode(node, api)
    slots = (slot for gpu in gpus.snapshot().gpus for slot in gpu.slots)
    return {
        "scheduler": {
            claim["metadata"]["uid"]
            for claim in found["items"]
            if node.name in {result["pool"] for result in results(claim)}
        },
        "agent": {slot.claim.uid for slot in slots if slot.HasField("claim")},
        "records": {path.stem for path in gpus.path(RECORDS).iterdir()},
        "CDI files": {path.stem.removeprefix("orion.gpu-claim_") for path in gpus.path(CDI).iterdir()},
    }


def agree(found: dict[str, set[str]]) -> bool:
    named = [*found.values()]
    return all(each == named[0] for each in named)


def listed(tenants: Tenants) -> dict[str, dict[str, Any]]:
    """The statuses of all pods by name. The client's models are left out, which would take most of the test's time."""
    answer = tenants.core.list_namespaced_pod(tenants.namespace, _preload_content=False)
    return {each["metadata"]["name"]: each["status"] for each in json.loads(answer.data)["items"]}


def has_settled(name: str, status: dict[str, Any]) -> bool:
    """Whether a pod has ended, runs until somebody deletes it, or waits for others."""
    if status["phase"] == "Pending":
        reasons = [each.get("reason") for each in status.get("conditions", ()) if each["type"] == "PodScheduled"]
        return reasons == ["Unschedulable"]
    return bool(status["phase"] == ("Running" if LASTS in name else "Succeeded"))


def random_pod(choose: random.Random, number: int) -> Manifest:
    """A pod that runs for a moment, or until it is deleted."""
    kind, role = choose.choice((LASTS, "ends", "ends")), choose.choice(("hp", "be", "be"))
    share = choose.choice([name for name in SHARES if name.startswith(role)])
    pod = shell_pod(f"{kind}-{number}", f"sleep {3600 if kind == LASTS else choose.choice((0.1, 0.5, 2))}")
    pod["metadata"] |= {"labels": {"share": share}, "annotations": {"orion/priority": role}}
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(choose.choice(COUNTS))}}
    return pod


def make_shares(tenants: Tenants) -> None:
    for name, (role, amounts) in SHARES.items():
        spec = {"priority": role, "selector": {"matchLabels": {"share": name}}, **amounts}
        head = {"apiVersion": "orion.gpu/v1alpha1", "kind": "GPUShare", "metadata": {"name": name}}
        tenants.create({**head, "spec": spec})


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.thorough)])
def test_claims_slots_and_records_agree_while_pods_come_and_go(
    tenants: Tenants, ledger: Ledger, wide_nodes: list[Node], api: client.ApiClient, count: int
) -> None:
    choose, deleted = random.Random(SEED), set[str]()
    make_shares(tenants)

    def pods() -> dict[str, dict[str, Any]]:
        """All pods, none of which has failed."""
        assert ledger.beyond == []
        found = listed(tenants)
        assert {name: status for name, status in found.items() if status["phase"] == "Failed"} == {}
        return found

    def settled() -> bool:
        found = {name: status for name, status in pods().items() if name not in deleted}
        return all(starmap(has_settled, found.items())) and all(agree(books(api, node)) for node in wide_nodes)

    def end(found: dict[str, dict[str, Any]]) -> None:
        """Delete the pods that have ended or last; those that wait for others stay."""
        for name, status in found.items():
            if has_settled(name, status) and status["phase"] != "Pending" and name not in deleted:
                deleted.add(name)
                tenants.core.delete_namespaced_pod(name, tenants.namespace)

    def drained() -> bool:
        end(pods())
        return not pods()

    for number in range(count):
        tenants.create(random_pod(choose, number))
        if number % ROUND == ROUND - 1:
            eventually(settled, what="pods that run until they are deleted, and books that agree", seconds=200)
            end(pods())
    eventually(drained, what="all have come and gone", seconds=600)
    for node in wide_nodes:
        until_nothing_is_left(GpuNode(node, api), node)
    assert set(CAPACITIES) <= {name for name, most in ledger.most.items() if most}
