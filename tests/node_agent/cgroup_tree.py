"""A copy of the cgroups of a process in a folder, with limits that a test chooses."""

from pathlib import Path

from orion.node_agent.processes.cgroup_folders import memory_path, split

MIB = 1 << 20
FILES = {False: ("memory.max", "memory.current"), True: ("memory.limit_in_bytes", "memory.usage_in_bytes")}


class CgroupTree:
    """The cgroup of a process, with the cgroup version of this machine, and one above it.

    Args:
        hierarchy: an empty folder for the cgroups of the machine.
        process: its id.
    """

    def __init__(self, hierarchy: Path, process: int | str = "self") -> None:
        self.hierarchy = hierarchy
        controller, path = memory_path(Path(f"/proc/{process}/cgroup").read_text())
        self.is_v1 = controller == "memory"
        self.folder = (hierarchy / controller) / split(path)[1]
        self.folder.mkdir(parents=True)
        self.name = f"/{split(path)[1]}"

    def has(self, *processes: int) -> None:
        """Say which processes are in the cgroup."""
        write(self.folder / "cgroup.procs", "".join(f"{each}\n" for each in processes))

    def allows(self, mib: int, used: int = 0, files: int = 0) -> None:
        """Set the limit, and what is used, of that by files in memory; in MiB."""
        limit, current = FILES[self.is_v1]
        prefix = "total_" if self.is_v1 else ""
        write(self.folder / "memory.stat", f"{prefix}inactive_file {files * MIB}\n{prefix}active_file 0\n")
        write(self.folder / current, f"{used * MIB}\n")
        write(self.folder / limit, f"{mib * MIB}\n")


def write(file: Path, text: str) -> None:
    """Write a file at once, so that nobody reads half of it."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text)
    new.replace(file)
