"""Nodes, GPUs and tenants for `claims_placement` and `claims_operator`, and the ways in which pods get a GPU.

The objects are real and the nodes have no kubelets. The controller manager of the testbed's control plane waits a year
for a node's heartbeat, so the nodes stay Ready. Their ResourceSlices come from the code of the driver, templates from
that of the operator, and classes from the chart.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orion.api_server.requests import ApiServer
from orion.crds.claims import CLAIM, DRIVER, SLOTS, ClaimShape
from orion.crds.places import PARTS, PLACES_MAX, SPREAD
from orion.crds.policy import Priority
from orion.dra_driver import slices
from orion.injection.slots import Slot
from orion.injection.snapshot import AdvertisedGPU, Snapshot

GPUS, BE_SLOTS = 8, 8
SPACE = "bench"
PODS, CLAIMS, TEMPLATES = (
    f"{api}/namespaces/{SPACE}/{kind}"
    for api, kind in (
        ("/api/v1", "pods"),
        ("/apis/resource.k8s.io/v1", "resourceclaims"),
        ("/apis/resource.k8s.io/v1", "resourceclaimtemplates"),
    )
)
SLICES, NODES = "/apis/resource.k8s.io/v1/resourceslices", "/api/v1/nodes"
_CLASSES_FILE = Path(__file__).resolve().parents[2] / "charts" / "orion" / "files" / "dra" / "classes.yaml"
_SLOT = f"{DRIVER}/{Priority.BE}"
_MARKS, _FEW = ("none", "few", "many"), 2
_POLL_S = 0.2

Plain = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """One way in which pods get a GPU.

    Args:
        name: what the tables call it.
        by_claims: False: the pods ask for a device plugin's resource, and the kubelet would choose the GPU.
        places: for how many places the claims ask; None: for none.
        offered: whether the GPUs have places.
        separate: whether each place is a capacity of its own.
        reordered: whether each node's slice always lists the GPU with the fewest tenants first.
        marked: whether an attribute says roughly how many tenants each GPU has; pods prefer GPUs with few.
    """

    name: str
    by_claims: bool = True
    places: int | None = None
    offered: bool = True
    separate: bool = False
    reordered: bool = False
    marked: bool = False

    @property
    def spreads(self) -> bool:
        """Whether the tenants that are in place are on different GPUs."""
        return bool(self.places) or self.follows

    @property
    def follows(self) -> bool:
        """Whether the slices change with the tenants."""
        return self.reordered or self.marked


WAYS = {
    way.name: way
    for way in (
        Way("first-fit", offered=False),
        Way("first-fit-beside-places"),
        Way("1-place", places=1),
        Way("3-places", places=3),
        Way("7-places", places=7),
        Way("7-capacities", places=7, separate=True),
        Way("order-of-slice", offered=False, reordered=True),
        Way("coarse-attribute", offered=False, marked=True),
        Way("device-plugin", by_claims=False),
    )
}


class PlacementWorld:
    """The objects of one cluster."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._slices: dict[str, int] = {}
        """ The generation of each node's slice; 0: it has none yet. """
        self._slots: dict[str, dict[str, str]] = {}
        """ What each node's device plugin offers. """
        self._tenants = Counter[tuple[str, str]]()
        """ The tenants that the slices show, by node and device. """
        self.slice_writes = 0
        self._number = 0

    async def begin(self) -> None:
        """Make the namespace and the classes."""
        await self._server.post("/api/v1/namespaces", {"metadata": {"name": SPACE}})
        for body in yaml.safe_load_all(_CLASSES_FILE.read_text()):
            await self._server.post("/apis/resource.k8s.io/v1/deviceclasses", body)
        while not (await self._server.get(f"/api/v1/namespaces/{SPACE}/serviceaccounts"))["items"]:
            await asyncio.sleep(_POLL_S)

    async def grow(self, count: int) -> None:
        """Add nodes until there are so many; return when all are ready."""
        await _all(self._node(number) for number in range(len(self._slices), count))
        while any("taints" in node["spec"] for node in (await self._server.get(NODES))["items"]):
            await asyncio.sleep(_POLL_S)

    async def prepare(self, way: Way, tenants: int) -> None:
        """Let the GPUs be as a way needs them, with tenants as it would have placed them."""
        await self.clear()
        await self.offer(way)
        if way.by_claims:
            await _all(self._tenant(number, way) for number in range(tenants))
            await self._server.post(TEMPLATES, _template(way))

    async def offer(self, way: Way) -> None:
        """Let the nodes offer their GPUs as a way needs them."""
        await _all(self._write_slice(name, way, gpus_of(name)) for name in self._slices)

    async def clear(self) -> None:
        """Remove pods, claims and templates."""
        await self._server.delete(f"{PODS}?gracePeriodSeconds=0")
        while any("ownerReferences" in each["metadata"] for each in await self.claims()):
            await asyncio.sleep(_POLL_S)
        await self._server.delete(CLAIMS)
        await self._server.delete(TEMPLATES)
        self._tenants.clear()

    async def pod(self, way: Way | None) -> str:
        """Create a pod with one be slot, or without a slot; return its name."""
        self._number += 1
        container: Plain = {"name": "main", "image": "none"}
        spec: Plain = {"containers": [container]}
        if way is not None and way.by_claims:
            container["resources"] = {"claims": [{"name": CLAIM, "request": "main"}]}
            spec["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": _shape(way).template_name}]
        elif way is not None:
            container["resources"] = {"limits": {_SLOT: "1"}}
        name = f"p-{self._number:06}"
        await self._server.post(PODS, {"metadata": {"name": name}, "spec": spec})
        return name

    async def claims(self) -> list[Plain]:
        """Return all claims."""
        return [each async for page in self._server.pages(CLAIMS) for each in page["items"]]

    async def differences(self, way: Way) -> tuple[int | None, int]:
        """Return the largest difference in tenants between the GPUs of a node (None: not known), and between nodes."""
        if not way.by_claims:
            pods = (await self._server.get(PODS))["items"]
            on = Counter(each["spec"].get("nodeName") for each in pods)
            counts = [on[name] for name in self._slices]
            return None, max(counts) - min(counts)
        tenants = Counter((one["pool"], one["device"]) for each in await self.claims() for one in results(each))
        of_nodes = [[tenants[name, gpu.uuid.lower()] for gpu in gpus_of(name)] for name in self._slices]
        totals = [sum(counts) for counts in of_nodes]
        return max(max(counts) - min(counts) for counts in of_nodes), max(totals) - min(totals)

    async def follow_tenants(self, way: Way) -> None:
        """Write the slice of a node after each allocation there that changes it, until this is cancelled."""
        known = set[str]()
        for claim in await self.claims():
            known.add(claim["metadata"]["uid"])
            self._tenants.update((one["pool"], one["device"]) for one in results(claim))
        await _all(self._write_again(node, way) for node in {node for node, _ in self._tenants})
        async for claim in self._allocated(known):
            for one in results(claim):
                at = one["pool"], one["device"]
                before = _mark(self._tenants[at])
                self._tenants[at] += 1
                if way.reordered or _mark(self._tenants[at]) != before:
                    await self._write_again(one["pool"], way)

    async def _write_again(self, node: str, way: Way) -> None:
        gpus, counted = gpus_of(node), dict(self._tenants)
        if way.reordered:
            gpus.sort(key=lambda gpu: counted.get((node, gpu.uuid.lower()), 0))
        await self._write_slice(node, way, gpus)

    async def _allocated(self, known: set[str]) -> AsyncIterator[Plain]:
        """Yield each claim that gets a GPU."""
        while True:  # the API server ends a watch that lags behind; the next one begins with all claims
            async for event in self._server.events(CLAIMS, 600.0):
                claim = event["object"]
                new = claim["metadata"].get("uid") not in known and event["type"] in ("ADDED", "MODIFIED")
                if new and results(claim):
                    known.add(claim["metadata"]["uid"])
                    yield claim

    async def _node(self, number: int) -> None:
        name = f"node-{number:04}"
        amounts = {"cpu": "128", "memory": "1024Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "no kubelet"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        await self._server.post(NODES, {"metadata": {"name": name}, "status": status})
        self._slices[name] = 0

    async def _write_slice(self, node: str, way: Way, gpus: Sequence[AdvertisedGPU]) -> None:
        """Offer the GPUs of a node, in this order, to claims or by a device plugin."""
        slots = {_SLOT: "0" if way.by_claims else str(GPUS * BE_SLOTS)}
        if self._slots.get(node) != slots:
            await self._server.patch(f"{NODES}/{node}/status", {"status": {"allocatable": slots, "capacity": slots}})
            self._slots[node] = slots
        found = slices.devices(Snapshot({each.uuid: each for each in gpus}), 512 << 20)
        by_name = {each["name"]: _offered(each, way, self._tenants[node, each["name"]]) for each in found}
        generation = self._slices[node] = self._slices[node] + 1
        body = slices.resource_slice(node, "", generation, [by_name[each.uuid.lower()] for each in gpus])
        # Without an owner, since the garbage collector would look for the node's uid.
        name = body["metadata"]["name"]
        body["metadata"] = {"name": name}
        await (self._server.post(SLICES, body) if generation == 1 else self._server.put(f"{SLICES}/{name}", body))
        self.slice_writes += 1

    async def _tenant(self, number: int, way: Way) -> None:
        """Make a claim that has a GPU already: the nodes in turn, and their GPUs as the way chooses them."""
        node = f"node-{number % len(self._slices):04}"
        row = number // len(self._slices)
        gpu, place = (row % GPUS, row // GPUS) if way.spreads else (row // BE_SLOTS, None)
        name = f"tenant-{number:06}"
        spec = _template(way)["spec"]["spec"]
        made = await self._server.post(
            CLAIMS,
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec},
        )
        request, taken = _taken(way, place)
        result = {
            "request": request,
            "driver": DRIVER,
            "pool": node,
            "device": gpus_of(node)[gpu].uuid.lower(),
            "shareID": str(uuid.uuid4()),
            "consumedCapacity": taken,
        }
        made["status"] = {"allocation": {"devices": {"results": [result]}}}
        await self._server.put(f"{CLAIMS}/{name}/status", made)


def results(claim: Mapping[str, Any]) -> list[Plain]:
    """Return the GPUs that a claim has got."""
    found: list[Plain] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results") or []
    return found


def _shape(way: Way) -> ClaimShape:
    return ClaimShape(priority=Priority.BE, gpus={"main": 1}, places=way.places)


def _template(way: Way) -> Plain:
    template = _shape(way).template()
    if way.separate:
        for request in template["spec"]["spec"]["devices"]["requests"]:
            for number, each in enumerate(request["firstAvailable"][:-1], start=1):
                asked = each["capacity"]["requests"]
                del asked[SPREAD]
                asked[f"place{number}"] = "1"
    if way.marked:
        for request in template["spec"]["spec"]["devices"]["requests"]:
            request["firstAvailable"] = _preferring_few(request.pop("exactly"))
    return template


def _preferring_few(exactly: Plain) -> list[Plain]:
    """Return alternatives of a request: a GPU without tenants, then one with few, then any."""
    of_mark = 'device.attributes["{}"].tenants == "{}"'
    marked = (
        exactly | {"name": mark, "selectors": [{"cel": {"expression": of_mark.format(DRIVER, mark)}}]}
        for mark in _MARKS[:-1]
    )
    return [*marked, exactly | {"name": "any"}]


def _mark(tenants: int) -> str:
    """Return the attribute's value for so many tenants. Few values mean few writes."""
    return _MARKS[0] if not tenants else _MARKS[1] if tenants <= _FEW else _MARKS[2]


def _offered(device: Plain, way: Way, tenants: int) -> Plain:
    capacity = {name: each for name, each in device["capacity"].items() if name != SPREAD or _whole(way)}
    if way.separate:
        policy = {"default": "0", "validValues": ["0", "1"]}
        capacity |= {f"place{number}": {"value": "1", "requestPolicy": policy} for number in range(1, PLACES_MAX + 1)}
    if way.marked:
        device = device | {"attributes": device["attributes"] | {"tenants": {"string": _mark(tenants)}}}
    return device | {"capacity": capacity}


def _whole(way: Way) -> bool:
    return way.offered and not way.separate


def _taken(way: Way, place: int | None) -> tuple[str, Plain]:
    """Return the request that a tenant has got, and what it has consumed of its GPU."""
    taken = {"time": "0", "memory": "0", SLOTS[Priority.BE]: "1", SLOTS[Priority.HP]: "0"}
    has = place is not None and way.places is not None and place < way.places
    if _whole(way):
        taken[SPREAD] = str(PARTS[place]) if has and place is not None else "0"
    elif way.separate:
        taken |= {f"place{number}": str(int(has and number - 1 == place)) for number in range(1, PLACES_MAX + 1)}
    if not way.places:
        return "main/any" if way.marked else "main", taken
    return (f"main/place-{place + 1}" if has and place is not None else "main/any"), taken


def gpus_of(node: str) -> list[AdvertisedGPU]:
    """Return the GPUs of a node."""
    uuids = [f"GPU-{node.removeprefix('node-')}000{number}-0000-4000-8000-00000000000a" for number in range(GPUS)]
    return [
        AdvertisedGPU(
            each,
            index=number,
            slots=(Slot(each, "hp", 0), *(Slot(each, "be", slot) for slot in range(BE_SLOTS))),
            memory_bytes=141 << 30,
            model="NVIDIA H200",
            compute_capability="9.0",
            driver_version="580.95.05",
            numa_node=number // 4,
            pci_bus_id=f"0000:{number}7:00.0",
            pcie_root=f"pci0000:{number}6",
            linked=frozenset(uuids) - {each},
        )
        for number, each in enumerate(uuids)
    ]


async def _all(work: Iterable[Awaitable[None]]) -> None:
    """Do all of it, side by side."""
    await asyncio.gather(*work)
