"""Shows what the peer of a killed rank sees: NCCL's own error, and that it goes on, with Orion as without it.

    NCCL_NVLS_ENABLE=0 python -m measurements.probes.dead_rank > dead_rank.jsonl

It needs two GPUs and PyTorch. Two ranks sum tensors over NCCL, and rank 1 kills itself in the middle: first without
Orion, then as a be job beside an hp on GPU 0. Rank 0 waits for each sum with a time limit, gets the error, gives the
communicator up and multiplies matrices. Each line of JSON has what rank 0 said and how it ended. The last line says
whether both end alike.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from measurements.probes import two_ranks

ELEMENTS, SUMS_BEFORE, PRODUCTS = 1 << 20, 2000, 200
TIME_LIMIT_S, LIMIT_S = 8, 60
HP_DELAY_S, HP_SECONDS = 6.0, 25.0


def rank_main() -> None:
    """Run as one rank, which the variables of `torchrun` name."""
    torch = importlib.import_module("torch")
    distributed = importlib.import_module("torch.distributed")
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    distributed.init_process_group("nccl", device_id=device, timeout=timedelta(seconds=TIME_LIMIT_S))
    values = torch.ones(ELEMENTS, device=device)
    square = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    number, last = 0, time.monotonic()
    try:
        while True:
            square @ square
            work = distributed.all_reduce(values * number, async_op=True)
            work.wait()
            torch.cuda.synchronize()
            number, last = number + 1, time.monotonic()
            if rank == 1 and number == SUMS_BEFORE:
                os.kill(os.getpid(), signal.SIGKILL)
    except Exception as error:
        after = time.monotonic() - last
        said = {"error": type(error).__name__, "text": str(error).splitlines()[0][:200], "after_s": round(after, 1)}
        print(json.dumps({"sums": number, **said}), flush=True)
    distributed.distributed_c10d._abort_process_group()
    begun = time.monotonic()
    for _ in range(PRODUCTS):
        square @ square
    torch.cuda.synchronize()
    print(json.dumps({"products": PRODUCTS, "seconds": round(time.monotonic() - begun, 3)}), flush=True)
    os._exit(0)


def run_ranks(environment: Mapping[str, str], beside: str) -> dict[str, Any]:
    """Run both ranks to their end; return and print what happened to rank 0."""
    found: dict[str, Any] = {"beside": beside}
    waiting = {**environment, "TORCH_NCCL_BLOCKING_WAIT": "1"}
    with two_ranks.ranks("measurements.probes.dead_rank", waiting, stderr=subprocess.PIPE) as (peer, dies):
        try:
            dies.wait(LIMIT_S)
            died = time.monotonic()
            out, errors = peer.communicate(timeout=LIMIT_S)
            found |= {"status": peer.returncode, "ended_after_s": round(time.monotonic() - died, 1)}
            for line in out.decode().splitlines():
                found |= json.loads(line) if line.startswith("{") else {}
            lines = errors.decode(errors="replace").splitlines()
            found["said"] = [line[:240] for line in lines if "ProcessGroupNCCL" in line or "NCCL error" in line][:4]
        except subprocess.TimeoutExpired:
            found["hangs"] = True
    print(json.dumps(found), flush=True)
    return found


def check() -> int:
    """Run the ranks without Orion and under it; return 0 if rank 0 ends alike."""
    plain = run_ranks(os.environ, "nobody, without Orion")
    with two_ranks.beside_hp(HP_DELAY_S, HP_SECONDS, patience=120) as hp:
        hooked = run_ranks(hp.environment, "hp")
    same = all(plain.get(what) == hooked.get(what) for what in ("status", "error", "products", "hangs"))
    at = {f"hp_p{rank}_ms": round(hp.delays[len(hp.delays) * rank // 100] * 1e3, 3) for rank in (50, 99)}
    print(json.dumps({"same": same, "hp_requests": len(hp.delays), **at}))
    return 0 if same else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(two_ranks.RANK_OPTION, action="store_true", help="run as one rank")
    if parser.parse_args().rank:
        rank_main()
    else:
        sys.exit(check())
