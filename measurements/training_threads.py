"""Measures training in client threads: does hp's backward pass wait for be, and are the losses those of training alone?

    LD_PRELOAD="$(python -c 'import orion.hook; print(orion.hook.library())')" \
      python -m measurements.training_threads --output training_threads.json

torch runs backward passes in one thread for each GPU, for all clients. A client's block turns that off, and the case
"torch's thread" turns it on again. The cases run in turns. It needs torch and a GPU.
"""

import argparse
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from orion.bench import raw_data
from orion.bench.commandline import counted, positive, say
from orion.inprocess import Scheduler

SWITCH_SECONDS = 5e-5  # Python then lets hp's thread run soon (docs/threads.md)
SKIPPED_STEPS = 5
COMPARED_STEPS = 12


@dataclass(frozen=True)
class Training:
    """A chain of square layers, trained by gradient descent; `pause_s` is the time between two steps."""

    layers: int
    width: int
    rows: int
    pause_s: float


ROLES = ("be", "hp")
TRAININGS = {"be": Training(8, 8192, 4096, 0.0), "hp": Training(12, 1024, 64, 0.01)}
CASES = {
    "hp alone": (("hp",), False),
    "be alone": (("be",), False),
    "together, own thread": (ROLES, False),
    "together, torch's thread": (ROLES, True),
}
""" Which clients train, and whether torch's thread runs their backward passes. """


@dataclass
class Steps:
    """The losses and the seconds of a client's steps."""

    losses: list[float]
    seconds: list[float]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, type=Path, help="file of raw data (.json or .json.gz)")
    parser.add_argument("--turns", type=counted, default=4, help="how often each case runs (default: 4)")
    parser.add_argument("--seconds", type=positive, default=3.0, help="time of each run (default: 3)")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_SECONDS)
    record = {**raw_data.header("measurements.training_threads"), "torch": torch.__version__, "rows": []}
    _train(ROLES, False, options.seconds)  # compiles and loads
    for turn in range(options.turns):
        for case, (roles, torchs_thread) in CASES.items():
            done = _train(roles, torchs_thread, options.seconds)
            row = {"turn": turn, "case": case, **{role: _figures(steps) for role, steps in done.items()}}
            record["rows"].append(row)
            say(f"{turn}  {case}: {', '.join(f'{role} {_figures(steps)}' for role, steps in done.items())}")
    record["losses_alike"] = _losses_alike(options.turns)
    say(f"losses as alone, by run and role: {record['losses_alike']}")
    raw_data.write(options.output, record)


def _losses_alike(runs: int) -> list[dict[str, bool]]:
    alone = {role: _train((role,), False, None)[role].losses for role in ROLES}
    together = [_train(ROLES, False, None) for _ in range(runs)]
    return [{role: steps.losses == alone[role] for role, steps in each.items()} for each in together]


def _train(roles: tuple[str, ...], torchs_thread: bool, seconds: float | None) -> dict[str, Steps]:
    """Train for some seconds, or for COMPARED_STEPS if `seconds` is None."""
    over, done = threading.Event(), dict[str, Steps]()
    most = COMPARED_STEPS if seconds is None else None
    with Scheduler(clients=ROLES, policy="gate") as scheduler:
        arguments = [(scheduler, role, torchs_thread, over, most, done) for role in roles]
        threads = [threading.Thread(target=_client, args=each) for each in arguments]
        for thread in threads:
            thread.start()
        if seconds is not None:
            time.sleep(seconds)
            over.set()
        for thread in threads:
            thread.join()
    return done


def _client(
    scheduler: Scheduler,
    role: str,
    torchs_thread: bool,
    over: threading.Event,
    most: int | None,
    done: dict[str, Steps],
) -> None:
    training, losses, seconds = TRAININGS[role], list[Any](), list[float]()
    with scheduler.client(ROLES.index(role)), torch.autograd.set_multithreading_enabled(torchs_thread):
        weights, generator = _weights(training)
        while not over.is_set() and len(losses) != most:
            began = time.monotonic()
            losses.append(_step(weights, generator, training))
            torch.cuda.synchronize()  # waits for this client's work only
            seconds.append(time.monotonic() - began)
            time.sleep(training.pause_s)
        done[role] = Steps([float(loss) for loss in losses], seconds)


def _weights(training: Training) -> tuple[list[Any], Any]:
    generator = torch.Generator(device="cuda").manual_seed(1)
    shape, deviation = (training.width, training.width), training.width**-0.5
    empty = [torch.empty(*shape, device="cuda") for _ in range(training.layers)]
    return [each.normal_(0, deviation, generator=generator).requires_grad_() for each in empty], generator


def _step(weights: list[Any], generator: Any, training: Training) -> Any:
    values = torch.empty(training.rows, training.width, device="cuda").normal_(generator=generator)
    for weight in weights:
        values = torch.relu(values @ weight)
    loss = values.square().mean()
    loss.backward()
    with torch.no_grad():
        for weight in weights:
            weight -= 0.1 * weight.grad
            weight.grad = None
    return loss.detach()


def _figures(steps: Steps) -> dict[str, float]:
    """Return the steps' number, and the median and percentiles of their times in milliseconds."""
    milliseconds = [1e3 * each for each in steps.seconds[SKIPPED_STEPS:]]
    if len(milliseconds) < 2:
        return {"steps": len(steps.seconds)}
    cuts = quantiles(milliseconds, n=100)
    found = {"p50_ms": median(milliseconds), "p90_ms": cuts[89], "p99_ms": cuts[98]}
    return {"steps": len(steps.seconds), **{name: round(value, 3) for name, value in found.items()}}


if __name__ == "__main__":
    main()
