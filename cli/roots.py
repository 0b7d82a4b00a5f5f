"""The root: the folder where this machine's agent and its clients meet.

This module does not read ORION_ROOT, which tells a *client* where its own slots are. A command that somebody types in
a shell under `orion run` means the machine's agent, not that shell's private folder.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

AGENT_SOCKET = "agent.sock"
AGENT_LOG = "agent.log"


def _folder(text: str) -> Path:
    # The path "" is the current folder, and so is that of a shell's variable that is not set.
    if not text:
        raise typer.BadParameter("it is empty: give a folder")
    return Path(text)


Root = Annotated[
    Path | None,
    typer.Option(parser=_folder, metavar="PATH", help="The agent's folder.", show_default="/run/orion as root"),
]


def default_root() -> Path:
    """Return /run/orion for root, else a folder of the user's own."""
    if os.geteuid() == 0:
        return Path("/run/orion")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "orion" if runtime else Path(f"/tmp/orion-{os.getuid()}")
