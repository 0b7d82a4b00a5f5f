"""`orion stop`: end the agent of a root, which is the agent's folder."""

import os
import select
import signal
from pathlib import Path

from orion.cli import roots
from orion.errors import Conflict, NotFound, Unavailable

END_SECONDS = 20.0


def stop(
    root: roots.Root = None,
) -> None:
    """End the agent that [bold]orion run[/bold] started. Programs continue under their current grants.

    The next [bold]orion run[/bold] starts a new agent, which takes running programs over.
    """
    from orion.cli import agents
    from orion.node_agent.api.client import NoAgent

    place = (root or roots.default_root()).absolute()
    try:
        gpus = list(agents.ask(place).gpus)
    except NoAgent as error:
        if error.forbidden:
            raise
        if not error.listens:
            raise NotFound(f"no agent runs at {place}, so nothing was stopped") from error
        gpus = []
    clients = [each for gpu in gpus for slot in gpu.slots for each in slot.clients]
    process_id = _listener(place)
    _end(process_id, place)
    print(f"stopped the agent at {place} (process {process_id})")
    if clients:
        names = ", ".join(
            f"{number} ({command})" for number, command in {c.process_id: c.command for c in clients}.items()
        )
        print(f"these processes continue under their current grants: {names}")


def _listener(root: Path) -> int:
    from orion.node_agent.api.address import listening_process

    try:
        return listening_process(root)
    except OSError as error:
        raise Unavailable(f"the agent at {root} does not answer ({error.strerror}): look at its log") from error


def _end(process_id: int, root: Path) -> None:
    try:
        handle = os.pidfd_open(process_id)
    except OSError as error:
        raise Conflict(
            f"the agent at {root} cannot be ended from here ({error.strerror}): end it in its own container"
        ) from error
    try:
        signal.pidfd_send_signal(handle, signal.SIGCONT)  # a stopped process would not take SIGTERM
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        ended, _, _ = select.select([handle], [], [], END_SECONDS)
    except PermissionError as error:
        raise Conflict(
            f"the agent at {root} (process {process_id}) belongs to another user: run this as that user or as root"
        ) from error
    finally:
        os.close(handle)
    if not ended:
        raise Unavailable(
            f"the agent at {root} (process {process_id}) ignores SIGTERM for {END_SECONDS:g} s: look at its log"
        )
