"""Which temporary folders a process of a benchmark uses."""

from pathlib import Path


def folders(process_id: int) -> set[Path]:
    """Return the temporary folders that the arguments and the environment of a process name."""
    strings = [Path(f"/proc/{process_id}/{name}").read_bytes().decode().split("\0") for name in ("cmdline", "environ")]
    named = [word.removeprefix("ORION_SIM_STATE=") for word in (*strings[0], *strings[1])]
    return {Path(word) for word in named if word.startswith(("/tmp/orion-", "/dev/shm/orion-"))}
