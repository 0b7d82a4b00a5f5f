"""Removing what earlier versions of the hook left on the node, once no container mounts it any more."""

import asyncio
import logging
from pathlib import Path

from orion.device_plugin import checkpoint
from orion.device_plugin.installing import HookFolder
from orion.device_plugin.snapshot import Unreadable

_PERIOD_SECONDS = 600.0

_log = logging.getLogger(__name__)


async def sweep_for_ever(files: HookFolder, checkpoint_file: Path) -> None:
    """Sweep again and again; meanwhile keep this version from others' brooms."""
    while True:
        await asyncio.to_thread(sweep, files, checkpoint_file)
        await asyncio.sleep(_PERIOD_SECONDS)


def sweep(files: HookFolder, checkpoint_file: Path) -> None:
    """Remove what no allocation names; nothing where the kubelet's checkpoint cannot be understood."""
    files.touch()
    try:
        allocations = checkpoint.read(checkpoint_file)
    except Unreadable as error:
        _log.info("hook: versions of before stay: %s", error)
        return
    for folder in files.sweep({source for each in allocations for source in each.sources}):
        _log.info("hook: removed %s, which no container mounts any more", folder)
