"""Measures the cost of clients that are threads of one process: `orion bench threads` runs this module under the hook.

It measures two things on a GPU:
- The time of one launch call, on a plain torch stream and as a client. The kernel multiplies one element by a scalar,
  and the driver's queue is never full. Python and torch take most of the time; Orion's part is the difference.
- The time in which two threads each launch 100 matrix products of size 2048 and wait for them, on plain streams and as
  clients under several policies. The time counts from the first thread's start until both threads have finished.

A round has several turns. Each turn measures all settings in random order, and costs are compared within a turn.
Products are not measured until the scheduler has learnt their durations.
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

TURNS = 2  # in a round
BURSTS = 40  # in a turn
LAUNCHES = 400  # in a burst, without waits; the driver's queue holds more
REPETITIONS = 8  # in a turn
PRODUCTS = 100
SIZE = 2048
WARM_UP = 2  # bursts that are not measured: the allocator and the libraries set up a new stream
LEARNING = 32  # repetitions that are not measured: the scheduler learns the products' durations and hp's gaps

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
"""Settings whose launch calls are timed, with a name for each client."""


@contextlib.contextmanager
def setting(name: str) -> Any:
    """Yield a function that binds the calling thread to one of two clients, or to one of two plain streams."""
    options = SETTINGS[name]
    if options is None:
        streams = [torch.cuda.Stream() for _ in range(2)]
        yield lambda index: torch.cuda.stream(streams[index])
        return
    with Scheduler(**options) as scheduler:
        yield scheduler.client


def launch_ns(binding: Binding, index: int) -> list[float]:
    """Return the mean time of a launch call in nanoseconds, one figure for each burst."""
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
    """Return milliseconds from the first thread's start until both have finished, one figure for each repetition."""
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
    """Measure; return the figures and the samples of every turn.

    Args:
        rounds: Number of rounds; each has `TURNS` turns.
        dtypes: Data types of the matrix products, by torch's names.
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
        gc.collect()  # `main` disables automatic collection
    return {"figures": figures(launches, products), "turns": {"launch_ns": launches, "products_ms": products}}


def figures(launches: Sequence[Samples], products: Sequence[Samples]) -> dict[str, dict[str, Any]]:
    """Return medians with quartiles, of samples and of costs relative to plain streams, as JSON types."""
    launch, product = paired_turns.by_system(launches), paired_turns.by_system(products)
    costs = {name: paired_turns.over(launches, name, "plain", operator.sub) for name in launch if name != "plain"}
    slower = {
        name: paired_turns.over(products, name, alike, operator.truediv)
        for name in product if (alike := f"{PLAIN}, {name.rpartition(', ')[2]}") != name
    }  # fmt: skip
    found = {"launch_ns": launch, "products_ms": product, "launch_over_plain_ns": costs, "products_over_plain": slower}
    return {what: {name: value.to_json() for name, value in by_name.items()} for what, by_name in found.items()}


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """Format the figures as a text table: medians, with quartiles in brackets."""
    lines = [f"{'one launch':32}{'ns':>26}{'more than plain streams':>30}"]
    for name, took in found["launch_ns"].items():
        lines.append(f"{name:32}{_cell(took, '.0f'):>26}{_cell(found['launch_over_plain_ns'].get(name), '+.0f'):>30}")
    lines += ["", f"{'two clients of 100 products':32}{'ms':>26}{'/ plain streams':>30}"]
    for name, took in found["products_ms"].items():
        lines.append(f"{name:32}{_cell(took, '.2f'):>26}{_cell(found['products_over_plain'].get(name), '.3f'):>30}")
    return "\n".join([*lines, "", "Medians; in brackets the quartiles, of all samples (times) and over turns (costs)."])


def _cell(found: dict[str, float] | None, digits: str) -> str:
    if found is None:
        return ""
    value = Spread(**found)
    return f"{value.median:{digits}} ({value.low:{digits}} to {value.high:{digits}})"


def main() -> int:
    """Measure; print a table, or one JSON object."""
    parser = OneSentenceParser(
        prog="orion bench threads", description="Measures the cost of clients that are threads of one process."
    )
    parser.add_argument("--rounds", type=counted, default=5, help=f"number of rounds; each has {TURNS} turns")
    parser.add_argument("--dtypes", default="bfloat16,float32", help="data types of the matrix products")
    parser.add_argument("--output", type=Path, help="file for the raw data")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    options = parser.parse_args()
    sys.setswitchinterval(50e-6)  # seconds a thread waits for Python's lock; the default, 5 ms, is most of a repetition
    gc.disable()
    raw = raw_data.header("orion.bench.threads_cost")
    raw["command"] = " ".join(["orion bench threads", *sys.argv[1:]])  # the command that preloads the hook
    raw |= {"gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
    raw |= measure(options.rounds, options.dtypes.split(","))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        raw_data.write(options.output, raw)
    print(json.dumps(raw) if options.json else table(raw["figures"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
