"""A call that the kubelet gives up while the disk stalls writes nothing after the next call for the claim."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orion.dra_driver import claims
from orion.dra_driver.cdi_files import CdiFiles
from orion.dra_driver.claim_locks import ClaimLocks
from orion.dra_driver.claims import AllocatedClaim
from orion.dra_driver.preparing import Preparer
from orion.dra_driver.records import Record, Records
from orion.dra_driver.threads import run_to_end
from tests.waiting import DEADLINE


class StalledRecords(Records):
    """Records on a disk that stalls while it saves one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.saves, self.may_save = threading.Event(), threading.Event()

    def save(self, record: Record) -> None:
        self.saves.set()
        assert self.may_save.wait(DEADLINE)
        super().save(record)


class Outside:
    """The API server, the agent and the slots."""

    async def read(self, *_: object) -> dict[str, object]:
        return {}

    async def release(self, *_: object) -> bool:
        return True

    @contextlib.asynccontextmanager
    async def giving(self, *_: object) -> AsyncIterator[list[object]]:
        yield []

    def specification(self, record: Record) -> dict[str, Any]:
        return record.specification


def test_a_prepare_that_is_cancelled_while_it_writes_leaves_nothing_after_unprepare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, files, outside = StalledRecords(tmp_path / "claims"), CdiFiles(tmp_path / "cdi"), cast("Any", Outside())
    records.load()
    unused, no_files = cast("Any", None), SimpleNamespace(install=list, repair=list)
    places = cast("Any", SimpleNamespace(root=tmp_path, files=no_files))
    preparer = Preparer(
        outside, outside, unused, outside, outside, records, files, places, unused, "b", ClaimLocks(), unused
    )
    given = Record(boot="b", uid="one", namespace="n", name="one", pods=(), shares=(), specification={"devices": []})
    monkeypatch.setattr(claims, "read", lambda _, uid: AllocatedClaim(uid, "n", "one", (), ()))
    monkeypatch.setattr(preparer, "_record", lambda *_: given)

    async def run() -> None:
        prepare = asyncio.create_task(preparer.prepare("n", "one", "one", time.monotonic() + DEADLINE))
        assert await asyncio.to_thread(records.saves.wait, DEADLINE)
        for _ in range(2):  # as the kubelet's deadline and the driver's end
            prepare.cancel()
            await asyncio.sleep(0)
        unprepare = asyncio.create_task(preparer.unprepare("n", "one", "one"))
        # Without the lock, unprepare ends now, before the record is saved.
        await asyncio.wait([unprepare], timeout=0.2)
        records.may_save.set()
        with pytest.raises(asyncio.CancelledError):
            await prepare
        await unprepare

    asyncio.run(run())  # ends after all threads
    assert (records.has_file("one"), files.uids()) == (False, [])


def test_an_error_of_the_thread_reaches_the_caller() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(run_to_end(int, "x"))
