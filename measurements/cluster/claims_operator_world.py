"""Objects for `claims_operator`: GPUShares, pods that ask as usual, and what kubelets and agents write."""

import asyncio
import base64
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from measurements.cluster.placement_world import GPUS, WAYS, PlacementWorld, gpus_of, results
from measurements.cluster.webhook_load import process, wait_until_ready
from measurements.cluster.webhook_world import certificates
from orion.api_server.requests import METADATA_LIST, ApiServer
from orion.crds.claims import CLAIMS, SHAPE, TEMPLATE_LABEL, TEMPLATES
from orion.crds.model import API_VERSION
from orion.node_pods import AUDIENCE
from orion.operator.webhook import manifests, reviews
from testbed.ports import free_port

SPACES, SHARES = 20, 10
""" Namespaces, and GPUShares in each. """
SHAPES = 8
""" Shares whose numbers differ by this ask for the same. """
HP = 2
""" Shapes of hp. """
MARK = {"orion-bench": "1"}
_CRDS = Path(__file__).resolve().parents[2] / "charts" / "orion" / "files" / "crds"
_GROUP = f"/apis/{API_VERSION}"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_ACCOUNT = "orion-agent"
_LARGE = "large-"
_AT_ONCE = 32
_POLL_S = 0.2

Plain = dict[str, Any]


@contextlib.contextmanager
def webhook(kubeconfig: Path, folder: Path) -> Iterator[Plain]:
    """Run a webhook that makes claims; yield how the API server reaches it."""
    keys, health = folder / "webhook", free_port()
    keys.mkdir()
    authority = certificates(keys)
    command = ["orion.cli", "webhook", "--certificates", str(keys), "--listen", "127.0.0.1:0"]
    command += ["--health", f"127.0.0.1:{health}", "--kubeconfig", str(kubeconfig), "--allocation", "dra"]
    with process(*command, until="reviews on port") as (line, _):
        url = f"https://127.0.0.1:{int(line.split()[-1])}{reviews.PATH}"
        yield {"url": url, "caBundle": base64.b64encode(authority.read_bytes()).decode(), "health": health}


class ClaimsWorld:
    """The objects of one cluster.

    Args:
        server: the API server.
        nodes: how many nodes there are.
    """

    agents = f"default/{_ACCOUNT}"
    """ The service account of the agents. """

    def __init__(self, server: ApiServer, nodes: int) -> None:
        self._server, self._nodes = server, [f"node-{number:04}" for number in range(nodes)]
        self._placement = PlacementWorld(server)
        self._number = 0

    async def establish_types(self) -> None:
        """Make Orion's kinds; return when the API server serves them."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for file in sorted(_CRDS.iterdir()):
            await self._server.post(path, yaml.safe_load(file.read_text()))
        while not all(_is_established(each) for each in (await self._server.get(path))["items"]):
            await asyncio.sleep(_POLL_S)

    async def make(self, reach: Plain) -> None:
        """Make everything else but pods; return when pods get claims.

        Args:
            reach: how the API server reaches the webhook, as `webhook` says.
        """
        await self._placement.begin()
        await self._placement.grow(len(self._nodes))
        await self._placement.offer(WAYS["7-places"])
        await _all(self._device(node, number) for node in self._nodes for number in range(GPUS))
        for name in map(_space, range(SPACES)):
            await self._server.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": MARK}})
        for name in map(_space, range(SPACES)):
            while not (await self._server.get(f"/api/v1/namespaces/{name}/serviceaccounts"))["items"]:
                await asyncio.sleep(_POLL_S)  # without one, the API server refuses pods
        await _all(self._share(_space(space), number) for space in range(SPACES) for number in range(SHARES))
        wait_until_ready(reach.pop("health"))
        await self._server.post(_WEBHOOKS, manifests.webhook(reach, "orion-bench", {"matchLabels": MARK}))
        await self._server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": _ACCOUNT}})
        probe = f"{_pods(_space(0))}?dryRun=All"
        while SHAPE not in (await self._server.post(probe, _pod("probe", 0)))["metadata"]["annotations"]:
            await asyncio.sleep(_POLL_S)

    async def tokens(self) -> list[str]:
        """Return a token for the agent of each node."""
        return list(await asyncio.gather(*map(self._token, self._nodes)))

    async def create(self, count: int) -> None:
        """Create pods that ask for a GPU as usual: of all namespaces and shares in turn."""
        first, self._number = self._number, self._number + count
        await _all(
            self._post(_pods(_space(number)), _pod(f"pod-{number:05}", number // SPACES % SHARES))
            for number in range(first, first + count)
        )

    async def create_too_large(self, count: int) -> list[str]:
        """Create pods of one namespace whose shares ask for more memory than a GPU has; return the pods' names."""
        for number in range(SHARES):
            memory = {"limit": f"{200 + number}Gi"}
            await self._share(_space(0), SHARES + number, memory=memory)
        names = [f"{_LARGE}{number:04}" for number in range(count)]
        bodies = [_pod(name, SHARES + number % SHARES) for number, name in enumerate(names)]
        await _all(self._post(_pods(_space(0)), body) for body in bodies)
        return names

    async def all_are_placed(self) -> bool:
        """Return whether each pod has a node."""
        return not [each async for each in self._listed("/api/v1/pods", fieldSelector="spec.nodeName=")]

    async def all_say_why(self, names: list[str]) -> bool:
        """Return whether the Events of each of these pods say what the GPUs lack."""
        path = f"/api/v1/namespaces/{_space(0)}/events"
        events = [each async for each in self._listed(path, fieldSelector="reason=WaitsForGPU")]
        return {each["involvedObject"]["name"] for each in events} >= set(names)

    async def end_some(self) -> int:
        """Remove the pods that wait, and all pods of half of the shapes; return their number."""
        found = [each["metadata"] async for each in self._listed("/api/v1/pods", labelSelector="app", full=False)]
        gone = [each for each in found if each["name"].startswith(_LARGE) or _kind(each["labels"]["app"]) % 2]
        paths = (f"{_pods(each['namespace'])}/{each['name']}?gracePeriodSeconds=0" for each in gone)
        await _all(self._delete(path) for path in paths)
        return len(gone)

    async def templates_are_those_in_use(self) -> bool:
        """Return whether the operator's templates are exactly those that pods name."""
        shapes, templates = await self.shapes_and_templates()
        return {(space, name) for space, name, _ in shapes} == templates

    async def shapes_and_templates(self) -> tuple[set[tuple[str, str, str]], set[tuple[str, str]]]:
        """Return the shapes of pods, with namespace and name of template, and the operator's templates."""
        shapes = set()
        async for pod in self._listed("/api/v1/pods", labelSelector="app"):
            meta, (claim,) = pod["metadata"], pod["spec"]["resourceClaims"]
            shapes.add((meta["namespace"], claim["resourceClaimTemplateName"], meta["annotations"][SHAPE]))
        templates = {
            (each["metadata"]["namespace"], each["metadata"]["name"])
            async for each in self._listed(TEMPLATES, labelSelector=TEMPLATE_LABEL, full=False)
        }
        return shapes, templates

    async def report(self) -> None:
        """Write what kubelets and agents would: pods run, and GPUs name the pods that hold their slots."""
        held: dict[str, list[Plain]] = defaultdict(list)
        running: list[str] = []
        async for claim in self._listed(CLAIMS):
            meta = claim["metadata"]
            for one in results(claim):
                pod = {"namespace": meta["namespace"], "name": meta["ownerReferences"][0]["name"], "container": "main"}
                role = "hp" if int(one["consumedCapacity"]["hpSlots"]) else "be"
                held[one["device"]].append({"name": f"{role}-{len(held[one['device']])}", "priority": role, "pod": pod})
                running.append(f"{_pods(meta['namespace'])}/{pod['name']}/status")
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await _all(self._patch(path, {"status": status}) for path in running)
        await _all(self._patch(_device_path(name), _holding(slots)) for name, slots in held.items())

    async def _device(self, node: str, number: int) -> None:
        gpu = gpus_of(node)[number]
        body = {"apiVersion": API_VERSION, "kind": "GPUDevice", "metadata": {"name": gpu.uuid.lower()}, "spec": {}}
        await self._post(f"{_GROUP}/gpudevices", body)
        status: Plain = {"node": node, "uuid": gpu.uuid, "model": gpu.model, "mode": "timeslice", "health": "Healthy"}
        status |= {"allocation": "dra", "memory": {"total": str(gpu.memory_bytes)}}
        await self._patch(_device_path(gpu.uuid.lower()), {"status": status})

    async def _share(self, space: str, number: int, **changes: Plain) -> None:
        kind = number % SHAPES
        role, request = ("hp", 0.5) if kind < HP else ("be", 0.1)
        spec: Plain = {"priority": role, "selector": {"matchLabels": {"app": _app(number)}}}
        spec |= {"compute": {"request": request}, "memory": {"limit": f"{1 + kind}Gi"}} | changes
        body = {"apiVersion": API_VERSION, "kind": "GPUShare", "metadata": {"name": _app(number)}, "spec": spec}
        await self._post(f"{_GROUP}/namespaces/{space}/gpushares", body)

    async def _token(self, node: str) -> str:
        bound = {"kind": "Node", "apiVersion": "v1", "name": node}
        spec = {"audiences": [AUDIENCE], "boundObjectRef": bound, "expirationSeconds": 6 * 3600}
        path = f"/api/v1/namespaces/default/serviceaccounts/{_ACCOUNT}/token"
        return str((await self._server.post(path, {"spec": spec}))["status"]["token"])

    async def _listed(self, path: str, *, full: bool = True, **query: str) -> Any:
        form = {} if full else {"accept": METADATA_LIST}
        async for page in self._server.pages(path, **form, **query):
            for each in page["items"]:
                yield each

    async def _post(self, path: str, body: Plain) -> None:
        await self._server.post(path, body)

    async def _patch(self, path: str, body: Plain) -> None:
        await self._server.patch(path, body)

    async def _delete(self, path: str) -> None:
        await self._server.delete(path)


def _holding(slots: list[Plain]) -> Plain:
    clients = [
        {"slot": each["name"], "priority": each["priority"], "pod": each["pod"], "processId": 1_000 + number}
        | {"command": "python", "state": "running", "memory": "3Gi", "busyRatio": 0.4, "gatedRatio": 0.2}
        for number, each in enumerate(slots)
    ]
    return {"status": {"heldSlots": slots, "clients": clients, "clientCount": len(clients)}}


def _pod(name: str, share: int) -> Plain:
    role = "hp" if share % SHAPES < HP else "be"
    meta = {"name": name, "labels": {"app": _app(share)}, "annotations": {"orion/priority": role}}
    env = [{"name": f"SETTING_{number:02}", "value": "a value of some length"} for number in range(16)]
    container = {"name": "main", "image": "registry.example/training:1", "env": env}
    return {"metadata": meta, "spec": {"containers": [container | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}


def _is_established(kind: Plain) -> bool:
    found = kind.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)


def _pods(space: str) -> str:
    return f"/api/v1/namespaces/{space}/pods"


def _device_path(name: str) -> str:
    return f"{_GROUP}/gpudevices/{name}/status"


def _space(number: int) -> str:
    return f"team-{number % SPACES:02}"


def _app(number: int) -> str:
    return f"app-{number:02}"


def _kind(app: str) -> int:
    return int(app.removeprefix("app-")) % SHAPES


async def _all(work: Iterable[Awaitable[None]]) -> None:
    """Do all of it, some side by side."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(each: Awaitable[None]) -> None:
        async with gate:
            await each

    await asyncio.gather(*map(one, work))
