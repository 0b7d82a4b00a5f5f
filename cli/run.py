"""`orion run`: start a program as a client.

The command makes the slots and the environment, then becomes the program (exec). So signals, job control, exit status
and memory are the program's own, and no parent process can die before it. The agent closes the slots when the process
ends.
"""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from orion.cli import gemini_options, parking_options, roots, sizes
from orion.cli import policy_options as options
from orion.cli.added_options import adds
from orion.cli.errors import ProgramFailed
from orion.cli.grpc_logging import VERBOSITY
from orion.errors import Conflict, Invalid

if TYPE_CHECKING:
    from orion.node_agent.api import agent_pb2


class Priority(StrEnum):
    """A client's priority."""

    HP = "hp"
    BE = "be"


def _part(value: float | None) -> float | None:
    # Not by `min` and `max`: click lets NaN pass.
    if value is not None and not 0.001 <= value <= 1:
        raise typer.BadParameter(f"{value:g} is not a part of the GPU's time: give a number from 0.001 to 1")
    return value


Command = Annotated[list[str], typer.Argument(help="The program and its arguments, after --.", metavar="CMD")]
Memory = Annotated[
    int | None,
    typer.Option(
        parser=sizes.of_option,
        metavar="SIZE",
        help="Device memory that all its processes may hold together, such as 8GiB.",
        show_default="no limit",
    ),
]
Gpu = Annotated[
    str,
    typer.Option(metavar="UUID|INDEX|all", help="The GPU to use. If you name one, the program sees only that one."),
]
Request = Annotated[
    float | None,
    typer.Option(
        callback=_part,
        metavar="PART",
        help="be: the part of the GPU's time that the program gets at least, 0.001 to 1, of what hp leaves.",
        show_default="none",
    ),
]
Limit = Annotated[
    float | None,
    typer.Option(
        callback=_part,
        metavar="PART",
        help="The part of the GPU's time that the program gets at most, 0.001 to 1.",
        show_default="no limit",
    ),
]
Profile = Annotated[
    Path | None,
    typer.Option(metavar="FILE.yaml", help="A profile of the program's kernels, made by `orion profile kernels`."),
]


@options.takes_policy(options.BY_HP)
@adds("gemini", gemini_options.OF_THE_COMMAND)
@adds("sharing", parking_options.OF_RUN)
def run(
    command: Command,
    *,
    priority: Annotated[
        Priority | None, typer.Option(help="hp: latency matters. be: runs while hp is idle; the default with --id.")
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            "--id",
            metavar="NAME",
            help="be: the id in the agent's resource file (`orion agent --resource-config`) whose rule decides "
            "request, limit and memory.",
        ),
    ] = "",
    gemini: dict[str, Any],
    memory: Memory = None,
    sharing: dict[str, Any],
    gpu: Gpu = "all",
    request: Request = None,
    limit: Limit = None,
    changes: dict[str, Any],
    profile: Profile = None,
    root: roots.Root = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Run on the simulated GPU.")] = False,
) -> None:
    """Run a program under the hook. Starts the agent if none runs.

    [bold]orion run --priority hp -- python serve.py[/bold]

    [bold]orion run --priority be --memory 8GiB -- python train.py[/bold]

    hp decides how the GPU is shared: --policy, --max-slowdown and --sharing-cost need --priority hp. They stay
    in force until you change them ([bold]orion policy[/bold]).
    """  # fmt: skip
    from orion import hook

    with _silent_grpc():
        from orion.cli import agents, launching, resource_rules, slot_choice

    rule = gemini_options.program_id(gemini, rule)
    priority = _priority(priority, rule, {"memory": memory, "request": request, "limit": limit})
    _check_options(priority, request, limit, changes)
    program = _found(command[0])
    shares = parking_options.for_run(sharing, priority is Priority.HP, memory, bool(rule))
    rows, limits = _rows(profile), slot_choice.SlotLimits(memory or 0, request or 0.0, limit or 0.0, rule, shares)
    place = (root or roots.default_root()).absolute()
    library = hook.library()
    if rule:
        gpus, are_all = resource_rules.choose_gpus(place, gpu, rule)
    else:
        gpus, are_all = slot_choice.choose_gpus(agents.find_or_start(place, simulated), gpu), gpu == "all"
    on_simulated = _are_simulated(gpus, simulated, place)
    client_root = slot_choice.take_slots(place, gpus, priority.value, limits, changes, rows)
    driver = hook.simulated_driver() if on_simulated else None
    environment = launching.client_environment(os.environ, client_root, library, driver)
    environment |= hook.role_environment(priority.value)
    if not are_all or gpu != "all":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(each.uuid for each in gpus)
    _become(program, command, environment)


def _found(program: str) -> str:
    """Return the path of a program; refuse one that does not exist or is not executable, with the status of a shell."""
    if path := shutil.which(program):
        return path
    there = shutil.which(program, os.F_OK) or (program if os.sep in program and os.path.isdir(program) else None)
    if there is None:
        raise ProgramFailed(f"{program}: there is no such program; check its name and PATH", 127)
    why = "it is a folder" if os.path.isdir(there) else "this user may not execute it (chmod +x)"
    raise ProgramFailed(f"{there} cannot be run: {why}", 126)


def _rows(profile: Path | None) -> "list[agent_pb2.ProfileRow]":
    if profile is None:
        return []
    from orion.cli.profiling import loading

    return loading.read_rows(profile)


def _priority(given: Priority | None, rule: str, limits: dict[str, object]) -> Priority:
    """Return the program's priority; refuse options that the rule of an id decides."""
    if not rule:
        if given is None:
            raise Invalid("--priority is missing: give hp or be")
        return given
    if given is Priority.HP:
        raise Invalid("--id is for --priority be: the ids of a resource file have no priority")
    for name, value in limits.items():
        if value is not None:
            raise Invalid(f"--{name} cannot be given with --id: change the resource file")
    return Priority.BE


def _check_options(priority: Priority, request: float | None, limit: float | None, changes: dict[str, Any]) -> None:
    """Refuse options that need the other priority, and those that contradict each other."""
    if priority is Priority.HP and request is not None:
        raise Invalid("--request of hp is a part of the GPU's policy: give it to `orion policy set`")
    if request is not None and limit is not None and request > limit:
        raise Invalid(f"--request {request:g} is above --limit {limit:g}: lower the request or raise the limit")
    if priority is Priority.BE and changes:
        flag = f"--{next(iter(changes)).replace('_', '-')}"
        raise Invalid(f"{flag} is a decision of hp: give it with --priority hp, or to `orion policy set`")


def _are_simulated(gpus: "list[agent_pb2.Gpu]", simulated: bool, root: Path) -> bool:
    """Return whether these GPUs are simulated; refuse a real agent for a simulated client."""
    if simulated and not all(gpu.simulated for gpu in gpus):
        raise Conflict(f"the agent at {root} manages real GPUs: with --simulated, give another --root")
    return any(gpu.simulated for gpu in gpus)


@contextlib.contextmanager
def _silent_grpc() -> Iterator[None]:
    """Prevent gRPC's messages for the life of this process; this works only if the block imports gRPC.

    While a process becomes another program, the kernel denies it new threads (fs/exec.c: `in_exec`). gRPC may start a
    thread at any time, and would print a line about the failure. Errors that matter come as exceptions. gRPC reads the
    variable at its import. The program may use gRPC too, so it must not inherit the variable.
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
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program inherits what is ignored
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, command, environment)
    except OSError as error:
        raise ProgramFailed(f"{program} cannot be run: {error.strerror}", 126) from error
