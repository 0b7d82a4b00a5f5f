"""The root: the folder where this machine's agent and its clients meet.

This module does not read ORION_ROOT, which tells a *client* where its own slots are. A command that somebody types in
a shell under `orion run` means the machine's agent, not that shell's private folder.
"""

import os
from pathlib import Path

AGENT_SOCKET = "agent.sock"
AGENT_LOG = "agent.log"


def default_root() -> Path:
    """Return /run/orion for root, else a folder of the user's own."""
    if os.geteuid() == 0:
        return Path("/run/orion")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "orion" if runtime else Path(f"/tmp/orion-{os.getuid()}")
