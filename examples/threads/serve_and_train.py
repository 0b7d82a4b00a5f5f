"""Trains and serves in one process on one GPU; the server's requests have priority.

    HOOK="$(python -c 'import orion.hook; print(orion.hook.library())')"
    LD_PRELOAD="$HOOK" python examples/threads/serve_and_train.py

It needs torch and a GPU. Set MAX_SLOWDOWN to 1.3 to let training also run beside requests.
"""

import statistics
import threading
import time

import torch

import orion.inprocess

MAX_SLOWDOWN = 1.0
SECONDS = 10
TRAINER, SERVER = 0, 1


def train(scheduler: orion.inprocess.Scheduler, over: threading.Event) -> None:
    """Train until `over` is set."""
    with scheduler.client(TRAINER):
        model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8))).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        batch = torch.randn(2048, 4096, device="cuda")
        steps = 0
        while not over.is_set():
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            steps += 1
            torch.cuda.synchronize()  # waits for this client's work only
        print(f"{steps / SECONDS:.1f} training steps per second")


def serve(scheduler: orion.inprocess.Scheduler, over: threading.Event) -> None:
    """Answer a request every 20 ms."""
    latencies = []
    with scheduler.client(SERVER), torch.inference_mode():
        model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(24))).cuda()
        request = torch.randn(16, 2048, device="cuda")
        while not over.is_set():
            began = time.monotonic()
            model(request)
            torch.cuda.synchronize()
            latencies.append(time.monotonic() - began)
            time.sleep(0.02)
    print(f"{1e3 * statistics.quantiles(latencies, n=100)[98]:.2f} ms: the requests' p99")


def main() -> None:
    """Run both threads for SECONDS."""
    over = threading.Event()
    with orion.inprocess.Scheduler(clients=["be", "hp"], max_slowdown=MAX_SLOWDOWN) as scheduler:
        threads = [threading.Thread(target=body, args=(scheduler, over)) for body in (train, serve)]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        over.set()
        for thread in threads:
            thread.join()
        print(*scheduler.snapshot(), sep="\n")


if __name__ == "__main__":
    main()
