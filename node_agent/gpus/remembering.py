"""Which GPUs there were, for a start at which the driver does not answer.

Clients go on under a dead driver's last words, and their slots' sockets must be served; so an agent that is started
while the driver is away serves the GPUs that were found last. They are unhealthy, and say why, until it answers. The
same holds for one GPU that does not answer while the others do: it is listed, and remembered, until the node boots. A
list from before that counts for nothing: no client is left of then, and GPUs may have been taken out.
"""

import logging
import os
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

from pydantic import BaseModel, ValidationError

from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import Gpu, GpuSource, GpusUnavailable, Health
from orion.node_agent.state.state_file import boot_id

_log = logging.getLogger(__name__)

_START_SECONDS = 10.0
""" So long a start waits for the driver. """


class Remembered(BaseModel):
    """The file."""

    boot: str
    """ Names the boot of the machine in which they were found. """
    gpus: list[Gpu]


class RememberingGpus:
    """A source whose GPUs are remembered.

    Args:
        source: what finds them.
        file: where they are kept.
    """

    def __init__(self, source: GpuSource, file: Path) -> None:
        self._source, self._file = source, file
        self._kept: list[Gpu] | None = None
        """ All GPUs that the driver has listed; None: it has not answered yet. """
        self._asking: Future[list[Gpu]] | None = None
        self._reported = False
        self.name = source.name

    def find(self) -> list[Gpu]:
        """Return the GPUs of this machine, with those that were here and are missing now at the end.

        Until the driver has answered once, they are those that were found last.

        Raises:
            GpusUnavailable: the driver does not answer any more, or it does not yet and was never here.
        """
        if self._kept is not None:
            found, before = self._source.find(), self._kept
        else:
            try:
                found = self._first()
            except GpusUnavailable as error:
                return self._before(error)
            before = self._read()
        here = {gpu.uuid for gpu in found}
        kept = [*found, *(gpu for gpu in before if gpu.uuid not in here)]
        if kept != self._kept:
            self._kept = kept
            self._write(kept)
        return list(kept)

    def _first(self) -> list[Gpu]:
        """Return what the source finds, unless its driver hangs: whoever starts would wait for it."""
        if self._asking is None:
            thread = AskingThread("find")
            self._asking = thread.submit(self._source.find)
            thread.close()
        try:
            return self._asking.result(_START_SECONDS)
        except NotYet:
            if self._asking.done():  # just now, or with an error of this very type
                self._asking = None
            raise GpusUnavailable(f"the driver has not answered for {_START_SECONDS:g} s") from None
        except Exception:
            self._asking = None
            raise

    def _before(self, error: GpusUnavailable) -> list[Gpu]:
        before = self._read()
        if not before:
            raise error
        if not self._reported:
            self._reported = True
            _log.warning("gpus: %s; those found last are served: %s", error, ", ".join(each.uuid for each in before))
        return before

    def memory_used_bytes(self, gpu: Gpu) -> int:
        """Return what the source says."""
        return self._source.memory_used_bytes(gpu)

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return what the source says."""
        return self._source.process_ids(gpu)

    def health(self, gpu: Gpu) -> Health:
        """Return what the source says."""
        return self._source.health(gpu)

    def mig_enabled(self, gpu: Gpu) -> bool:
        """Return what the source says."""
        return self._source.mig_enabled(gpu)

    def needs_restart(self) -> str:
        """Return what the source says."""
        return self._source.needs_restart()

    def close(self) -> None:
        """Ask no more."""
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
        new = self._file.with_suffix(".new")
        try:
            new.write_text(Remembered(boot=boot_id(), gpus=gpus).model_dump_json())
            os.replace(new, self._file)
        except OSError as error:
            _log.warning("gpus: a start without the driver would not know them: %s", error)
