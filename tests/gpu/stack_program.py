"""Runs small samples of the kinds of GPU programs that people run, and prints as JSON which samples were right.

It is a separate program, so tests can run it under the hook in either role, and without the hook.
"""

# mypy: ignore-errors
import json
import os
import sys
import tempfile
import threading

import torch


def cublas() -> bool:
    """A product of matrices of ones."""
    product = torch.ones(512, 512, device="cuda") @ torch.ones(512, 512, device="cuda")
    return bool((product == 512).all())


def cudnn() -> bool:
    """A convolution of ones, forward and backward."""
    images = torch.ones(8, 16, 32, 32, device="cuda", requires_grad=True)
    out = torch.nn.functional.conv2d(images, torch.ones(16, 16, 1, 1, device="cuda"))
    out.sum().backward()
    return bool((out == 16).all()) and bool((images.grad == 16).all())


def streams_and_events() -> bool:
    """Work on three streams, ordered by events."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    total = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    for number in range(30):
        stream, before = streams[number % 3], streams[(number - 1) % 3]
        stream.wait_stream(before)
        with torch.cuda.stream(stream):
            total += 1
    torch.cuda.synchronize()
    return bool((total == 30).all())


def copies() -> bool:
    """Copies from host to device and back, with pinned and pageable memory."""
    pinned = torch.arange(1 << 20, dtype=torch.int32).pin_memory()
    there = pinned.to("cuda", non_blocking=True)
    back = (there * 2).cpu()
    return bool((back == pinned * 2).all())


def captured(mode: str) -> bool:
    """A capture while another thread works, and then replays of the graph."""
    other = torch.zeros(1024, device="cuda")
    stop = threading.Event()

    def work() -> None:
        stream = torch.cuda.Stream()
        while not stop.is_set():
            with torch.cuda.stream(stream):
                other.add_(1)
            if mode == "relaxed":
                stream.synchronize()

    value = torch.zeros(1 << 16, device="cuda")
    value.mul(2)
    torch.cuda.synchronize()
    # In global mode, calls of another thread may invalidate a capture, even without the hook. So the other thread
    # starts after the capture.
    thread = threading.Thread(target=work)
    if mode != "global":
        thread.start()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        value += 1
    if mode == "global":
        thread.start()
    for _ in range(100):
        graph.replay()
    stop.set()
    thread.join()
    torch.cuda.synchronize()
    return bool((value == 100).all())


def triton_kernel() -> bool:
    """A Triton kernel, made by torch.compile."""
    compiled = torch.compile(lambda x: torch.sin(x) + x * 2)
    x = torch.linspace(0, 1, 10000, device="cuda")
    return bool(torch.allclose(compiled(x), torch.sin(x) + x * 2, atol=1e-5))


def nccl() -> bool:
    """A process group of one."""
    import torch.distributed as distributed

    with tempfile.NamedTemporaryFile() as file:
        distributed.init_process_group("nccl", init_method=f"file://{file.name}x", rank=0, world_size=1)
        ones = torch.ones(1024, device="cuda")
        distributed.all_reduce(ones)
        torch.cuda.synchronize()
        distributed.destroy_process_group()
    return bool((ones == 1).all())


def training() -> bool:
    """Some steps without a synchronisation before the end."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(256, 64, device="cuda")
    first = last = model(x).pow(2).mean().detach()
    for _ in range(200):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        last = loss.detach()
    return bool(last < first)


def main() -> int:
    """Run all samples; the exit status says whether all were right."""
    torch.manual_seed(0)
    pieces = {
        "cublas": cublas,
        "cudnn": cudnn,
        "streams and events": streams_and_events,
        "copies": copies,
        "capture, global": lambda: captured("global"),
        "capture, thread-local": lambda: captured("thread_local"),
        "capture, relaxed": lambda: captured("relaxed"),
        "training": training,
        "torch.compile, triton": triton_kernel,
        "nccl": nccl,
    }
    results = {}
    for name, piece in pieces.items():
        try:
            results[name] = piece()
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(results))
    sys.stdout.flush()
    return 0 if all(result is True for result in results.values()) else 1


if __name__ == "__main__":
    status = main()
    os._exit(status) if "--abrupt" in sys.argv else sys.exit(status)
