"""What /proc says about processes that the tests did not start themselves and so cannot wait for."""

from pathlib import Path


def is_running(process_id: int) -> bool:
    """Return whether a process exists; one that has ended and was not yet waited for does not count."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:  # it ended before its file was opened or read
        return False


def children(process_id: int) -> set[int]:
    """Return the processes that a process has started, from any of its threads; empty if it has ended."""
    try:
        lists = [thread / "children" for thread in Path(f"/proc/{process_id}/task").iterdir()]
        return {int(child) for each in lists for child in each.read_text().split()}
    except OSError:
        return set()
