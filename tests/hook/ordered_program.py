"""Random CUDA programs over several streams, and the times at which CUDA's rules let their operations run.

hook/test/client_ordered.c issues a program. It reports when its host functions and its waiting calls ended. The
simulated GPU's trace shows when its kernels ran. These times and CUDA's rules (streams, events, the legacy stream) give
each operation an earliest start. Neither shows when copies, records and waits ran. So an operation that waits for one
of these is only checked against what that one waited for.

Rejected: comparing the order of two runs, because CUDA leaves most of the order free.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from tests.hook.scripted_client import Answer, Client, eventually

LEGACY, FREE, FREE_HIGH, BLOCKING, OWN = range(5)
WITH_LEGACY = (BLOCKING, OWN)
""" The streams that wait for the legacy stream, and for which it waits. """
EVENTS = 4
TOLERANCE_NS = 1000
COPY_BYTES_PER_NS, COPY_START_NS = 50, 1000


@dataclass(frozen=True)
class Operation:
    """One line of a program: client_ordered.c explains its numbers."""

    what: str
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join([self.what, *map(str, self.numbers)])

    @property
    def microseconds(self) -> int:
        """The duration of its kernels on all the SMs that they need."""
        return self.numbers[1] * (2 if self.what == "graph" else 1)


Program = list[Operation]
KERNELS = ("launch", "moved", "graph")


def programs(kernel_us: tuple[int, int], moved: bool = False, length: int = 40) -> st.SearchStrategy[Program]:
    """Programs of up to `length` operations, at most 64. `kernel_us` holds their kernels' least and greatest duration.

    With `moved`, the programs themselves launch some kernels on a green context's stream, as a hook would.
    """
    launches = st.sampled_from(["launch", "moved"] if moved else ["launch"])
    stream, event = st.integers(0, 4), st.integers(0, EVENTS - 1)
    kernel = (stream, st.integers(*kernel_us), st.sampled_from([1, 20, 64, 100, 132]))
    copied = st.sampled_from([64, 1 << 20, 4 << 20]).flatmap(lambda size: st.sampled_from([size, -size]))
    on_gpu = [
        *[st.builds(Operation, launches, st.tuples(*kernel))] * 3,
        st.builds(Operation, st.just("graph"), st.tuples(*kernel)),
        st.builds(Operation, st.just("copy"), st.tuples(stream, copied)),
        st.builds(Operation, st.just("host"), st.tuples(stream)),
        st.builds(Operation, st.sampled_from(["record", "wait"]), st.tuples(stream, event)),
        st.builds(Operation, st.sampled_from(["record", "wait"]), st.tuples(stream, event)),
    ]
    waiting = [
        st.builds(Operation, st.sampled_from(["sync", "query"]), st.tuples(stream)),
        st.builds(Operation, st.just("esync"), st.tuples(event)),
        st.builds(Operation, st.just("ctxsync"), st.just(())),
    ]
    often = st.one_of(*on_gpu)
    return st.lists(st.one_of(often, often, often, often, *waiting), min_size=2, max_size=length)


@dataclass(frozen=True)
class Seen:
    """When an operation ran: start and end of a kernel or a host function, the return of a waiting call."""

    began: int
    ended: int
    busy: int = 0
    """ Nanoseconds for which its kernels were on the GPU, without the slices of other contexts. """


class Runner:
    """A client that runs programs, one after the other; a context manager.

    After a program has failed, the next one gets a new client.
    """

    def __init__(self, program: Path, environment: dict[str, str], folder: Path) -> None:
        self._trace = folder / "trace"
        self._read = 0
        self._command, self._complaints = [str(program)], folder / "complaints"
        self._environment = environment | {"ORION_SIM_TRACE": str(self._trace)}
        self._sound = True
        self.client = self._start()

    def _start(self) -> Client:
        return Client(self._command, self._environment, self._complaints)

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def run(self, program: Program) -> dict[int, Seen]:
        """Run a program to its end.

        Returns:
            what was observed, by the number of the operation.
        """
        if not self._sound:
            self.client.close()
            self.client = self._start()
        assert self.client.process.stdin is not None
        self._sound = False
        text = "".join(f"{operation}\n" for operation in program) + "go\n"
        self.client.process.stdin.write(text.encode())
        answer = self.client.answer()
        assert answer.result == 0, f"CUDA result {answer.result}"
        numbers = iter(answer.more)
        seen = {int(i): Seen(int(began), int(ended)) for i, began, ended in zip(numbers, numbers, numbers, strict=True)}
        seen |= self._kernels(program, answer)
        self._sound = True
        return seen

    def _kernels(self, program: Program, answer: Answer) -> dict[int, Seen]:
        rows: list[tuple[int, int, str]] = []

        def complete() -> bool:
            rows.extend(row for row in self._new_rows() if row[0] >= answer.began)
            return any(name == "last" for *_, name in rows)

        eventually(complete, "the trace has all kernels")
        seen = {}
        for i, operation in enumerate(program):
            if operation.what in KERNELS:
                own = [(begin, end) for begin, end, name in rows if name == f"k{i}"]
                busy = sum(end - begin for begin, end in own)
                assert busy >= operation.microseconds * 1000, f"operation {i} ({operation}) ran for {busy} ns"
                seen[i] = Seen(min(own)[0], max(own)[1], busy)
        return seen

    def _new_rows(self) -> list[tuple[int, int, str]]:
        if not self._trace.exists():
            return []
        with self._trace.open("rb") as trace:
            trace.seek(self._read)
            text = trace.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read += len(text)
        lines = (line.split() for line in text.decode().splitlines())
        return [(int(begin), int(end), name) for pid, begin, end, _, name in lines if int(pid) == self.client.pid]


def check(program: Program, seen: dict[int, Seen]) -> None:
    """Assert that every start, and every return of a call, came after the end of everything it must wait for."""
    over = dict.fromkeys(range(5), 0)  # by stream: the earliest end of everything issued in it
    events = dict.fromkeys(range(EVENTS), 0)
    for number, operation in enumerate(program):
        if operation.what in ("sync", "query", "esync", "ctxsync"):
            earliest = _awaited(operation, over, events)
            moment = seen[number].ended
        else:
            stream = operation.numbers[0]
            earliest = _ready(stream, over)
            if operation.what == "wait":
                earliest = max(earliest, events[operation.numbers[1]])
            moment = seen[number].began if number in seen else earliest
            over[stream] = seen[number].ended if number in seen else earliest + _least_ns(operation)
            if operation.what == "record":
                events[operation.numbers[1]] = over[stream]
        assert moment >= earliest - TOLERANCE_NS, (
            f"operation {number} ({operation}) was {(earliest - moment) / 1000:.1f} us early in:\n"
            + "\n".join(f"{i}: {line}  {seen.get(i, '')}" for i, line in enumerate(program))
        )


def _ready(stream: int, over: dict[int, int]) -> int:
    if stream == LEGACY:
        return max(over[LEGACY], *(over[other] for other in WITH_LEGACY))
    return max(over[stream], over[LEGACY]) if stream in WITH_LEGACY else over[stream]


def _awaited(operation: Operation, over: dict[int, int], events: dict[int, int]) -> int:
    if operation.what == "ctxsync":
        return max(over.values())
    return (events if operation.what == "esync" else over)[operation.numbers[0]]


def _least_ns(operation: Operation) -> int:
    return COPY_START_NS + abs(operation.numbers[1]) // COPY_BYTES_PER_NS if operation.what == "copy" else 0


def fresh_folder(parent: Path) -> Path:
    """Make a new folder in `parent`."""
    folder = parent / f"ordered-{len(os.listdir(parent))}"
    folder.mkdir()
    return folder
