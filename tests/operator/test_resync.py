"""Which pods the operator watches, and how it finds those that it does not watch."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import pytest
from kopf._cogs.structs.references import Resource
from yarl import URL

from orion.api_server.paths import DEVICES, NODES, PODS, SHARES
from orion.api_server.requests import ApiError, ApiServer
from orion.operator.reconciler import resync
from orion.operator.reconciler.controller import Controller
from orion.operator.reconciler.lease import Alone
from orion.operator.reconciler.listing import Lists
from orion.operator.reconciler.metrics import Metrics
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.resync import Resync
from orion.operator.reconciler.state import State
from orion.operator.reconciler.watching import Intake, WatchedPods, kopf_settings
from tests.waiting import DEADLINE

LABEL = "orion.gpu/priority"
UUID = "GPU-00000000-0000-4000-8000-000000000001"
Body = dict[str, Any]


def pod(name: str, *, labelled: bool = True, annotated: bool = True, namespace: str = "n") -> Body:
    labels = {"app": "a"} | ({LABEL: "be"} if labelled else {})
    annotations = {"orion/priority": "be"} if annotated else {}
    meta = {"namespace": namespace, "name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    limits = {"limits": {"orion.gpu/be": "1"}} if annotated else {}
    spec = {"nodeName": "node", "containers": [{"name": "main", "resources": limits}]}
    return {"metadata": meta | {"annotations": annotations}, "spec": spec, "status": {}}


SHARE: Body = {
    "metadata": {"namespace": "n", "name": "s", "uid": "uid-s", "resourceVersion": "1", "generation": 1},
    "spec": {"priority": "be", "selector": {"matchLabels": {"app": "a"}}},
}


class FakeLists:
    """An API server that answers lists; only what the resync asks for: the label's selectors, and pods by name."""

    def __init__(self, pods: Iterable[Body], shares: Iterable[Body] = ()) -> None:
        self.pods, self.shares = list(pods), list(shares)
        self.read: list[str] = []
        self.failures: list[ApiError] = []
        """ What the next lists fail with. """
        self.listed = 0
        """ How often all GPUShares were listed. """

    async def pages(self, path: str, accept: str, **query: str) -> AsyncIterator[Body]:
        if self.failures:
            raise self.failures.pop()
        self.listed += path.endswith("/gpushares")
        items = self.pods if path == PODS else self.shares if path.endswith("/gpushares") else []
        if path == PODS and "labelSelector" in query:
            wanted = query["labelSelector"] == LABEL
            items = [each for each in items if (LABEL in each["metadata"]["labels"]) is wanted]
            if "fieldSelector" in query:
                items = [each for each in items if each["status"].get("phase") != "Succeeded"]
        yield {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": each["metadata"]} for each in items]}

    async def get(self, path: str, **query: str) -> Body:
        self.read.append(query["fieldSelector"])
        return {"items": [each for each in self.pods if f"metadata.name={each['metadata']['name']}" in self.read[-1:]]}


class Watched:
    """A resync with its parts; `report` is what kopf would do."""

    def __init__(self, lists: FakeLists) -> None:
        self.lists, self.state, self.settings, metrics = lists, State(), kopf_settings(), Metrics()
        api = cast("ApiServer", lists)
        self.intake = Intake(self.state, Controller(self.state, api, Alone(metrics), metrics, "test"))
        self.taken = Lists(self.intake)
        self.resync = Resync(api, self.intake, WatchedPods(self.settings), self.taken.complete, ())

    @property
    def selector(self) -> list[str]:
        return list(self.settings.watching.label_selectors.collect(Resource("", "v1", "pods")))

    async def start(self) -> None:
        """Start as the reconciler does: kopf watches once it is decided what."""
        known = asyncio.create_task(self.resync.until_all_is_known())
        await self.resync.chosen.wait()
        await self.list()
        await asyncio.wait_for(known, DEADLINE)

    async def list(self) -> None:
        """List all objects, as kopf does."""
        for path in (PODS, SHARES, NODES, DEVICES):
            items = self.lists.pods if path == PODS else self.lists.shares if path == SHARES else []
            if path == PODS and self.selector:
                items = [each for each in items if LABEL in each["metadata"]["labels"]]
            page = {"metadata": {"resourceVersion": "9"}, "items": items}
            await self.taken.take(URL(f"https://cluster{path}?limit=200"), page)
            assert page["items"] == [], "kopf makes a task for each object that it gets"

    async def until_known(self, name: str) -> None:
        """Run the resync until a pod is known with its node."""
        comparing = asyncio.create_task(self.resync.next_comparison(600))
        async with asyncio.timeout(DEADLINE):
            while Named("n", name) not in [each.at for each in self.state.pods_of_node("node")]:
                await asyncio.sleep(0.01)
        comparing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await comparing


async def test_kopf_watches_pods_by_the_label_of_the_webhook() -> None:
    found = Watched(FakeLists([pod("ours"), pod("theirs", labelled=False, annotated=False)]))
    await found.start()
    assert found.selector == [LABEL]
    assert [each.at.name for each in found.state.pods_of_node("node")] == ["ours"]


async def test_the_resync_lists_shares_once_at_the_start() -> None:
    found = Watched(FakeLists([pod("ours")], [SHARE]))
    await found.start()
    assert found.lists.listed == 1


async def test_all_pods_are_watched_while_there_are_pods_older_than_the_label() -> None:
    lists = FakeLists([pod("ours"), pod("older", labelled=False)])
    found = Watched(lists)
    await found.start()
    assert found.selector == []
    assert {each.at.name for each in found.state.pods_of_node("node")} == {"ours", "older"}
    del lists.pods[1]
    await found.resync.next_comparison(0)
    assert found.selector == [LABEL]
    assert found.state.pod(Named("n", "older")) is None


async def test_a_pod_without_the_label_that_has_ended_is_dropped_once_it_is_deleted() -> None:
    older = pod("older", labelled=False)
    found = Watched(FakeLists([older]))
    await found.start()
    older["metadata"]["resourceVersion"], older["status"] = "2", {"phase": "Succeeded"}
    found.intake.pod({"type": "MODIFIED", "object": older})
    await found.resync.next_comparison(0)
    assert found.selector == [LABEL]
    assert found.state.pod(Named("n", "older")) is not None, "the kubelet may still say that it holds slots"
    found.lists.pods.clear()
    await found.resync.next_comparison(0)
    assert found.state.pod(Named("n", "older")) is None


async def test_a_pod_of_ours_that_lacks_the_label_is_read_by_the_next_comparison() -> None:
    lists = FakeLists([])
    found = Watched(lists)
    await found.start()
    lists.pods.append(pod("late", labelled=False))
    await found.resync.next_comparison(0)
    assert [each.at.name for each in found.state.pods_of_node("node")] == ["late"]
    assert found.selector == [LABEL]


async def test_a_pod_that_a_gpu_names_is_read_at_once() -> None:
    lists = FakeLists([])
    found = Watched(lists)
    await found.start()
    lists.pods.append(pod("late", labelled=False, annotated=True))
    row = {"name": "be-0", "priority": "be", "pod": {"namespace": "n", "name": "late"}, "clients": 0}
    status = {"node": "node", "uuid": UUID, "model": "NVIDIA H200", "mode": "timeslice", "heldSlots": [row]}
    meta = {"name": "gpu-0", "uid": "uid-gpu", "resourceVersion": "2"}
    found.intake.device({"type": "ADDED", "object": {"metadata": meta, "spec": {}, "status": status}})
    await found.until_known("late")
    assert lists.read == ["metadata.name=late"]


async def test_a_pod_of_which_an_agent_knows_only_the_uid_is_read_at_once() -> None:
    """A process without the hook can be in a pod that does not concern Orion; the agent learns its name this way."""
    lists = FakeLists([])
    found = Watched(lists)
    await found.start()
    lists.pods += [pod("tool", labelled=False, annotated=False), pod("other", labelled=False, annotated=False)]
    row = {"processId": 7, "podUid": "uid-tool"}
    status = {"node": "node", "uuid": UUID, "model": "NVIDIA H200", "mode": "timeslice", "unmanaged": [row]}
    meta = {"name": "gpu-0", "uid": "uid-gpu", "resourceVersion": "2"}
    found.intake.device({"type": "ADDED", "object": {"metadata": meta, "spec": {}, "status": status}})
    await found.until_known("tool")
    assert lists.read == ["metadata.name=tool"]
    assert [each.at.name for each in found.state.pods_of_node("node")] == ["tool"]


async def test_pods_that_are_not_ours_are_known_where_shares_may_select_them() -> None:
    others = [pod("selected", labelled=False, annotated=False)]
    others.append(pod("elsewhere", labelled=False, annotated=False, namespace="m"))
    found = Watched(FakeLists(others, [SHARE]))
    await found.start()
    share = found.state.share(Named("n", "s"))
    assert share is not None
    assert found.state.governed(share).unannotated == ["selected"]
    assert found.state.pod(Named("m", "elsewhere")) is None


@pytest.mark.parametrize(
    "row", [{"podUid": "uid-tool"}, {"pod": {"namespace": "n", "name": "tool", "uid": "uid-tool"}}], ids=["uid", "name"]
)
async def test_a_pod_outside_orion_has_its_node_also_where_a_share_may_select_it(row: Body) -> None:
    """Of such pods the comparisons read only the metadata. Without the node, the node's agent does not get the pod."""
    tool = pod("tool", labelled=False, annotated=False)
    lists = FakeLists([tool], [SHARE])
    found = Watched(lists)
    await found.start()
    status: Body = {"node": "node", "uuid": UUID, "model": "NVIDIA H200", "mode": "timeslice"}
    status |= {"unmanaged": [{"processId": 7} | row]}
    meta = {"name": "gpu-0", "uid": "uid-gpu", "resourceVersion": "2"}
    found.intake.device({"type": "ADDED", "object": {"metadata": meta, "spec": {}, "status": status}})
    await found.until_known("tool")
    assert lists.read == ["metadata.name=tool"]
    tool["metadata"] |= {"resourceVersion": "2", "labels": {"app": "b"}}
    await found.resync.next_comparison(0)
    assert [each.labels for each in found.state.pods_of_node("node")] == [{"app": "b"}]
    tool["metadata"] |= {"resourceVersion": "3", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    await found.resync.next_comparison(0)
    assert [each.leaving for each in found.state.pods_of_node("node")] == [True]


async def test_a_namespace_without_pods_and_shares_takes_no_memory() -> None:
    """Namespaces of CI jobs come and go, and their pods do not use Orion."""
    found = Watched(FakeLists([]))
    await found.start()
    job = pod("job", labelled=False, annotated=False, namespace="ci") | {"status": {"phase": "Succeeded"}}
    for event in ("ADDED", "DELETED"):
        found.intake.pod({"type": event, "object": job})
    found.state.drop_share(Named("other", "s"))
    assert not found.state._namespaces


async def test_a_watch_that_lists_again_leads_to_a_comparison() -> None:
    lists = FakeLists([pod("stays"), pod("goes")])
    found = Watched(lists)
    await found.start()
    del lists.pods[1]
    await found.list()
    await asyncio.wait_for(found.resync.next_comparison(600), DEADLINE)
    assert [each.at.name for each in found.state.pods_of_node("node")] == ["stays"]


async def test_a_comparison_that_fails_is_repeated_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_AGAIN_S", 0.0)
    lists = FakeLists([pod("stays"), pod("goes")])
    found = Watched(lists)
    await found.start()
    del lists.pods[1]
    lists.failures.append(ApiError(0, "the API server is away"))
    with pytest.raises(ApiError):
        await found.resync.next_comparison(0)
    await asyncio.wait_for(found.resync.next_comparison(600), DEADLINE)
    assert [each.at.name for each in found.state.pods_of_node("node")] == ["stays"]
