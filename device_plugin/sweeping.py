"""Removes the hook's files of earlier versions once no allocation in the kubelet's checkpoint mounts them."""

import asyncio
import logging
from pathlib import Path

from orion.device_plugin import checkpoint
from orion.errors import Unreadable
from orion.injection.installing import HookFolder

_SWEEP_SECONDS = 600.0

_log = logging.getLogger(__name__)


async def sweep_for_ever(files: HookFolder, checkpoint_file: Path) -> None:
    """Sweep periodically, and mark this version as in use so that other plugins keep it."""
    while True:
        await asyncio.to_thread(sweep, files, checkpoint_file)
        await asyncio.sleep(_SWEEP_SECONDS)


def sweep(files: HookFolder, checkpoint_file: Path) -> None:
    """Remove the folders that no allocation mounts. Remove nothing if the kubelet's checkpoint is unreadable."""
    files.touch()
    try:
        allocations = checkpoint.read(checkpoint_file)
    except Unreadable as error:
        _log.info("hook: older versions are kept: %s", error)
        return
    for folder in files.sweep({source for each in allocations for source in each.sources}):
        _log.info("hook: removed %s, which no container mounts any more", folder)
