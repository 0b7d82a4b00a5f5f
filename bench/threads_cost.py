"""What clients as threads of one process cost: `orion bench threads`, which runs this module under the hook, on a GPU.

Two figures. The time of one launch call (a scale by a scalar of one element, queue never full) on a plain stream of
torch's and as a client, in turns. And two threads, each launching 100 matrix products of 2048 and waiting for them, on
plain streams and as clients under several policies, in turns: how long until both have ended.
"""

# mypy: disable-error-code="import-not-found"
import contextlib
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted
from orion.inprocess import Scheduler

LAUNCHES = 400  # behind one another, fewer than the driver queues
PRODUCTS = 100
SIZE = 2048

Binding = Callable[[int], AbstractContextManager[Any]]

SETTINGS: dict[str, dict[str, Any] | None] = {
    "plain streams": None,
    "two hp": {"clients": ["hp", "hp"], "policy": "gate"},
    "be and hp, gate": {"clients": ["be", "hp"], "policy": "gate"},
    "be and hp, orion 1": {"clients": ["be", "hp"], "policy": "orion", "max_slowdown": 1.0},
    "be and hp, orion 2": {"clients": ["be", "hp"], "policy": "orion", "max_slowdown": 2.0},
    "be and hp, streams": {"clients": ["be", "hp"], "policy": "streams"},
}


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


def launch_ns(binding: Binding, index: int, bursts: int) -> float:
    """Return the median nanoseconds of a launch call, over bursts."""
    with binding(index):
        element = torch.ones(1, device="cuda")
        times = []
        for _ in range(bursts + 3):
            torch.cuda.current_stream().synchronize()
            began = time.perf_counter_ns()
            for _ in range(LAUNCHES):
                element.mul_(1.0)
            times.append((time.perf_counter_ns() - began) / LAUNCHES)
        torch.cuda.current_stream().synchronize()
    return statistics.median(times[3:])


def products_ms(binding: Binding, dtype: Any, repetitions: int) -> float:
    """Return the median milliseconds from the common begin of both threads until both have waited."""
    began, ended = threading.Barrier(3), threading.Barrier(3)
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            with binding(index):
                left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=dtype) for _ in range(2))
                product = torch.empty_like(left)
                for _ in range(repetitions + 2):
                    torch.cuda.current_stream().synchronize()
                    began.wait()
                    for _ in range(PRODUCTS):
                        torch.mm(left, right, out=product)
                    torch.cuda.current_stream().synchronize()
                    ended.wait()
        except BaseException as error:
            errors.append(error)
            began.abort()
            ended.abort()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    times = []
    with contextlib.suppress(threading.BrokenBarrierError):
        for _ in range(repetitions + 2):
            began.wait()
            start = time.perf_counter()
            ended.wait()
            times.append(1e3 * (time.perf_counter() - start))
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return statistics.median(times[2:])


def measure(rounds: int, dtypes: Sequence[str]) -> dict[str, Any]:
    """Return the medians over rounds, and every round.

    Args:
        rounds: Each measures every setting once.
        dtypes: torch's names, of the matrix products.
    """
    sys.setswitchinterval(50e-6)
    launches: dict[str, list[float]] = {}
    products: dict[str, list[float]] = {}
    for number in range(rounds):
        order = list(SETTINGS) if number % 2 == 0 else list(reversed(SETTINGS))
        for name in order:
            with setting(name) as binding:
                if name in ("plain streams", "be and hp, gate"):
                    for index, role in enumerate(("be", "hp") if SETTINGS[name] else ("plain",)):
                        launches.setdefault(role, []).append(launch_ns(binding, index, 60))
                for kind in dtypes:
                    took = products_ms(binding, getattr(torch, kind), 15)
                    products.setdefault(f"{name}, {kind}", []).append(took)
    medians = {
        "launch_ns": {name: statistics.median(values) for name, values in launches.items()},
        "products_ms": {name: statistics.median(values) for name, values in products.items()},
    }
    return {"medians": medians, "rounds": {"launch_ns": launches, "products_ms": products}}


def table(medians: dict[str, dict[str, float]]) -> str:
    """Lay the medians out for people."""
    plain = medians["launch_ns"]["plain"]
    lines = [f"{'one launch':32}{'ns':>10}{'over plain streams':>22}"]
    lines += [f"{name:32}{took:10.0f}{took - plain:+22.0f}" for name, took in medians["launch_ns"].items()]
    lines += ["", f"{'two clients of 100 products':32}{'ms':>10}{'over plain streams':>22}"]
    for name, took in medians["products_ms"].items():
        alike = medians["products_ms"][f"plain streams, {name.rpartition(', ')[2]}"]
        lines.append(f"{name:32}{took:10.2f}{took / alike:21.3f}x")
    return "\n".join(lines)


def main() -> int:
    """Measure; print a table, or one JSON object."""
    parser = OneSentenceParser(prog="orion bench threads", description="What clients as threads of one process cost.")
    parser.add_argument("--rounds", type=counted, default=5)
    parser.add_argument("--dtypes", default="bfloat16,float32", help="of the matrix products")
    parser.add_argument("--output", type=Path, help="a file for the raw data")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    raw = raw_data.header("threads_cost")
    raw |= {"gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
    raw |= measure(options.rounds, options.dtypes.split(","))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        raw_data.write(options.output, raw)
    print(json.dumps(raw) if options.json else table(raw["medians"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
