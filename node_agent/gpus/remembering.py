"""Keeps the list of GPUs in a file, for a start of the agent at which the driver does not answer.

Clients continue while the driver does not answer NVML, and the agent must serve their slots' sockets. So an agent that
starts without the driver serves the GPUs that were found last. These are unhealthy, with the reason, until the driver
answers. If only one GPU does not answer, it also stays in the list, until the node reboots. The agent ignores a list
from before the boot: no client of that time still runs, and GPUs may have been removed.
"""

import logging
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

from pydantic import BaseModel, ValidationError

from orion.atomic_files import replace_file
from orion.errors import Unavailable
from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import Gpu, GpuSource, Health
from orion.node_agent.state.state_file import boot_id

_log = logging.getLogger(__name__)

_START_SECONDS = 10.0
""" How long a start waits for the driver. """


class Remembered(BaseModel):
    """The content of the file."""

    boot: str
    """ Identifies the machine's boot during which the GPUs were found. """
    gpus: list[Gpu]


class RememberingGpus:
    """A source of GPUs that keeps its list in a file.

    Args:
        source: finds the GPUs.
        file: keeps the list.
    """

    def __init__(self, source: GpuSource, file: Path) -> None:
        self._source, self._file = source, file
        self._kept: list[Gpu] | None = None
        """ All GPUs that the driver has listed; None: it has not answered yet. """
        self._asking: Future[list[Gpu]] | None = None
        self._reported = False
        self.name = source.name

    def find(self) -> list[Gpu]:
        """Return the GPUs of this machine; GPUs that were found earlier and are missing now come last.

        Until the driver has answered once, this is the list in the file.

        Raises:
            Unavailable: the driver does not answer any more; or it has not answered yet and the file has no list.
        """
        if self._kept is not None:
            found, before = self._source.find(), self._kept
        else:
            try:
                found = self._first()
            except Unavailable as error:
                return self._before(error)
            before = self._read()
        here = {gpu.uuid for gpu in found}
        kept = [*found, *(gpu for gpu in before if gpu.uuid not in here)]
        if kept != self._kept:
            self._kept = kept
            self._write(kept)
        return list(kept)

    def _first(self) -> list[Gpu]:
        """Return what the source finds; give up after a time limit, because the agent's start waits."""
        if self._asking is None:
            thread = AskingThread("find")
            self._asking = thread.submit(self._source.find)
            thread.close()
        try:
            return self._asking.result(_START_SECONDS)
        except NotYet:
            if self._asking.done():  # it ended just now, or raised a TimeoutError itself
                self._asking = None
            raise Unavailable(f"the driver has not answered for {_START_SECONDS:g} s") from None
        except Exception:
            self._asking = None
            raise

    def _before(self, error: Unavailable) -> list[Gpu]:
        before = self._read()
        if not before:
            raise error
        if not self._reported:
            self._reported = True
            _log.warning(
                "gpus: %s; the agent serves the GPUs found last: %s", error, ", ".join(each.uuid for each in before)
            )
        return before

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """As in the source."""
        return self._source.memory_used_bytes(gpu)

    def memory_free_bytes(self, gpu: Gpu) -> int | None:
        """As in the source."""
        return self._source.memory_free_bytes(gpu)

    def process_ids(self, gpu: Gpu) -> list[int]:
        """As in the source."""
        return self._source.process_ids(gpu)

    def memory_of_processes(self, gpu: Gpu) -> dict[int, int | None] | None:
        """As in the source."""
        return self._source.memory_of_processes(gpu)

    def health(self, gpu: Gpu) -> Health:
        """As in the source."""
        return self._source.health(gpu)

    def mig_enabled(self, gpu: Gpu) -> bool:
        """As in the source."""
        return self._source.mig_enabled(gpu)

    def needs_restart(self) -> str:
        """As in the source."""
        return self._source.needs_restart()

    def close(self) -> None:
        """Release the source."""
        self._source.close()

    def _read(self) -> list[Gpu]:
        try:
            remembered = Remembered.model_validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValidationError) as error:
            _log.warning("gpus: %s cannot be read: %s", self._file, str(error).splitlines()[0])
            return []
        return remembered.gpus if remembered.boot == boot_id() else []

    def _write(self, gpus: list[Gpu]) -> None:
        try:
            text = Remembered(boot=boot_id(), gpus=gpus).model_dump_json()
            replace_file(self._file, text.encode(), alone=True)
        except OSError as error:
            _log.warning(
                "gpus: the list cannot be saved, so a start without the driver would not know the GPUs: %s", error
            )
