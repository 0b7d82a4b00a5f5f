"""Claims that ask for slots at the same time get different ones, also if the agent refuses one and then goes away."""

import asyncio
import time
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


def claim(uid: str) -> AllocatedClaim:
    device = device_name(_GPU)
    share = Share(request="c0", pool="node", device=device, share_id=None, role="be", time_milli=0, memory_bytes=0)
    return AllocatedClaim(uid, "team", uid, (Pod(name=uid, uid=uid),), (share,))


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_slot_that_another_claim_got_during_a_wait_for_the_agent_is_not_given_again(
    tmp_path: Path, is_recorded: bool
) -> None:
    records, current = Records(tmp_path / "claims"), CurrentSnapshot()
    records.load()
    current.take(Snapshot({_GPU: AdvertisedGPU(uuid=_GPU, slots=_SLOTS)}, {}))

    async def give(giving: Giving, uid: str) -> Slot:
        async with giving.giving(claim(uid), time.monotonic() + DEADLINE) as given:
            records.save(Record(boot="b", uid=uid, namespace="team", name=uid, pods=(), shares=tuple(given)))
            return given[0].slot

    async def both() -> list[Slot]:
        link, allowed = Link(), cast("Any", SimpleNamespace(why=""))
        holding = cast("Any", SimpleNamespace(why=lambda _: ""))
        giving = Giving(tmp_path, cast("Any", link), current, allowed, records, holding, 1.0, "b", lambda: None)
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
    records, current, untold = Records(tmp_path / "claims"), CurrentSnapshot(), list[str]()
    records.load()
    current.take(Snapshot({_GPU: AdvertisedGPU(uuid=_GPU, slots=_SLOTS[1:])}, {}))
    link, allowed, holding = Link(), SimpleNamespace(why=""), SimpleNamespace(why=lambda _: "")
    link.may_end.set()
    giving = Giving(
        tmp_path, cast("Any", link), current, cast("Any", allowed), records, cast("Any", holding), 1.0, "b",
        lambda: untold.append("second"),
    )  # fmt: skip

    async def give() -> None:
        async with giving.giving(claim("second"), time.monotonic() + DEADLINE) as given:
            records.save(Record(boot="b", uid="second", namespace="n", name="s", pods=(), shares=tuple(given)))
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(give())
    assert untold == ["second"]
