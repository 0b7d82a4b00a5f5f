"""Claims that ask for slots at the same time get different ones, also if the agent refuses one and then goes away."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orion.dra_driver.claims import AllocatedClaim, Pod, Share
from orion.dra_driver.giving import Giving
from orion.dra_driver.names import device_name
from orion.dra_driver.records import Record, Records
from orion.errors import Conflict
from orion.injection.current import CurrentSnapshot
from orion.injection.slots import Slot, parse
from orion.injection.snapshot import AdvertisedGPU, Snapshot
from tests.waiting import DEADLINE

_GPU = "GPU-11111111-2222-3333-4444-555555555555"
_SLOTS = tuple(parse(f"{_GPU}::be-{number}") for number in range(2))


class Link:
    """To an agent that refuses the first slot at first and gives it later, and answers nothing about the second."""

    connected = True

    def __init__(self) -> None:
        self.asked: dict[str, asyncio.Event] = {"first": asyncio.Event(), "second": asyncio.Event()}
        self.may_refuse, self.may_end = asyncio.Event(), asyncio.Event()

    async def hold(self, slot: Slot, claim: Any, *_: object) -> Any:
        is_first_call = not self.asked[claim.uid].is_set()
        self.asked[claim.uid].set()
        if claim.uid == "second":
            await self.may_end.wait()
        elif is_first_call:
            await self.may_refuse.wait()
            raise Conflict(f"{slot} is held by another claim")
        return SimpleNamespace(name=slot.name) if slot == _SLOTS[0] else None


class Scripted:
    """A link to an agent that answers each claim as a function says that gets slot and share; None: no answer."""

    connected = True

    def __init__(self, **answers: Callable[[Slot, str], Awaitable[str | None]]) -> None:
        self._answers = answers

    async def hold(self, slot: Slot, claim: Any, *_: object) -> Any:
        name = await self._answers[claim.uid](slot, claim.share)
        return None if name is None else SimpleNamespace(name=name)


def claim(uid: str, *shares: str) -> AllocatedClaim:
    device = device_name(_GPU)
    allocated = (
        Share(request="c0", pool="node", device=device, share_id=share, role="be", time_milli=0, memory_bytes=0)
        for share in shares or (None,)
    )
    return AllocatedClaim(uid, "team", uid, (Pod(name=uid, uid=uid),), tuple(allocated))


def giving_by(
    link: object,
    folder: Path,
    gpu: AdvertisedGPU,
    records: Records | None = None,
    untold: Callable[[], None] = lambda: None,
) -> tuple[Giving, CurrentSnapshot]:
    """Return a `Giving` of a node with one GPU, and its current snapshot."""
    if records is None:
        records = Records(folder / "claims")
        records.load()
    current, unused = CurrentSnapshot(), cast("Any", SimpleNamespace(why=""))
    current.take(Snapshot({_GPU: gpu}, {}))
    holding = cast("Any", SimpleNamespace(why=lambda _: ""))
    return Giving(folder, cast("Any", link), current, unused, records, holding, 1.0, "b", untold), current


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_slot_that_another_claim_got_during_a_wait_for_the_agent_is_not_given_again(
    tmp_path: Path, is_recorded: bool
) -> None:
    records = Records(tmp_path / "claims")
    records.load()

    async def give(giving: Giving, uid: str) -> Slot:
        async with giving.giving(claim(uid), time.monotonic() + DEADLINE) as given:
            records.save(Record(boot="b", uid=uid, namespace="team", name=uid, pods=(), shares=tuple(given)))
            return given[0].slot

    async def both() -> list[Slot]:
        link = Link()
        giving, _ = giving_by(link, tmp_path, AdvertisedGPU(uuid=_GPU, slots=_SLOTS), records)
        first = asyncio.create_task(give(giving, "first"))
        await link.asked["first"].wait()
        second = asyncio.create_task(give(giving, "second"))
        await link.asked["second"].wait()
        if is_recorded:
            link.may_end.set()
            await second
        link.may_refuse.set()
        await first
        link.may_end.set()
        return [await first, await second]

    assert asyncio.run(both()) == [*_SLOTS]


def test_an_agent_that_is_slow_learns_a_slot_whose_call_was_cancelled_after_it_was_recorded(tmp_path: Path) -> None:
    records, link, untold = Records(tmp_path / "claims"), Link(), list[str]()
    records.load()
    link.may_end.set()
    gpu = AdvertisedGPU(uuid=_GPU, slots=_SLOTS[1:])
    giving, _ = giving_by(link, tmp_path, gpu, records, lambda: untold.append("second"))

    async def give() -> None:
        async with giving.giving(claim("second"), time.monotonic() + DEADLINE) as given:
            records.save(Record(boot="b", uid="second", namespace="n", name="s", pods=(), shares=tuple(given)))
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(give())
    assert untold == ["second"]


async def test_a_slot_that_was_asked_for_is_free_when_the_claim_has_another(tmp_path: Path) -> None:
    async def answer(slot: Slot, share: str) -> str:
        return "be-0" if share == "known" else slot.name

    gpu = AdvertisedGPU(uuid=_GPU, slots=_SLOTS, held=frozenset(_SLOTS[:1]))
    giving, _ = giving_by(Scripted(one=answer), tmp_path, gpu)
    async with giving.giving(claim("one", "known", "new"), time.monotonic() + 1) as given:
        assert [each.slot for each in given] == [*_SLOTS]


async def test_a_slot_that_a_claim_is_given_stays_its_own_when_it_is_refused_to_another(tmp_path: Path) -> None:
    """No agent answers for the third claim, so only what is known here keeps it from the first claim's slot."""
    asked, may_refuse, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def known(*_: object) -> str:
        return "be-0"

    async def refuse(slot: Slot, _: str) -> None:
        if asked.is_set():
            refused.set()
        asked.set()
        await may_refuse.wait()
        raise Conflict(f"{slot} is held by another claim")

    async def away(*_: object) -> None:
        return None

    gpu = AdvertisedGPU(uuid=_GPU, slots=(*_SLOTS, parse(f"{_GPU}::be-2")))
    giving, _ = giving_by(Scripted(first=known, second=refuse, third=away), tmp_path, gpu)
    deadline = time.monotonic() + DEADLINE

    async def give(uid: str) -> Slot:
        async with giving.giving(claim(uid), deadline) as given:
            return given[0].slot

    second = asyncio.create_task(give("second"))
    await asyncio.wait_for(asked.wait(), DEADLINE)
    async with giving.giving(claim("first"), deadline) as first:
        assert first[0].slot == _SLOTS[0]
        may_refuse.set()
        await asyncio.wait_for(refused.wait(), DEADLINE)
        third = await give("third")
    second.cancel()
    assert third != _SLOTS[0]
