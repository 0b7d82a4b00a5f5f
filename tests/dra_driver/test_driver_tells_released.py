"""An agent that is slow again while it learns what was given back learns it later."""

import asyncio
from pathlib import Path
from typing import Any, cast

from orion.dra_driver.claim_locks import ClaimLocks
from orion.dra_driver.reconciling import Reconciling
from orion.dra_driver.records import Record, Records


class Link:
    """To an agent that answers at its second chance."""

    def __init__(self) -> None:
        self.asked = 0

    async def release(self, claim_uid: str, seconds: float) -> bool:
        self.asked += 1
        return self.asked > 1


def test_an_agent_that_does_not_answer_about_a_claim_does_not_know_all(tmp_path: Path) -> None:
    records, link, unused = Records(tmp_path / "claims"), cast("Any", Link()), cast("Any", None)
    records.load()
    records.save(Record(boot="b", uid="old", namespace="n", name="old", pods=(), shares=(), released=True))
    reconciling = Reconciling(unused, link, unused, records, unused, ClaimLocks())
    assert not asyncio.run(reconciling.tell_agent())
    assert records.has_file("old")
    assert asyncio.run(reconciling.tell_agent())
    assert not records.has_file("old")
