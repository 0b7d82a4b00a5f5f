"""Pods that come later to a claim: the driver reads the claim again, records them and tells the agent, once."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orion.dra_driver import serving
from orion.dra_driver.claim_locks import ClaimLocks
from orion.dra_driver.claims import Pod
from orion.dra_driver.reconciling import Reconciling
from orion.dra_driver.records import GivenShare, Record, Records
from orion.errors import Conflict, Unavailable
from orion.injection.current import CurrentSnapshot
from tests.dra_driver.stand_in_api_server import claim, result
from tests.waiting import eventually_async

GPU = "GPU-0"


class Reader:
    """An API server with claims, which may not answer."""

    def __init__(self) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.reads = 0
        self.answers = True

    async def read(self, namespace: str, name: str, deadline: float) -> dict[str, Any]:
        self.reads += 1
        if not self.answers:
            raise Unavailable("it does not answer")
        return self.claims[name]


class Giving:
    """An agent that learns records."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[str]]] = []
        self.refuses = False

    async def tell_again(self, record: Record) -> None:
        if self.refuses:
            raise Conflict("it refuses")
        self.heard.append((record.uid, [pod.name for pod in record.pods]))


class Node:
    """A driver's part that names pods, with the records of its claims."""

    def __init__(self, folder: Path) -> None:
        self.reader, self.giving, self.records = Reader(), Giving(), Records(folder)
        self.records.load()
        reader, giving, unused = cast("Any", self.reader), cast("Any", self.giving), cast("Any", None)
        self.reconciling = Reconciling(reader, unused, giving, self.records, unused, ClaimLocks())

    def prepared(self, uid: str, *pods: str, released: bool = False) -> None:
        """A claim that was prepared for its first pod, and that more pods use now."""
        share = GivenShare(
            request="c0", pool="node-1", device="gpu-0", share_id=None, role="be", time_milli=0, memory_bytes=0,
            slot_id=f"{GPU}::be-0",
        )  # fmt: skip
        first = (Pod(name=pods[0], uid=f"uid-{pods[0]}"),)
        self.records.save(
            Record(
                boot="b", uid=uid, namespace="n", name=f"claim-{uid}", pods=first, shares=(share,), released=released
            )
        )
        self.reader.claims[f"claim-{uid}"] = claim(uid, result(GPU), pods=pods)

    def users(self, **users: tuple[str, ...]) -> None:
        asyncio.run(self.reconciling.name_pods(users))

    def recorded(self, uid: str) -> list[str]:
        self.records.refresh()
        record = self.records.of(uid)
        assert record is not None
        return [pod.name for pod in record.pods]


@pytest.fixture
def driver(tmp_path: Path) -> Node:
    return Node(tmp_path / "claims")


def test_a_later_pod_is_recorded_and_the_agent_learns_it(driver: Node) -> None:
    driver.prepared("one", "first", "later")
    driver.users(one=("first", "later"))
    assert driver.recorded("one") == ["first", "later"]
    assert driver.giving.heard == [("one", ["first", "later"])]


def test_the_claim_is_read_once_for_the_same_pods(driver: Node) -> None:
    driver.prepared("one", "first", "later")
    driver.users(one=("first", "later"))
    driver.users(one=("first", "later"))
    assert (driver.reader.reads, len(driver.giving.heard)) == (1, 1)
    driver.reader.claims["claim-one"] = claim("one", result(GPU), pods=("first", "later", "third"))
    driver.users(one=("first", "later", "third"))
    assert driver.recorded("one") == ["first", "later", "third"]


def test_the_claim_is_read_again_for_pods_that_were_away_meanwhile(driver: Node) -> None:
    driver.prepared("one", "first", "later")
    driver.users(one=("first", "later"))
    driver.users()
    driver.users(one=("first", "later"))
    assert driver.reader.reads == 2


def test_an_api_server_that_does_not_answer_is_asked_again(driver: Node) -> None:
    driver.prepared("one", "first", "later")
    driver.reader.answers = False
    driver.users(one=("first", "later"))
    assert driver.recorded("one") == ["first"]
    assert driver.giving.heard == []
    driver.reader.answers = True
    driver.users(one=("first", "later"))
    assert driver.giving.heard == [("one", ["first", "later"])]


def test_an_agent_that_refuses_learns_it_later(driver: Node) -> None:
    driver.prepared("one", "first", "later")
    driver.giving.refuses = True
    driver.users(one=("first", "later"))
    driver.giving.refuses = False
    driver.users(one=("first", "later"))
    assert driver.giving.heard == [("one", ["first", "later"])]


def test_a_claim_that_cannot_be_read_hinders_no_other(driver: Node) -> None:
    driver.prepared("one", "first", "later")
    driver.prepared("two", "first", "later")
    driver.reader.claims["claim-one"] = claim("another-uid", result(GPU))
    driver.users(one=("first", "later"), two=("first", "later"))
    assert driver.giving.heard == [("two", ["first", "later"])]


def test_claims_without_a_record_and_claims_that_were_given_back_are_left(driver: Node) -> None:
    driver.prepared("one", "first", "later", released=True)
    driver.users(one=("first", "later"), unknown=("a-pod",))
    assert driver.recorded("one") == ["first"]
    assert driver.giving.heard == []


class Preparer:
    def __init__(self, driver: Node) -> None:
        self._driver = driver
        self.seen: list[tuple[int, list[str]]] = []

    async def renew(self) -> None:
        """Note how often the API server was asked before, and which pods are recorded."""
        self.seen.append((self._driver.reader.reads, self._driver.recorded("one")))


async def test_the_driver_tries_again_by_itself(driver: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It also looks which restarts are to be held before it waits for the API server, and after it knows the pods."""
    monkeypatch.setattr(serving, "_AGAIN_SECONDS", 0.01)
    driver.prepared("one", "first", "later")
    driver.reader.answers = False
    current, preparer = CurrentSnapshot(), Preparer(driver)
    parts = SimpleNamespace(current=current, _reconciling=driver.reconciling, _preparer=preparer)
    task = asyncio.create_task(serving.Driver._renew_for_ever(cast("Any", parts)))
    await asyncio.sleep(0)
    current.take(cast("Any", SimpleNamespace(other_users={"one": ("first", "later")})))
    await eventually_async(lambda: driver.reader.reads >= 3, "the API server is asked again")
    driver.reader.answers = True
    await eventually_async(lambda: driver.giving.heard, "the agent learns the pods")
    await eventually_async(lambda: preparer.seen[-1][1] == ["first", "later"], "restarts may be held for these pods")
    assert preparer.seen[0][0] == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
