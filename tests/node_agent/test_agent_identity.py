"""Who holds a slot, for any answers of the kubelet and the operator."""

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.errors import Unavailable
from orion.node_agent.cluster.holders.grants import Grants
from orion.node_agent.cluster.holders.identity import Contested, Identity
from orion.node_agent.cluster.holders.pods import Pod
from orion.node_agent.cluster.holders.resolving import ResolvedHolder, join
from orion.node_agent.cluster.pod_resources import ListedHolder, listed_holders
from orion.node_agent.kubelet import api_pb2
from orion.node_agent.pages import policy_words
from orion.node_agent.slots.holders import Holder
from tests.node_agent.one_gpu import GPU, agent_of_one_gpu

DEFAULT = policy_words.DEFAULT
SLOTS = [(GPU, "be-0"), (GPU, "be-1")]
NAMES = ["a", "b", "c"]


def pod(name: str, uid: str = "", ended: bool = False, created: str = "1") -> Pod:
    return Pod("n", name, uid or f"uid-{name}", created, False, ended, f"grant of {name}")


def hold(name: str, uid: str = "") -> ResolvedHolder:
    return ResolvedHolder(Holder("n", name, "main", uid or f"uid-{name}"), "1", f"grant of {name}")


pods_seen = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(st.booleans(), st.sampled_from(["1", "2"])), max_size=3
).map(lambda found: {("n", name): pod(name, ended=ended, created=at) for name, (ended, at) in found.items()})
claimed = st.lists(
    st.builds(lambda slot, name: ListedHolder(slot, "n", name, "main"), st.sampled_from(SLOTS), st.sampled_from(NAMES)),
    max_size=4,
)
holds_before = st.dictionaries(st.sampled_from(SLOTS), st.sampled_from(NAMES).map(hold))


@given(claimed, pods_seen, st.booleans(), holds_before)
@settings(deadline=None)
def test_who_holds_a_slot(
    claimed: list[ListedHolder],
    pods: Mapping[tuple[str, str], Pod],
    synced: bool,
    before: dict[tuple[str, str], ResolvedHolder],
) -> None:
    holds = join(claimed, pods, synced, before)
    by_slot = {slot: {claim.pod for claim in claimed if claim.slot == slot} for slot in SLOTS}
    for slot, names in by_slot.items():
        living = {name for name in names if ("n", name) not in pods or not pods["n", name].ended}
        holder = holds.get(slot)
        if holder is not None:
            seen = pods.get(holder.key)
            assert seen is None or not seen.ended  # an ended pod holds no slot
            assert seen is None or holder.holder.uid == seen.uid
            assert holder.holder.pod in names or (slot in before and before[slot].key == holder.key)
        if living:  # a living pod that the kubelet lists holds the slot
            assert holder is not None
            assert holder.holder.pod in living
        elif slot in before and not names:
            name = before[slot].holder.pod
            gone = pods["n", name].ended if ("n", name) in pods else synced
            gone = gone or any(claim.pod == name for claim in claimed)  # the kubelet lists another slot for it
            assert (holder is None) == gone  # the slot becomes free only when its pod has gone
    assert join(claimed, pods, synced, holds) == holds  # the kubelet's same answer again changes nothing


def test_the_known_state_of_a_pod_stays_valid_without_the_operator() -> None:
    claim = ListedHolder(SLOTS[0], "n", "a", "main")
    assert join([claim], {}, True, {SLOTS[0]: hold("a")}) == {SLOTS[0]: hold("a")}
    assert join([claim], {}, True, {SLOTS[0]: hold("b")}) == {SLOTS[0]: ResolvedHolder(Holder("n", "a", "main"))}
    assert join([claim], {}, False, {}, {SLOTS[0]: hold("a")}) == {SLOTS[0]: hold("a")}
    assert join([], {}, False, {}, {SLOTS[0]: hold("a")}) == {}
    # Another pod with the same name.
    assert join([], {("n", "a"): pod("a", "again")}, True, {SLOTS[0]: hold("a")}) == {}
    (found,) = join([claim], {("n", "a"): pod("a", "again")}, True, {SLOTS[0]: hold("a")}).values()
    assert found.holder.uid == "again"


def test_a_new_pod_of_the_same_name_does_not_hold_the_old_pods_slot() -> None:
    """This happens if the pod of a StatefulSet is created again while the watch is interrupted."""
    a, b = (ListedHolder(slot, "n", "a", "main") for slot in SLOTS)
    again = {("n", "a"): pod("a", "again")}
    stale = join([a], again, True, {SLOTS[0]: hold("a", "old")})
    assert join([b], again, True, stale) == {SLOTS[1]: hold("a", "again")}
    assert join([], again, True, stale) == stale  # a kubelet that has just started lists no devices
    assert join([a, b], again, True, {}).keys() == set(SLOTS)  # a container may have several slots


def test_a_slot_listed_for_two_living_pods_is_contested_after_a_while() -> None:
    twice = [ListedHolder(SLOTS[0], "n", name, "main") for name in "ab"]
    living = {("n", name): pod(name) for name in NAMES}
    contested = Contested()
    contested.take(twice, living, 100.0)
    contested.take(twice, living, 114.0)
    assert contested.others(SLOTS[0], ("n", "b")) == ()
    contested.take(twice, living, 116.0)
    assert contested.others(SLOTS[0], ("n", "b")) == ("n/a",)
    for one_left in (living | {("n", "a"): pod("a", ended=True)}, {("n", "b"): pod("b")}):
        contested.take(twice, one_left, 117.0)
        assert contested.others(SLOTS[0], ("n", "b")) == ()
        contested.take(twice, living, 120.0)
        contested.take(twice, living, 140.0)
        assert contested.others(SLOTS[0], ("n", "a")) == ("n/b",)
    contested.take([twice[0], ListedHolder(SLOTS[0], "n", "a", "sidecar")], living, 200.0)
    contested.take([twice[0], ListedHolder(SLOTS[0], "n", "a", "sidecar")], living, 300.0)
    assert contested.others(SLOTS[0], ("n", "a")) == ()  # only one pod


async def test_a_contested_slot_is_a_problem_of_its_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orion.node_agent.cluster.holders.identity._CONTESTED_SECONDS", 0.0)
    kubelet, holds = FakeKubelet(), dict[tuple[str, str], ResolvedHolder]()
    identity = Identity(FakePods(), kubelet, {}, lambda: holds.update(identity.holders))  # type: ignore[arg-type]
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(identity.run()),
            tasks.create_task(kubelet.answer(listing("a") + listing("b"))),
        ]
        await identity.answered()
        for each in running:
            each.cancel()
    assert holds[SLOTS[0]].others == ("n/b",)
    with agent_of_one_gpu() as agent:
        grants = Grants(agent)
        assert grants.apply(holds, frozenset(), True)
        (row,) = grants.held(GPU)
        assert [each.reason for each in row.problems] == ["SlotHeldTwice", "GrantUnreadable"]
        assert "be-0 to n/a, which holds it, and also to n/b" in row.problems[0].message
        assert grants.apply({SLOTS[0]: replace(holds[SLOTS[0]], others=())}, frozenset(), True)
        (row,) = grants.held(GPU)
        assert [each.reason for each in row.problems] == ["GrantUnreadable"]


async def test_a_container_with_two_slots_of_a_gpu_reserves_no_memory() -> None:
    text = (
        '{"format":1,"priority":"be","failClosed":false,"containers":{"main":{"slots":1,"memoryRequestBytes":7},'
        '"side":{"slots":1,"memoryRequestBytes":5}}}'
    )
    main = ResolvedHolder(Holder("n", "a", "main", "u"), "", text)
    side = ResolvedHolder(Holder("n", "a", "side", "u"), "", text)
    with agent_of_one_gpu() as agent:
        grants = Grants(agent)
        grants.apply({SLOTS[0]: main, SLOTS[1]: side}, frozenset(), True)
        assert [each.memory_request_bytes for each in grants.held(GPU)] == [7, 5]  # two containers share the GPU
        grants.apply({SLOTS[0]: main, SLOTS[1]: main}, frozenset(), True)
        assert [each.memory_request_bytes for each in grants.held(GPU)] == [0, 0]  # the container never starts


def test_device_ids_of_other_plugins_are_skipped() -> None:
    ids = [f"{GPU}::be-0", f"{GPU}::be-0::1", f"{GPU}::bee-0", "be-0", f"{GPU}::hp-1/../x", "", f"GPU-{'0' * 60}::be-0"]
    devices = [api_pb2.ContainerDevices(resource_name="orion.gpu/be", device_ids=ids)]
    devices.append(api_pb2.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[f"{GPU}::be-1"]))
    container = api_pb2.ContainerResources(name="main", devices=devices)
    found = listed_holders([api_pb2.PodResources(namespace="n", name="a", containers=[container])])
    assert found == [ListedHolder((GPU, "be-0"), "n", "a", "main")]


# -- A slot in which a container starts --------------------------------------------------------------------------------


class FakePods:
    def __init__(self) -> None:
        self.known: dict[tuple[str, str], Pod] = {("n", name): pod(name) for name in NAMES}
        self.synced = True


class FakeKubelet:
    """A kubelet that answers queries when and how a test decides."""

    def __init__(self) -> None:
        self.questions: list[asyncio.Future[list[api_pb2.PodResources]]] = []
        self.asked = asyncio.Event()

    async def pods(self) -> list[api_pb2.PodResources]:
        question: asyncio.Future[list[api_pb2.PodResources]] = asyncio.get_running_loop().create_future()
        self.questions.append(question)
        self.asked.set()
        return await question

    async def question(self) -> "asyncio.Future[list[api_pb2.PodResources]]":
        while not self.questions:
            self.asked.clear()
            await self.asked.wait()
        return self.questions.pop(0)

    async def answer(self, pods: list[api_pb2.PodResources]) -> None:
        """Answer every query in the same way."""
        while True:
            (await self.question()).set_result(pods)


def listing(name: str) -> list[api_pb2.PodResources]:
    devices = [api_pb2.ContainerDevices(resource_name="orion.gpu/be", device_ids=[f"{GPU}::be-0"])]
    container = api_pb2.ContainerResources(name="main", devices=devices)
    return [api_pb2.PodResources(namespace="n", name=name, containers=[container])]


async def test_only_an_answer_to_a_later_query_names_the_pod_that_starts() -> None:
    kubelet, pods = FakeKubelet(), FakePods()
    identity = Identity(pods, kubelet, {}, lambda: None)  # type: ignore[arg-type]
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(identity.run())
        (await kubelet.question()).set_result(listing("a"))
        while SLOTS[0] not in identity.holders:
            await asyncio.sleep(0)
        assert identity.certain
        identity.ask()
        under_way = await kubelet.question()
        identity.begins(SLOTS[0])
        assert not identity.holders
        assert identity.beginning == {SLOTS[0]}
        assert not identity.certain
        known = tasks.create_task(identity.known(SLOTS[0]))
        under_way.set_result(listing("a"))  # the answer to a query that was sent before the container started
        (await kubelet.question()).set_exception(Unavailable("it is busy"))
        assert identity.holders == {}
        (await kubelet.question()).set_result(listing("b"))
        await known
        assert identity.holders[SLOTS[0]].holder.pod == "b"
        assert identity.beginning == set()
        running.cancel()


async def test_the_agent_waits_for_a_pod_that_is_not_known_yet() -> None:
    kubelet, pods = FakeKubelet(), FakePods()
    pods.known["n", "a"] = replace(pod("a", "before"), leaving=True)
    identity = Identity(pods, kubelet, {}, lambda: None)  # type: ignore[arg-type]
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(identity.run()), tasks.create_task(kubelet.answer(listing("a")))]
        identity.begins(SLOTS[0])
        known = tasks.create_task(identity.known(SLOTS[0]))
        for _ in range(20):
            identity.ask()
            await identity._next_answer()
        assert identity.holders[SLOTS[0]].holder.uid == "before"
        assert not known.done()
        pods.known["n", "a"] = pod("a", "again")
        identity.pods_changed()
        await known
        assert identity.holders[SLOTS[0]].holder.uid == "again"
        for each in running:
            each.cancel()


async def test_the_kubelet_is_queried_rarely_unless_a_caller_waits() -> None:
    kubelet, pods = FakeKubelet(), FakePods()
    identity = Identity(pods, kubelet, {}, lambda: None)  # type: ignore[arg-type]
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(identity.run()), tasks.create_task(kubelet.answer(listing("a")))]
        await identity._next_answer()
        began, first = time.monotonic(), identity._questions
        while identity._questions < first + 8:  # the pods change all the time meanwhile
            identity.pods_changed()
            await asyncio.sleep(0.001)
        assert time.monotonic() - began > 7 * 0.2
        quickest = math.inf
        for _ in range(20):
            began = time.monotonic()
            await identity._next_answer()
            quickest = min(quickest, time.monotonic() - began)
        assert quickest < 0.2
        for each in running:
            each.cancel()


# -- What a scrape reads in its thread ---------------------------------------------------------------------------------


def test_the_set_of_starting_slots_is_replaced_and_never_changed() -> None:
    identity = Identity(FakePods(), FakeKubelet(), {}, lambda: None)  # type: ignore[arg-type]
    read = iter(identity._beginning)
    identity.begins(SLOTS[0])
    assert list(read) == []


async def test_the_mapping_of_grants_is_replaced_and_never_changed() -> None:
    with agent_of_one_gpu() as agent:
        grants = Grants(agent)
        for holds in ({SLOTS[0]: hold("a")}, {slot: hold("a") for slot in SLOTS}, {SLOTS[1]: hold("b")}, {}):
            granted, policies = iter(grants._granted), iter(grants._policies)
            grants.apply(holds, frozenset(), True)
            list(granted), list(policies)  # raises RuntimeError if a mapping changes meanwhile
            assert {(GPU, row.name) for row in grants.held(GPU)} == holds.keys()
