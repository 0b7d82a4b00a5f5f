"""The GPUs that an agent serves, and the state file, from which the next agent learns of their slots and clients."""

from collections.abc import Iterable

from orion.errors import NotFound
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.state.state_file import StateFile


class SavedGpus:
    """The served GPUs, which are saved in a file.

    Args:
        file: the state file.
    """

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self.by_uuid: dict[str, ServedGpu] = {}

    def find(self, uuid: str) -> ServedGpu:
        """Return a GPU.

        Raises:
            NotFound: this machine has no such GPU.
        """
        try:
            return self.by_uuid[uuid]
        except KeyError:
            there = ", ".join(self.by_uuid) or "none"
            raise NotFound(f"there is no GPU {uuid!r} here; the GPUs are: {there}") from None

    def save(self, gpu: ServedGpu) -> None:
        """Write the state file after a change of a GPU."""
        gpu.unsaved = True
        self.save_changed()

    def save_some(self, uuids: Iterable[str]) -> None:
        """Write the state file after a change of these GPUs."""
        for uuid in uuids:
            self.by_uuid[uuid].unsaved = True
        self.save_changed()

    def save_every(self) -> None:
        """Write the state file after a change of all GPUs."""
        self.save_some(self.by_uuid)

    def save_changed(self) -> None:
        """Write the state file with the changes of all GPUs; if that fails, the next check tries again."""
        if not self._file.write([gpu.current_text() for gpu in self.by_uuid.values()]):
            for gpu in self.by_uuid.values():
                gpu.unsaved = True
