"""Claims that ask for slots at the same time get different ones, also if the agent refuses one and then goes away."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
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
_SLOTS_OF_THREE = (*_SLOTS, parse(f"{_GPU}::be-2"))


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
    async with giving.giving(claim("one", "known", "new"), time.monotonic() + 10) as given:
        assert [each.slot for each in given] == [*_SLOTS]


async def test_a_slot_that_a_claim_is_given_stays_its_own_when_it_is_refused_to_another(tmp_path: Path) -> None:
    """No agent answers for the third claim, so only what is known here keeps it from the first claim's slot."""
    asked, may_refuse, refused, never = (asyncio.Event() for _ in range(4))

    async def known(*_: object) -> str:
        return "be-0"

    async def refuse(slot: Slot, _: str) -> None:
        if asked.is_set():
            refused.set()
            await never.wait()
        asked.set()
        await may_refuse.wait()
        raise Conflict(f"{slot} is held by another claim")

    async def away(*_: object) -> None:
        return None

    gpu = AdvertisedGPU(uuid=_GPU, slots=_SLOTS_OF_THREE)
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


async def test_a_slot_that_the_agent_refused_is_not_given_without_an_agent_until_the_agent_says_more(
    tmp_path: Path,
) -> None:
    asked: list[Slot] = []
    asked_again = asyncio.Event()

    async def refuse_and_end(slot: Slot, _: str) -> None:
        asked.append(slot)
        if len(asked) == 1:
            raise Conflict(f"{slot} is held by processes of its previous holder")
        if len(asked) == 3:
            asked_again.set()

    gpu = AdvertisedGPU(uuid=_GPU, slots=_SLOTS[:1])
    giving, current = giving_by(Scripted(one=refuse_and_end), tmp_path, gpu)

    async def give() -> Slot:
        async with giving.giving(claim("one"), time.monotonic() + DEADLINE) as given:
            return given[0].slot

    waiting = asyncio.create_task(give())
    again = asyncio.create_task(asked_again.wait())
    await asyncio.wait({waiting, again}, timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED)
    assert not waiting.done()
    current.take(Snapshot({_GPU: replace(gpu, hp_busy_ratio=0.5)}, {}))
    assert await waiting == _SLOTS[0]


async def test_without_an_agent_a_slot_that_it_refused_keeps_nobody_from_another(tmp_path: Path) -> None:
    async def refuse_the_first(slot: Slot, _: str) -> str:
        if slot == _SLOTS[0]:
            raise Conflict(f"{slot} is held by processes of its previous holder")
        return slot.name

    async def away(*_: object) -> None:
        return None

    gpu = AdvertisedGPU(uuid=_GPU, slots=_SLOTS_OF_THREE)
    giving, _ = giving_by(Scripted(one=refuse_the_first, two=away), tmp_path, gpu)
    deadline = time.monotonic() + 10
    async with giving.giving(claim("one"), deadline) as first, giving.giving(claim("two"), deadline) as second:
        assert [first[0].slot, second[0].slot] == [*_SLOTS_OF_THREE[1:]]
