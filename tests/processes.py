"""What /proc says of processes that the tests did not start themselves, so that nobody here waits for them."""

from pathlib import Path


def is_running(process_id: int) -> bool:
    """Return whether there is such a process, one that has ended and was not yet waited for left out."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:  # gone before the file was opened, or before it was read
        return False


def children(process_id: int) -> set[int]:
    """Return the processes that a process has started, from any of its threads; none when it is gone."""
    try:
        lists = [thread / "children" for thread in Path(f"/proc/{process_id}/task").iterdir()]
        return {int(child) for each in lists for child in each.read_text().split()}
    except OSError:
        return set()
