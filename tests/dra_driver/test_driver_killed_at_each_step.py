"""The driver is killed before or after each step of prepare and unprepare: the next one ends what it began.

The steps are in the description of `preparing.py`. A step that raises `Killed` stands for the kill.
"""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orion.dra_driver.cdi_files import CdiFiles
from orion.dra_driver.preparing import Preparer
from orion.dra_driver.records import Records
from orion.dra_driver.serving import Driver
from orion.dra_driver.settings import DriverSettings
from orion.injection.agent_link import AgentLink
from tests.dra_driver.conftest import DriverNode, claim, result

PREPARE = [(AgentLink, "hold"), (Records, "save"), (Preparer, "_make_files"), (CdiFiles, "write")]
UNPREPARE = [(CdiFiles, "remove"), (AgentLink, "release"), (Records, "remove")]


class Killed(BaseException):
    """The driver ends here."""


def kill_at(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, after: bool) -> None:
    """Make a step raise, before or after it has done its work."""
    step: Any = getattr(kind, name)

    def plain(*arguments: Any) -> None:
        if after:
            step(*arguments)
        raise Killed

    async def waiting(*arguments: Any) -> None:
        if after:
            await step(*arguments)
        raise Killed

    monkeypatch.setattr(kind, name, waiting if asyncio.iscoroutinefunction(step) else plain)


@contextlib.asynccontextmanager
async def started(node: DriverNode) -> AsyncIterator[Preparer]:
    """What prepares claims in a driver that has just started."""
    async with started_driver(node) as driver:
        yield driver._preparer


@contextlib.asynccontextmanager
async def started_driver(node: DriverNode) -> AsyncIterator[Driver]:
    """The parts of a driver that has just started, without sockets."""
    driver = Driver(
        DriverSettings(
            root=node.root,
            kubelet_folder=node.kubelet.folder,
            cdi_folder=node.cdi,
            hook_folder=node.folder / "hook",
            kubeconfig=node.server.kubeconfig,
            node="node-1",
        )
    )
    driver._records.load()
    driver._preparer.restore()
    listening = asyncio.create_task(driver._link.listen())
    try:
        await driver.current.first()
        await driver._reconciling.tell_agent()
        yield driver
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await driver._link.close()
        await driver._server.close()


async def prepare(preparer: Preparer, uid: str) -> None:
    await preparer.prepare("n", f"claim-{uid}", uid, time.monotonic() + 20)


def until_right(node: DriverNode, *uids: str) -> None:
    """All sources name these claims, each with a slot of its own."""
    assert sorted(key.partition(" ")[0] for key in node.slots()) == sorted(uids)
    assert len(set(node.slots().values())) == len(uids)
    assert sorted(path.stem for path in node.records.glob("*.json")) == sorted(uids)
    assert sorted(node.cdi_files()) == [f"orion.gpu/claim={uid}_c0" for uid in sorted(uids)]
    assert not list(Path(node.cdi).glob(".*"))


@pytest.fixture
def with_agent(bare_node: DriverNode, monkeypatch: pytest.MonkeyPatch) -> DriverNode:
    monkeypatch.setenv("ORION_SIM_STATE", str(bare_node.folder / "sim"))
    bare_node.begin_agent()
    bare_node.server.put(*(claim(uid, result(bare_node.gpus()[0])) for uid in ("one", "two", "three")))
    return bare_node


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "name"), PREPARE, ids=[name for _, name in PREPARE])
async def test_prepare_is_repeated(
    with_agent: DriverNode, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, after: bool
) -> None:
    async with started(with_agent) as preparer:
        await prepare(preparer, "two")
        with monkeypatch.context() as patched:
            kill_at(patched, kind, name, after)
            with pytest.raises(Killed):
                await prepare(preparer, "one")
    async with started(with_agent) as preparer:
        await prepare(preparer, "three")
        await prepare(preparer, "one")
        until_right(with_agent, "one", "two", "three")
        for uid in ("one", "two", "three"):
            await preparer.unprepare("n", f"claim-{uid}", uid)
        until_right(with_agent)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "name"), PREPARE, ids=[name for _, name in PREPARE])
async def test_a_pod_that_is_deleted_instead_leaves_nothing(
    with_agent: DriverNode, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, after: bool
) -> None:
    async with started(with_agent) as preparer:
        with monkeypatch.context() as patched:
            kill_at(patched, kind, name, after)
            with pytest.raises(Killed):
                await prepare(preparer, "one")
    async with started(with_agent) as preparer:
        await preparer.unprepare("n", "claim-one", "one")
        until_right(with_agent)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "name"), UNPREPARE, ids=[name for _, name in UNPREPARE])
async def test_unprepare_is_repeated(
    with_agent: DriverNode, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, after: bool
) -> None:
    async with started(with_agent) as preparer:
        await prepare(preparer, "one")
        await prepare(preparer, "two")
        with monkeypatch.context() as patched:
            kill_at(patched, kind, name, after)
            with pytest.raises(Killed):
                await preparer.unprepare("n", "claim-one", "one")
    async with started(with_agent) as preparer:
        await preparer.unprepare("n", "claim-one", "one")
        until_right(with_agent, "two")


async def test_a_claim_that_is_gone_for_two_looks_is_unprepared(with_agent: DriverNode) -> None:
    async with started_driver(with_agent) as driver:
        await prepare(driver._preparer, "one")
        await prepare(driver._preparer, "two")
        with_agent.server.claims.pop("claim-one")
        with_agent.server.put(claim("another", result(with_agent.gpus()[0])))
        with_agent.server.claims["claim-two"] = with_agent.server.claims.pop("claim-another")  # of the same name
        with_agent.server.status = 503
        await driver._reconciling.remove_gone()
        with_agent.server.status = 0
        await driver._reconciling.remove_gone()
        until_right(with_agent, "one", "two")
        await driver._reconciling.remove_gone()
        until_right(with_agent)


async def test_a_slot_that_no_record_names_is_taken_back_once_its_claim_is_gone_or_elsewhere(
    with_agent: DriverNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(with_agent) as preparer:
        await prepare(preparer, "one")
        with monkeypatch.context() as patched:
            kill_at(patched, Records, "save", after=False)
            for uid in ("two", "three"):
                with pytest.raises(Killed):
                    await prepare(preparer, uid)
    server, slots = with_agent.server, with_agent.slots()
    assert len(slots) == 3
    async with started_driver(with_agent) as driver:
        await driver._reconciling.release_unrecorded()
        assert with_agent.slots() == slots, "their pods may still come, or run"
        two, three = server.claims.pop("claim-two"), server.claims["claim-three"]
        three["status"]["allocation"]["devices"]["results"][0]["pool"] = "node-2"
        server.status = 503
        await driver._reconciling.release_unrecorded()
        assert with_agent.slots() == slots
        server.status = 0
        await driver._reconciling.release_unrecorded()
        until_right(with_agent, "one")
        server.put(two)
        await prepare(driver._preparer, "two")
        until_right(with_agent, "one", "two")


async def test_a_claim_whose_record_somebody_removed_keeps_its_slot(with_agent: DriverNode) -> None:
    async with started(with_agent) as preparer:
        await prepare(preparer, "one")
    shutil.rmtree(with_agent.records)
    slots = with_agent.slots()
    async with started_driver(with_agent) as driver:
        await driver._reconciling.release_unrecorded()
        assert with_agent.slots() == slots
