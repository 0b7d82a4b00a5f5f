"""`orion run`: start a program as a client.

The command makes the slots and the environment, then becomes the program (exec): signals, job control, exit status and
memory are the program's own, and there is no parent that could die before it. The agent closes the slots when the
process has ended, however it ends.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from orion.cli import policy_options as options
from orion.cli import roots, sizes
from orion.cli.errors import Refused

if TYPE_CHECKING:
    from orion.node_agent.api import agent_pb2

VERBOSITY = "GRPC_VERBOSITY"


class Priority(StrEnum):
    """Which of the two a client is."""

    HP = "hp"
    BE = "be"


def _size(text: str) -> int:
    try:
        return sizes.parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Command = Annotated[list[str], typer.Argument(help="The program and its arguments, after --.", metavar="CMD")]
Memory = Annotated[
    int | None,
    typer.Option(
        parser=_size,
        metavar="SIZE",
        help="Device memory that each process may have, such as 8GiB.",
        show_default="no limit",
    ),
]
Gpu = Annotated[
    str,
    typer.Option(metavar="UUID|INDEX|all", help="The GPU to sit on; with one of several, the program sees it alone."),
]
Weight = Annotated[
    float | None,
    typer.Option(min=0.01, max=100, help="be: its part of what be gets is in proportion to this.", show_default="1"),
]
Profile = Annotated[
    Path | None,
    typer.Option(metavar="FILE.yaml", help="What is known of the program's kernels: see `orion profile kernels`."),
]


def run(
    command: Command,
    priority: Annotated[Priority, typer.Option(help="hp: latency matters. be: gets the time that hp leaves.")],
    memory: Memory = None,
    gpu: Gpu = "all",
    weight: Weight = None,
    policy: options.Policy = None,
    max_slowdown: options.MaxSlowdown = None,
    sharing_cost: options.SharingCost = None,
    minimum_share: options.MinimumShare = None,
    profile: Profile = None,
    root: Annotated[Path | None, typer.Option(help="The agent's folder.", show_default="/run/orion as root")] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Run on the simulated GPU.")] = False,
) -> None:
    """Run a program under the hook; starts the agent if none runs.

    [bold]orion run --priority hp -- python serve.py[/bold]

    [bold]orion run --priority be --memory 8GiB -- python train.py[/bold]

    How its GPU is shared is hp's to say: --policy, --max-slowdown, --sharing-cost and --minimum-share go with
    --priority hp and stay until they are changed ([bold]orion policy[/bold]).
    """  # fmt: skip
    from orion import hook

    with _silent_grpc():
        from orion.cli import agents, launching, seating

    changes = options.given(
        policy=policy, max_slowdown=max_slowdown, sharing_cost=sharing_cost, minimum_share=minimum_share
    )
    _belongs(priority, weight, changes)
    program = shutil.which(command[0])
    if program is None:
        raise Refused(f"{command[0]}: there is no such program", status=127)  # as a shell does
    rows = _rows(profile)
    place = (root or roots.default_root()).absolute()
    library = hook.library()
    snapshot = agents.find_or_start(place, simulated)
    gpus = seating.choose_gpus(snapshot, gpu)
    on_simulated = _kind(gpus, simulated, place)
    client_root = seating.take_seats(place, gpus, priority.value, memory or 0, weight or 0.0, changes, rows)
    driver = hook.simulated_driver() if on_simulated else None
    environment = launching.client_environment(os.environ, client_root, library, driver)
    if gpu != "all":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(each.uuid for each in gpus)
    _become(program, command, environment)


def _rows(profile: Path | None) -> "list[agent_pb2.ProfileRow]":
    if profile is None:
        return []
    from orion.cli.profiling import loading

    return loading.read_rows(profile)


def _belongs(priority: Priority, weight: float | None, changes: dict[str, Any]) -> None:
    """Refuse options that are the other priority's."""
    if priority is Priority.HP and weight is not None:
        raise Refused("--weight divides what be gets; it goes with --priority be", status=2)
    if priority is Priority.BE and changes:
        flag = f"--{next(iter(changes)).replace('_', '-')}"
        raise Refused(f"{flag} is hp's to say: it goes with --priority hp, or with `orion policy set`", status=2)


def _kind(gpus: "list[agent_pb2.Gpu]", simulated: bool, root: Path) -> bool:
    """Return whether these GPUs are simulated; refuse a real agent for a simulated client."""
    if simulated and not all(gpu.simulated for gpu in gpus):
        raise Refused(f"the agent at {root} manages real GPUs; give --simulated another --root")
    return any(gpu.simulated for gpu in gpus)


@contextlib.contextmanager
def _silent_grpc() -> Iterator[None]:
    """Have gRPC imported within a block, and print nothing of its own from then on.

    While a process becomes another program the kernel refuses it new threads (fs/exec.c: `in_exec`). gRPC makes
    threads when it likes, and would print a line about that; what matters comes as exceptions. It reads the variable
    when it is imported, and the program, which may use gRPC too, must not inherit it.
    """
    if VERBOSITY in os.environ:
        yield
        return
    os.environ[VERBOSITY] = "NONE"
    try:
        yield
    finally:
        del os.environ[VERBOSITY]


def _become(program: str, command: list[str], environment: dict[str, str]) -> NoReturn:
    sys.stdout.flush()
    try:
        os.execve(program, command, environment)
    except OSError as error:
        raise Refused(f"{program} cannot be run: {error.strerror}", status=126) from error
