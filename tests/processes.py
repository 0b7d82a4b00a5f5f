"""Whether a process runs, asked from outside: of strangers' children, which nobody here waits for."""

from pathlib import Path


def is_running(process_id: int) -> bool:
    """Return whether there is such a process, one that has ended and was not yet waited for left out."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:  # gone before the file was opened, or before it was read
        return False
