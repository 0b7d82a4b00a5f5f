"""What clients as threads of one process cost: `orion bench threads`, which runs this module under the hook, on a GPU.

Two figures. The time of one launch call (a scale by a scalar of one element, queue never full) on a plain stream of
torch's and as a client: most of it is Python's and torch's own, which the difference leaves out. And two threads, each
launching 100 matrix products of 2048 and waiting for them, on plain streams and as clients under several policies: from
the first one's begin until both have ended, by their own clocks.

A round has several turns, each with all settings in random order; what a setting costs is compared within a turn.
Before the products that count come some that do not, in which a scheduler learns what they are.
"""

# mypy: disable-error-code="import-not-found"
import contextlib
import gc
import json
import operator
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from orion.bench import paired_turns, raw_data
from orion.bench.commandline import OneSentenceParser, counted
from orion.bench.paired_turns import Spread
from orion.inprocess import Scheduler

TURNS = 2  # of a round
BURSTS = 40  # of a turn
LAUNCHES = 400  # of a burst, behind one another: fewer than the driver queues
REPETITIONS = 8  # of a turn
PRODUCTS = 100
SIZE = 2048
WARM_UP = 2  # bursts that do not count: the allocator and the libraries meet a new stream
LEARNING = 32  # repetitions that do not count: meanwhile a scheduler learns the products' duration and hp's gaps

Binding = Callable[[int], AbstractContextManager[Any]]
Samples = dict[str, list[float]]

PLAIN = "plain streams"
SETTINGS: dict[str, dict[str, Any] | None] = {
    PLAIN: None,
    "two hp": {"clients": ["hp", "hp"], "policy": "gate"},
    "be and hp, gate": {"clients": ["be", "hp"], "policy": "gate"},
    "be and hp, orion 1": {"clients": ["be", "hp"], "policy": "orion", "max_slowdown": 1.0},
    "be and hp, orion 2": {"clients": ["be", "hp"], "policy": "orion", "max_slowdown": 2.0},
    "be and hp, streams": {"clients": ["be", "hp"], "policy": "streams"},
}
LAUNCHING = {PLAIN: ("plain",), "be and hp, gate": ("be", "hp")}
"""Settings whose launches are timed, with the names of the clients that launch."""


@contextlib.contextmanager
def setting(name: str) -> Any:
    """Yield what binds the calling thread to one of two clients, or to one of two plain streams."""
    options = SETTINGS[name]
    if options is None:
        streams = [torch.cuda.Stream() for _ in range(2)]
        yield lambda index: torch.cuda.stream(streams[index])
        return
    with Scheduler(**options) as scheduler:
        yield scheduler.client


def launch_ns(binding: Binding, index: int) -> list[float]:
    """Return nanoseconds of a launch call, one figure a burst."""
    with binding(index):
        element = torch.ones(1, device="cuda")
        times = []
        for _ in range(BURSTS + WARM_UP):
            torch.cuda.current_stream().synchronize()
            began = time.perf_counter_ns()
            for _ in range(LAUNCHES):
                element.mul_(1.0)
            times.append((time.perf_counter_ns() - began) / LAUNCHES)
        torch.cuda.current_stream().synchronize()
    return times[WARM_UP:]


def products_ms(binding: Binding, dtype: Any) -> list[float]:
    """Return milliseconds from the first thread's begin until both have waited, one figure a repetition."""
    together = threading.Barrier(2)
    spans: list[list[tuple[float, float]]] = [[], []]
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            with binding(index):
                left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=dtype) for _ in range(2))
                product = torch.empty_like(left)
                for _ in range(LEARNING + REPETITIONS):
                    torch.cuda.current_stream().synchronize()
                    together.wait()
                    began = time.perf_counter()
                    for _ in range(PRODUCTS):
                        torch.mm(left, right, out=product)
                    torch.cuda.current_stream().synchronize()
                    spans[index].append((began, time.perf_counter()))
        except BaseException as error:
            errors.append(error)
            together.abort()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    pairs = list(zip(*spans, strict=True))[LEARNING:]
    return [1e3 * (max(one[1], other[1]) - min(one[0], other[0])) for one, other in pairs]


def measure(rounds: int, dtypes: Sequence[str]) -> dict[str, Any]:
    """Return figures, and the samples of every turn.

    Args:
        rounds: Each has `TURNS` turns.
        dtypes: torch's names, of the matrix products.
    """
    launches: list[Samples] = []
    products: list[Samples] = []
    for number in range(rounds * TURNS):
        launches.append({})
        products.append({})
        for name in random.Random(number).sample(list(SETTINGS), len(SETTINGS)):
            with setting(name) as binding:
                for index, client in enumerate(LAUNCHING.get(name, ())):
                    launches[-1][client] = launch_ns(binding, index)
                for kind in dtypes:
                    products[-1][f"{name}, {kind}"] = products_ms(binding, getattr(torch, kind))
        gc.collect()  # here, since `main` keeps it from happening elsewhere
    return {"figures": figures(launches, products), "turns": {"launch_ns": launches, "products_ms": products}}


def figures(launches: Sequence[Samples], products: Sequence[Samples]) -> dict[str, dict[str, Any]]:
    """Return medians with quartiles, of samples and of what turns cost over plain streams, as JSON types."""
    launch, product = paired_turns.by_system(launches), paired_turns.by_system(products)
    costs = {name: paired_turns.over(launches, name, "plain", operator.sub) for name in launch if name != "plain"}
    slower = {
        name: paired_turns.over(products, name, alike, operator.truediv)
        for name in product if (alike := f"{PLAIN}, {name.rpartition(', ')[2]}") != name
    }  # fmt: skip
    found = {"launch_ns": launch, "products_ms": product, "launch_over_plain_ns": costs, "products_over_plain": slower}
    return {what: {name: value.to_json() for name, value in by_name.items()} for what, by_name in found.items()}


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """Lay the figures out for people: medians, quartiles in brackets."""
    lines = [f"{'one launch':32}{'ns':>26}{'over plain streams':>30}"]
    for name, took in found["launch_ns"].items():
        lines.append(f"{name:32}{_told(took, '.0f'):>26}{_told(found['launch_over_plain_ns'].get(name), '+.0f'):>30}")
    lines += ["", f"{'two clients of 100 products':32}{'ms':>26}{'over plain streams':>30}"]
    for name, took in found["products_ms"].items():
        lines.append(f"{name:32}{_told(took, '.2f'):>26}{_told(found['products_over_plain'].get(name), '.3f'):>30}")
    return "\n".join([*lines, "", "Medians; in brackets the quartiles, of all samples and over turns."])


def _told(found: dict[str, float] | None, digits: str) -> str:
    if found is None:
        return ""
    value = Spread(**found)
    return f"{value.median:{digits}} ({value.low:{digits}} to {value.high:{digits}})"


def main() -> int:
    """Measure; print a table, or one JSON object."""
    parser = OneSentenceParser(prog="orion bench threads", description="What clients as threads of one process cost.")
    parser.add_argument("--rounds", type=counted, default=5)
    parser.add_argument("--dtypes", default="bfloat16,float32", help="of the matrix products")
    parser.add_argument("--output", type=Path, help="a file for the raw data")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    sys.setswitchinterval(50e-6)  # a thread waits so long for Python's lock; the default is most of a repetition
    gc.disable()
    raw = raw_data.header("orion.bench.threads_cost")
    raw["command"] = " ".join(["orion bench threads", *sys.argv[1:]])  # which puts this module under the hook
    raw |= {"gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
    raw |= measure(options.rounds, options.dtypes.split(","))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        raw_data.write(options.output, raw)
    print(json.dumps(raw) if options.json else table(raw["figures"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
