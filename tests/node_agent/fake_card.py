"""A fake GPU of which a test says what is free, and fake tenants that leave it and come back as the hook does.

There is no driver and no hook: the tenants only speak the protocol, and keep books of what they hold on the fake GPU.
"""

import os
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import Self

from orion.hook import join, layout
from orion.hook.layout import ParkingReason, ParkingState
from tests.node_agent.protocol_client import ProtocolClient, connect, head
from tests.waiting import DEADLINE, eventually

MIB = 1 << 20
TOTAL = 8 << 30
SOURCE = """
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int orion_sim_gpu_count(void) { return GPUS; }
int orion_sim_gpu_uuid(int i, char *u) {
    __builtin_strcpy(u, "GPU-00000000-0000-4000-8000-000000000000");
    u[39] = (char)(u[39] + i);
    return 0;
}
const char *orion_sim_gpu_name(int i) { (void)i; return "A fake"; }
static long read_books(uint64_t *words, size_t size) {
    int file = open(getenv("ORION_TEST_BOOKS"), O_RDONLY | O_CLOEXEC);
    long got = file < 0 ? 0 : read(file, words, size);
    if (file >= 0) close(file);
    return got / 8;
}
static void wait_while_there_is(const char *ending) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", getenv("ORION_TEST_BOOKS"), ending);
    while (access(path, F_OK) == 0) usleep(1000);
}
int orion_sim_gpu_memory(int i, uint64_t *total, uint64_t *used) {
    *total = UINT64_C(8) << 30;
    *used = 0;
    if (i == 0) read_books(used, 8);
    else wait_while_there_is("hang");
    return 0;
}
int orion_sim_gpu_processes(int i, uint32_t *p, uint64_t *m, int n) {
    uint64_t words[65] = {0};
    wait_while_there_is(i == 0 ? "silent" : "hang");
    int count = 0;
    if (i > 0) return 0;
    for (long at = 1, have = read_books(words, sizeof words); at + 1 < have && count < n; at += 2, count++) {
        p[count] = (uint32_t)words[at];
        if (m) m[count] = words[at + 1];
    }
    return count;
}
"""


class Card:
    """The books of the fake GPU: the driver, as far as the agent can see it."""

    def __init__(self, folder: Path) -> None:
        self.file, self.silence, self.hang = (folder / name for name in ("books", "books.silent", "books.hang"))
        """ While the second file exists, the driver does not say what processes hold; while the third one does, it says
        nothing about the other GPUs. """
        self.lock = threading.Lock()
        self.held: dict[object, int] = {}
        self.listed: dict[int, int] = {}
        """ What the driver lists for processes, in bytes. """
        self.lost = 0
        """ How often a tenant came back where there was no room. """
        self._write()

    @staticmethod
    def library(folder: Path, gpus: int = 1) -> Path:
        """Return the driver of the fake GPU, and of more GPUs on which nothing is."""
        (folder / "card.c").write_text(SOURCE)
        library = folder / "libcuda.so.1"
        subprocess.run(["gcc", "-shared", "-fPIC", f"-DGPUS={gpus}", "-o", library, folder / "card.c"], check=True)
        return library

    def hold(self, who: object, mib: int) -> bool:
        """Hold so much in all; return whether there was room."""
        with self.lock:
            others = sum(each for name, each in self.held.items() if name is not who)
            if others + mib * MIB > TOTAL:
                return False
            self.held[who] = mib * MIB
            self._write()
            return True

    def lists(self, process: int, mib: int) -> None:
        with self.lock:
            self.listed[process] = mib * MIB
            self._write()

    def _write(self) -> None:
        words = [sum(self.held.values()), *(word for pair in self.listed.items() for word in pair)]
        new = self.file.with_suffix(".new")
        new.write_bytes(struct.pack(f"<{len(words)}Q", *words))
        os.replace(new, self.file)


class Tenant(ProtocolClient):
    """A fake be client. `obey` starts a thread that leaves and comes back as the agent wants."""

    card: Card
    mib = 0
    moved: list[ParkingState]
    stops_before: ParkingState | None = None
    """ It does not enter this state by itself. """

    @classmethod
    def on(cls, card: Card, directory: Path, mib: int, says: bool = True, flags: int = 0) -> Self:
        tenant = cls(directory).join(flags=join.HELLO_KEEPS_CREDIT | flags)
        tenant.card, tenant.moved = card, []
        assert card.hold(tenant, mib)
        tenant.mib = mib
        if says:
            tenant.says(mib)
        tenant.ended = threading.Event()
        return tenant

    ended: threading.Event

    def says(self, mib: int) -> None:
        """Say that it holds so much, or will when it comes back."""
        self.mib = mib
        self.record.set(layout.RecordPage, "memory_bytes", mib * MIB)
        self.record.set(layout.RecordPage, "credit_epoch", self.grant.get(layout.GrantPage, "credit_epoch"))

    @property
    def stays(self) -> bool:
        word = layout.GrantPage.stays.offset + 4 * (self.key[0] // 32)
        return bool(int.from_bytes(self.grant.memory[word : word + 4], "little") >> self.key[0] % 32 & 1)

    @property
    def park(self) -> int:
        return self.grant.get(layout.GrantPage, "park") & ~self.stays

    @property
    def state(self) -> ParkingState:
        return ParkingState(self.record.get(layout.RecordPage, "parking") & 0xFF)

    def answer(
        self,
        state: ParkingState,
        reason: ParkingReason = ParkingReason.NONE,
        result: int = 0,
        number: int | None = None,
    ) -> None:
        number = self.park if number is None else number
        self.moved.append(state)  # first, because a test that sees the state looks at the list
        self.record.set(layout.RecordPage, "parking", number << 32 | result << 16 | reason << 8 | state)

    def step(self) -> None:
        """Go one step further towards what the agent wants."""
        away, state = self.park % 2 == 1, self.state
        todo = {
            (True, ParkingState.RUNNING): ParkingState.LEAVING,
            (True, ParkingState.LEAVING): ParkingState.PARKED,
            (False, ParkingState.PARKED): ParkingState.RETURNING,
            (False, ParkingState.RETURNING): ParkingState.RUNNING,
            (False, ParkingState.LEAVING): ParkingState.RUNNING,
        }.get((away, state))
        if todo is None or todo is self.stops_before:
            return
        if todo is ParkingState.PARKED:
            assert self.card.hold(self, 0)
        if state is ParkingState.RETURNING and not self.card.hold(self, self.mib):
            self.card.lost += 1
            todo = ParkingState.LOST
        self.answer(todo)

    def obey(self) -> Self:
        self.thread = threading.Thread(target=self._obey, daemon=True)
        self.thread.start()
        return self

    thread: threading.Thread | None = None

    def _obey(self) -> None:
        while not self.ended.wait(0.002):
            self.shows_life()
            self.step()

    def shows_life(self) -> None:
        """Count launches, as the hook's thread does while the process is not stopped."""
        self.record.set(layout.RecordPage, "launches_counted_ns", time.monotonic_ns())

    def rest(self) -> None:
        """End the thread, as for a new page."""
        if self.thread is not None:
            self.ended.set()
            self.thread.join(DEADLINE)
            self.ended.clear()
            self.thread = None

    def reaches(self, *states: ParkingState) -> None:
        eventually(lambda: self.state in states, f"the tenant reaches {states}")

    def close(self) -> None:
        self.rest()
        super().close()
        self.card.hold(self, 0)


def ask_for_room(client: ProtocolClient, size: int) -> join.CreditAnswer:
    """Ask once, as an hp client whose allocation of so many bytes found no room."""
    return _ask(client, join.MessageType.ROOM, size)


def ask_for_credit(client: ProtocolClient, size: int) -> join.CreditAnswer:
    """Ask once, as a client that wants to hold so many bytes in all."""
    return _ask(client, join.MessageType.MEMORY, size)


def _ask(client: ProtocolClient, what: join.MessageType, size: int) -> join.CreditAnswer:
    with connect(client.directory) as sock:
        sock.send(bytes(join.MemoryWish(head(what), *client.key, size)))
        return join.CreditAnswer(join.Credit.from_buffer_copy(sock.recv(64)).answer)


def wait_for_room(client: ProtocolClient, size: int) -> join.CreditAnswer:
    """Ask until the answer is not LATER."""
    answers: list[join.CreditAnswer] = []

    def is_final() -> bool:
        answers.append(ask_for_room(client, size))
        return answers[-1] is not join.CreditAnswer.LATER

    eventually(is_final, "the agent answers YES or NO")
    return answers[-1]
