"""Prepares a program to become a client: makes a folder for the client, and the environment that preloads the hook.

ORION_ROOT names the client's folder, `<root>/run/<process id>`, where <root> is the agent's folder. Its subfolder
`slots` has a link for each GPU to the slot's directory, so a client finds only its own slots. The folder remains when
the client ends, because `orion run` has become the client and cannot clean up.
The next `orion run` removes the folders of ended processes that own no slot any more.
"""

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from orion.errors import Conflict

# ld.so splits LD_PRELOAD at these characters, and LD_LIBRARY_PATH at ':' and ';'. They cannot be escaped.
_SEPARATORS = frozenset(" :;\t\n")


def make_client_root(root: Path, process_id: int, slots: Mapping[str, str]) -> Path:
    """Make the folder that ORION_ROOT names for one client.

    Args:
        root: the agent's root.
        process_id: the client's.
        slots: the slot's directory by GPU UUID.
    """
    folder = root / "run" / str(process_id)
    shutil.rmtree(folder, ignore_errors=True)  # an ended process with the same ID may have left it
    (folder / "slots").mkdir(parents=True)
    for gpu, directory in slots.items():
        (folder / "slots" / gpu).symlink_to(directory)
    return folder


def sweep(root: Path, owners: Collection[int]) -> None:
    """Remove the folders of processes that have ended.

    Args:
        root: the agent's.
        owners: processes that own slots. If one has ended, processes that it has started use its folder.
    """
    kept = {str(each) for each in owners}
    for folder in (root / "run").glob("[0-9]*"):
        if folder.name not in kept and not Path("/proc", folder.name).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _prepended(path: Path, old: str | None, separators: str) -> str:
    if _SEPARATORS & set(str(path)):
        raise Conflict(
            f"the dynamic linker cannot load {path}, which has a space, colon or semicolon: install Orion elsewhere"
        )
    rest = [part for part in (old or "").replace(separators[1], separators[0]).split(separators[0]) if part]
    return separators[0].join([str(path), *(part for part in rest if part != str(path))])


def client_environment(
    old: Mapping[str, str], client_root: Path, hook: Path, simulated_driver: Path | None
) -> dict[str, str]:
    """Return the environment of a client: the old one with the hook added.

    Args:
        old: the environment to begin with.
        client_root: as made by `make_client_root`.
        hook: the library to preload, before those that are preloaded already.
        simulated_driver: the simulated libcuda.so.1, or None for the real one.
    """
    return preloading_environment(old, hook, simulated_driver) | {"ORION_ROOT": str(client_root)}


def preloading_environment(old: Mapping[str, str], hook: Path, simulated_driver: Path | None) -> dict[str, str]:
    """Return the environment of a process under the hook, also of one without an agent; see `client_environment`."""
    new = dict(old)
    new["LD_PRELOAD"] = _prepended(hook, old.get("LD_PRELOAD"), ": ")
    if simulated_driver is not None:
        new["LD_LIBRARY_PATH"] = _prepended(simulated_driver.parent, old.get("LD_LIBRARY_PATH"), ":;")
    return new
