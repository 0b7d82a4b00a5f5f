"""How long the kubelet waits for the driver's answers: 64 slots on 8 GPUs, one claim of one slot for each pod.

The node's kubelet makes the Node object and is then killed, and this program calls the driver in its place. All else is
real: the webhook or a template makes the claims, the scheduler allocates them, the operator sends the grants.

    first        prepare as soon as the pod is bound, as a kubelet does; the pods come one after the other
    again        unprepare and prepare of all claims, one after the other
    side by side the same, all calls at once

Claims that the webhook made wait in `first` until the agent has the pod's grant, at most a second.
"""

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc

from measurements.cluster.claims.figures import Figure
from measurements.cluster.claims.manifests import Manifest, as_usual, by_hand, share, shell, template
from measurements.cluster.claims.seen import Seen
from measurements.cluster.claims.world import DRA, World, world
from measurements.repeating import repeated
from orion.bench import raw_data
from orion.bench.commandline import say
from orion.dra_driver.kubelet.claims import api_pb2, api_pb2_grpc

GPUS, SLOTS = 8, 8
SIZES = {"slots": GPUS * SLOTS, "rounds": 10}
SMOKE = {"slots": GPUS * SLOTS, "rounds": 1}
KINDS = {"hand": "by hand", "webhook": "by the webhook"}
RENEW_S = 5.0
CALL_S = 45.0


@dataclass(frozen=True)
class Claim:
    """A claim that the scheduler has allocated."""

    namespace: str
    name: str
    uid: str


def measure(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the raw data."""
    raw: dict[str, Any] = {}
    with world(GPUS, {"hp": 1, "be": SLOTS - 1}) as here:
        here.node.end("kubelet")
        with _alive(here), _driver(here) as driver:
            for kind in KINDS:
                with here.namespace() as namespace:
                    raw[kind] = _turn(here, driver, namespace, kind, sizes)
    return raw


def figures(raw: Mapping[str, Any]) -> list[Figure]:
    """Return the rows of the table."""
    rows = []
    for kind, title in KINDS.items():
        found, many = raw[kind], f"{raw['sizes']['slots']} side by side"
        rows += [
            Figure(f"prepare, claims {title}, when the pod is bound", found["first_s"], "", "ms"),
            Figure(f"prepare, claims {title}, one after the other", found["prepare_s"], "p99 <= 30 ms", "ms"),
            Figure(f"unprepare, claims {title}, one after the other", found["unprepare_s"], "p99 <= 20 ms", "ms"),
            Figure(f"prepare, claims {title}, {many}", found["prepare_together_s"], "", "ms"),
            Figure(f"unprepare, claims {title}, {many}", found["unprepare_together_s"], "", "ms"),
        ]
    return rows


def _turn(here: World, driver: "Driver", namespace: str, kind: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    for role in ("hp", "be"):
        here.create(namespace, template(role, role), share(role, role, memory={"limit": "1Gi"}))
    claims, first = [], []
    with Seen(here.core.list_namespaced_pod, namespace) as pods:
        for number in range(sizes["slots"]):
            role = "be" if number % SLOTS else "hp"
            here.create(namespace, _pod(f"pod-{number}", kind, role))
            name = _until_bound(pods, f"pod-{number}")
            claims.append(_claim(here, namespace, name))
            first.append(_timed(driver.prepare, claims[-1]))
    say(f"claims {KINDS[kind]}: {len(claims)} prepared")
    seconds: dict[str, list[float]] = {"first_s": first}
    for _ in range(sizes["rounds"]):
        _add(seconds, "unprepare_s", [_timed(driver.unprepare, each) for each in claims])
        _add(seconds, "prepare_s", [_timed(driver.prepare, each) for each in claims])
    for _ in range(sizes["rounds"]):
        _add(seconds, "unprepare_together_s", _together(driver.unprepare, claims))
        _add(seconds, "prepare_together_s", _together(driver.prepare, claims))
    _together(driver.unprepare, claims)
    return {name: raw_data.rounded(values) for name, values in seconds.items()}


def _pod(name: str, kind: str, role: str) -> Manifest:
    return by_hand(shell(name), role) if kind == "hand" else as_usual(shell(name), role, role)


def _until_bound(pods: Seen, name: str) -> str:
    """Wait until a pod is bound; return the name of its claim."""
    found: list[str] = []

    def bound(_: str, plain: dict[str, Any]) -> bool:
        if plain["metadata"]["name"] != name or not plain["spec"].get("nodeName"):
            return False
        found[:] = [each["resourceClaimName"] for each in plain["status"].get("resourceClaimStatuses", ())]
        return bool(found)

    pods.first(bound, 0.0, f"{name} is bound")
    return found[0]


def _claim(here: World, namespace: str, name: str) -> Claim:
    found: Any = here.objects.get_namespaced_custom_object(
        **DRA, namespace=namespace, plural="resourceclaims", name=name
    )
    return Claim(namespace, name, found["metadata"]["uid"])


def _timed(call: Callable[[Claim], None], claim: Claim) -> float:
    began = time.perf_counter()
    call(claim)
    return time.perf_counter() - began


def _together(call: Callable[[Claim], None], claims: list[Claim]) -> list[float]:
    with ThreadPoolExecutor(len(claims)) as threads:
        return list(threads.map(lambda claim: _timed(call, claim), claims))


def _add(seconds: dict[str, list[float]], name: str, values: list[float]) -> None:
    seconds.setdefault(name, []).extend(values)


class Driver:
    """The node's driver, called as a kubelet calls it."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def prepare(self, claim: Claim) -> None:
        """Prepare a claim."""
        request = api_pb2.NodePrepareResourcesRequest(claims=[_message(claim)])
        _check(self._stub.NodePrepareResources(request, timeout=CALL_S), claim)

    def unprepare(self, claim: Claim) -> None:
        """Unprepare a claim."""
        request = api_pb2.NodeUnprepareResourcesRequest(claims=[_message(claim)])
        _check(self._stub.NodeUnprepareResources(request, timeout=CALL_S), claim)


def _message(claim: Claim) -> api_pb2.Claim:
    return api_pb2.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def _check(answer: Any, claim: Claim) -> None:
    error = answer.claims[claim.uid].error
    if error:
        raise RuntimeError(f"claim {claim.namespace}/{claim.name}: {error}")


@contextlib.contextmanager
def _driver(here: World) -> Iterator[Driver]:
    (socket,) = (here.kubelet / "plugins" / "orion.gpu").glob("*.sock")
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        yield Driver(api_pb2_grpc.DRAPluginStub(channel))  # type: ignore[no-untyped-call]


def _alive(here: World) -> contextlib.AbstractContextManager[None]:
    """Renew the lease of the node, which has no kubelet; else nothing would be scheduled there after 40 s."""
    path: Mapping[str, str] = {"group": "coordination.k8s.io", "version": "v1", "namespace": "kube-node-lease"}

    def renew() -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = {"spec": {"renewTime": now}}
        here.objects.patch_namespaced_custom_object(**path, plural="leases", name=here.node.name, body=body)

    return repeated(renew, RENEW_S)
