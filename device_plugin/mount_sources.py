"""Folders on the node that containers mount: any user passes, nobody else writes."""

from pathlib import Path

from orion.device_plugin.errors import HostRefused


def make_folder(root: Path, folder: Path, what: str) -> None:
    """Make a folder below the agent's root, and those between, unless they are there.

    Raises:
        HostRefused: the disk does not let it; the text names `what`.
    """
    try:
        for each in (root, folder.parent.parent, folder.parent, folder):
            if not each.is_dir():
                each.mkdir(parents=True, exist_ok=True)
                each.chmod(0o755)
    except OSError as error:
        raise HostRefused(f"{what} {folder} cannot be made: {error}") from None
