"""A program whose steps a library's trainer makes, such as Lightning's or Transformers'."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.options import Options
from orion.bench.workloads.programs.driven import DrivenLoop

OptionsT = TypeVar("OptionsT", bound=Options)


class TrainerProgram(OnGPU[OptionsT], Generic[OptionsT]):
    """Runs the trainer's loop in a thread; each step lets it take one batch. `_build` sets `_run`."""

    _run: Callable[[Iterator[None]], object]

    def _warm_up(self) -> None:
        self._loop = DrivenLoop(self._run)

    def step(self) -> None:
        """Let the trainer make one step."""
        self._loop.step()
        self.trace.mark()
        self._queue_step()
