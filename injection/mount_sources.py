"""Makes folders on the node that containers mount: every user may enter them, only their owner may write."""

import contextlib
from pathlib import Path

from orion.errors import Exhausted
from orion.hook import KNOWN_LIMIT
from orion.injection.slots import Slot


def make_folder(root: Path, folder: Path, what: str) -> None:
    """Make a folder below the agent's root directory, and the missing folders between.

    Raises:
        Exhausted: the file system rejects the folder. The error's text begins with `what`.
    """
    if folder.is_dir():
        return
    try:
        for each in (root, folder.parent.parent, folder.parent, folder):
            if not each.is_dir():
                each.mkdir(parents=True, exist_ok=True)
                each.chmod(0o755)
    except OSError as error:
        raise Exhausted(f"{what} {folder} cannot be made: {error}") from None


def slot_directory(root: Path, slot: Slot) -> Path:
    """Return the directory where the agent serves a slot; `orion.node_agent.state.root` defines the same path."""
    return root / "gpus" / slot.gpu / slot.name


def make_slot_directory(root: Path, slot: Slot) -> None:
    """Make a slot's directory if the agent has not made it yet: every user may enter it, only its owner may write.

    Raises:
        Exhausted: the file system rejects the directory.
    """
    make_folder(root, slot_directory(root, slot), "the slot's directory")


def forget_known_limit(root: Path, slot: Slot) -> None:
    """Remove the limit of memory that the agent wrote for an earlier container of the slot.

    Call this when a slot gets another container, which would keep to that limit while no agent answers.
    """
    with contextlib.suppress(OSError):
        (slot_directory(root, slot) / KNOWN_LIMIT).unlink()
