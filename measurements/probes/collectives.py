"""Checks that the collectives of two ranks give the same results under Orion, and shows how they are stopped.

    NCCL_NVLS_ENABLE=0 python -m measurements.probes.collectives > collectives.jsonl

It needs two GPUs and PyTorch. Two ranks sum tensors over NCCL, kernel by kernel and as a replayed CUDA graph: first
without Orion and alone, then as a be job beside an hp on GPU 0. Each rank prints a line of JSON with a digest of all
results, its seconds, and what it saw in the job page. `lag`: by how many collectives the GPU was behind the program. A
rank that the hook holds on the CPU is at most one behind, so more than one shows waits in the stream. `held_samples`:
how often a sample found the word closed. The last line says whether all digests agree.
"""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measurements.probes import two_ranks
from orion.hook import layout

ELEMENTS, ROUNDS, PER_ROUND = 1 << 20, 200, 20
HP_DELAY_S, HP_SECONDS, LIMIT_S = 4.0, 14.0, 60
FAR_AHEAD = 1 << 30
"""How far the word is ahead of the last launched number while no hp is busy, at most; at least half of it."""
SAMPLE_SECONDS = 2e-4


class PageWatch:
    """Samples the job page that the hook has mapped into this process; sees nothing without the hook."""

    def __init__(self) -> None:
        self.seen = {"page": 0, "tied": 0, "samples": 0, "held_samples": 0, "lag": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> dict[str, int]:
        """Stop sampling; return what was seen."""
        self._stop.set()
        self._thread.join()
        return self.seen

    def _watch(self) -> None:
        page: layout.JobPage | None = None
        while not self._stop.wait(SAMPLE_SECONDS if page is not None else 0.05):
            page = page if page is not None else find_page()
            if page is not None:
                self._sample(page)

    def _sample(self, page: layout.JobPage) -> None:
        tied = [rank for rank in page.rank[: page.ranks] if rank.tied == 1]
        seen = self.seen
        seen["page"] = 1
        seen["tied"] = max(seen["tied"], len(tied))
        seen["samples"] += 1
        for rank in tied:
            lag = (rank.launched - rank.begun) & 0xFFFFFFFF
            if lag < FAR_AHEAD // 2:  # else the two words were read at different times
                seen["lag"] = max(seen["lag"], lag)
        ahead = (page.allowed - max((rank.launched for rank in tied), default=0)) & 0xFFFFFFFF
        seen["held_samples"] += bool(tied) and not FAR_AHEAD // 4 < ahead <= FAR_AHEAD


def find_page() -> Any:
    """Return the job page in this process's memory, or None."""
    found = re.search(r"^([0-9a-f]+)-.*memfd:orion-job", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return layout.JobPage.from_address(int(found[1], 16)) if found else None


def rank_main() -> None:
    """Run as one rank, which the variables of `torchrun` name."""
    torch = importlib.import_module("torch")
    distributed = importlib.import_module("torch.distributed")
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    distributed.init_process_group("nccl", device_id=device)
    torch.manual_seed(rank)
    values = torch.randn(ELEMENTS, device=device)
    square = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    watch = PageWatch()
    began = time.monotonic()
    digests = {"eager": eager(torch, distributed, values, square), "graph": graph(torch, distributed, values, square)}
    seconds = time.monotonic() - began
    line = {"rank": rank, "hook": "liborion_hook" in os.environ.get("LD_PRELOAD", ""), **digests}
    print(json.dumps({**line, "seconds": round(seconds, 3), **watch.end()}), flush=True)
    distributed.barrier()
    os._exit(0)  # the communicator's destruction is not part of the check


def eager(torch: Any, distributed: Any, values: Any, square: Any) -> int:
    """Sum tensors beside products of matrices; return a digest of the sums' bits."""
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    for number in range(ROUNDS):
        for each in range(PER_ROUND):
            square @ square
            result = values * (number * PER_ROUND + each + 1)
            distributed.all_reduce(result)
            total += result.view(torch.int32).to(torch.int64).sum() * (each + 1)
        torch.cuda.synchronize()
    return int(total)


def graph(torch: Any, distributed: Any, values: Any, square: Any) -> int:
    """Do the same with an all-reduce in a CUDA graph."""
    buffer = torch.zeros_like(values)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            distributed.all_reduce(buffer)
    stream.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=stream, capture_error_mode="thread_local"):
        square @ square
        distributed.all_reduce(buffer)
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    for number in range(ROUNDS):
        for each in range(PER_ROUND):
            buffer.copy_(values * (number * PER_ROUND + each + 1))
            captured.replay()
            total += buffer.view(torch.int32).to(torch.int64).sum() * (each + 1)
        torch.cuda.synchronize()
    return int(total)


def run_ranks(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Run both ranks to their end; return their lines."""
    lines = []
    with two_ranks.ranks("measurements.probes.collectives", environment) as running:
        try:
            for process in running:
                out, _ = process.communicate(timeout=LIMIT_S)
                lines += [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]
        except subprocess.TimeoutExpired:
            lines.append({"error": f"the ranks did not end in {LIMIT_S} s"})
    for line in lines:
        print(json.dumps(line), flush=True)
    return lines


def check() -> int:
    """Run the ranks without Orion and under it; return 0 if all results are equal."""
    plain = run_ranks(os.environ)
    # hp serves for long enough that the ranks' collectives run beside it.
    with two_ranks.beside_hp(HP_DELAY_S, HP_SECONDS, patience=60) as hp:
        beside = run_ranks(hp.environment)
    digests = {(line.get("eager"), line.get("graph")) for line in [*plain, *beside]}
    same = len(digests) == 1 and len(plain) == len(beside) == two_ranks.RANKS
    median = round(hp.delays[len(hp.delays) // 2] * 1e3, 3)
    print(json.dumps({"same": same, "digests": len(digests), "hp_requests": len(hp.delays), "hp_p50_ms": median}))
    return 0 if same else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(two_ranks.RANK_OPTION, action="store_true", help="run as one rank")
    if parser.parse_args().rank:
        rank_main()
    else:
        sys.exit(check())
