"""Checks clients that are threads of one process, with torch on a real GPU; prints as JSON which checks passed.

It is a separate program, because the hook has to be preloaded; test_gpu_threads runs it.
"""

# mypy: ignore-errors
import json
import sys
import threading
import time

import torch

from orion.inprocess import Scheduler

CYCLES_MS = 1_500_000  # of torch.cuda._sleep, about a millisecond


def in_thread(scheduler, index, body):
    """Run a function in a thread that is bound to a client; return its result."""
    answer = []

    def run():
        with scheduler.client(index) as client:
            answer.append(body(client))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return bool(answer) and answer[0]


def current_stream_is_the_clients():
    with Scheduler(clients=2) as scheduler:
        return in_thread(scheduler, 1, lambda client: torch.cuda.current_stream().cuda_stream == client.stream)


def work_keeps_its_order_between_threads():
    """The client's work runs after this thread's earlier work, and before this thread's later work."""
    total = torch.zeros(1 << 22, device="cuda")
    with Scheduler(clients=2) as scheduler:
        torch.cuda._sleep(20 * CYCLES_MS)
        total += 1

        def double(_):
            total.mul_(10)
            torch.cuda._sleep(20 * CYCLES_MS)
            total.add_(1)
            return True

        in_thread(scheduler, 0, double)
        return bool((total == 11).all())


def default_stream_is_redirected():
    """Work that a program puts on the default stream keeps its order with the client's other work."""

    def work(client):
        total = torch.zeros(1 << 22, device="cuda")
        for _ in range(50):
            total += 1
            with torch.cuda.stream(torch.cuda.default_stream()):
                total += 1
        event = torch.cuda.Event()
        with torch.cuda.stream(torch.cuda.default_stream()):
            event.record()
        event.synchronize()
        return bool((total.cpu() == 100).all())

    with Scheduler(clients=2) as scheduler:
        return in_thread(scheduler, 0, work) and scheduler.snapshot()[0].launches > 100


def backward_counts_for_its_client():
    def work(_):
        weight = torch.ones(512, 512, device="cuda", requires_grad=True)
        batch = torch.ones(512, 512, device="cuda")
        before = scheduler.snapshot()[0].launches
        loss = (batch @ weight).relu().square().mean()
        forward = scheduler.snapshot()[0].launches
        loss.backward()
        torch.cuda.synchronize()
        after = scheduler.snapshot()[0].launches
        return after - forward >= forward - before > 0 and bool(torch.isfinite(weight.grad).all())

    with Scheduler(clients=2) as scheduler:
        return in_thread(scheduler, 0, work) and scheduler.snapshot()[1].launches == 0


def together(scheduler, hp_ms, be_body):
    """Let hp occupy the GPU while be runs `be_body`; return the times at which hp and be ended."""
    ends, launched = {}, threading.Event()

    def hp(_):
        torch.cuda._sleep(hp_ms * CYCLES_MS)
        launched.set()
        torch.cuda.synchronize()
        ends["hp"] = time.monotonic()
        return True

    def be(_):
        launched.wait()
        be_body()
        ends["be"] = time.monotonic()
        return True

    threads = [threading.Thread(target=in_thread, args=(scheduler, index, body)) for index, body in ((1, hp), (0, be))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends["hp"], ends["be"]


def small_work():
    torch.zeros(16, device="cuda").add_(1)
    torch.cuda.synchronize()


def be_waits_for_hp():
    with Scheduler(clients=2, policy="gate") as scheduler:
        hp, be = together(scheduler, 200, small_work)
        return be > hp and scheduler.snapshot()[0].gated_seconds > 0.02


def synchronise_waits_only_for_its_client():
    with Scheduler(clients=2, policy="none") as scheduler:
        hp, be = together(scheduler, 200, small_work)
        return be < hp - 0.02


def free_does_not_deadlock():
    """be frees memory, which waits for all work of the context, while the gate stops be's launches."""

    def allocate_and_free():
        held = torch.empty(1 << 28, device="cuda")
        del held
        torch.cuda.empty_cache()
        small_work()

    with Scheduler(clients=2, policy="gate") as scheduler:
        began = time.monotonic()
        together(scheduler, 50, allocate_and_free)
        return time.monotonic() - began < 0.9  # less than the stall time after which be would stop waiting


def graphs():
    def work(client):
        source = torch.ones(1 << 20, device="cuda")
        total = torch.zeros_like(source)
        stream = torch.cuda.ExternalStream(client.stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            total.add_(source)
            total.add_(source)
        for _ in range(10):
            graph.replay()
        return bool((total.cpu() == 20).all())

    with Scheduler(clients=2) as scheduler:
        return in_thread(scheduler, 0, work) and in_thread(scheduler, 1, work)


def many_at_once():
    """Four clients train for two seconds, with overlap; each must get the same result as alone."""

    def train(seed, steps=60):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        weight = torch.randn(256, 256, device="cuda", generator=generator, requires_grad=True)
        batch = torch.randn(1024, 256, device="cuda", generator=generator)
        for _ in range(steps):
            (gradient,) = torch.autograd.grad((batch @ weight).tanh().square().mean(), weight)
            with torch.no_grad():
                weight -= 0.1 * gradient
        return weight.detach().double().sum().item()

    alone = [train(seed) for seed in range(4)]
    with Scheduler(clients=4, max_slowdown=2.0) as scheduler:
        beside = [None] * 4
        bodies = [lambda _, seed=seed: beside.__setitem__(seed, train(seed)) or True for seed in range(4)]
        threads = [
            threading.Thread(target=in_thread, args=(scheduler, index, body)) for index, body in enumerate(bodies)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # A sum in another order may differ by this much.
    return all(abs(one - other) <= 1e-3 * max(1.0, abs(one)) for one, other in zip(alone, beside, strict=True))


CHECKS = [
    current_stream_is_the_clients, work_keeps_its_order_between_threads, default_stream_is_redirected,
    backward_counts_for_its_client, be_waits_for_hp, synchronise_waits_only_for_its_client, free_does_not_deadlock,
    graphs, many_at_once,
]  # fmt: skip


def main():
    """Run every check, also after a failure."""
    torch.zeros(1, device="cuda")
    small_work()
    results = {}
    for check in CHECKS:
        try:
            results[check.__name__] = bool(check())
        except Exception as error:
            results[check.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(results))
    return 0 if all(result is True for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
