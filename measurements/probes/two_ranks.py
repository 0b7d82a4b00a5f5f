"""What the probes of two ranks share: the processes of the ranks, and an hp that serves on GPU 0 beside them."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orion.bench.arrivals import poisson_arrivals
from orion.bench.managed import ManagedGPU
from orion.bench.workers.crew import Crew
from testbed.ports import free_port

RANKS = 2
RANK_OPTION = "--rank"
""" Tells a probe to run as one rank, which the variables of `torchrun` name. """
_HP_RATE = 80.0


@contextlib.contextmanager
def ranks(
    module: str, environment: Mapping[str, str], stderr: int | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start both ranks of a probe, whose output can be read; kill them at the end."""
    shared = {**environment, "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    words = [sys.executable, "-m", module, RANK_OPTION]
    running = [
        subprocess.Popen(words, env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=stderr)
        for rank in range(RANKS)
    ]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


@dataclass
class Served:
    """What be's processes need beside hp, and how long hp's requests took, once the block has ended."""

    environment: dict[str, str]
    """ Of processes with a slot on each GPU. """
    delays: list[float] = field(default_factory=list)
    """ Seconds from each arrival to the end, ascending. """


@contextlib.contextmanager
def beside_hp(after: float, seconds: float, patience: float) -> Iterator[Served]:
    """Let a ResNet-50 serve random requests on GPU 0 under Orion, during the block and until they have ended.

    Args:
        after: seconds until the first request; the ranks import PyTorch meanwhile.
        seconds: how long requests arrive.
        patience: seconds to wait for the last of them after the block.
    """
    with contextlib.ExitStack() as stack:
        managed = stack.enter_context(ManagedGPU(dict(os.environ), simulated=False))
        managed.set_policy(policy="orion")
        crew = stack.enter_context(Crew())
        one = {**managed.client_environment("hp"), "CUDA_VISIBLE_DEVICES": managed.gpu.uuid}
        hp = crew.start("hp", "resnet50-inference", {"batch": 64, "mode": "graph"}, one)
        crew.ready(hp)
        arrivals = poisson_arrivals(_HP_RATE, seconds, seed=1)
        hp.command(do="serve", begin=time.monotonic() + after, arrivals=arrivals)
        served = Served(managed.client_environment("be", all_gpus=True))
        yield served
        (reply,) = crew.gather(hp, seconds=patience)
        served.delays = sorted(end - due for end, due in zip(reply["ends"], arrivals, strict=True))
