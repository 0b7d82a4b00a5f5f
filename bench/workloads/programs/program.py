"""The base class of the programs that do not use torch: they choose their streams, and nothing traces them."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from orion.bench.workload import NoTrace, Place, Trace
from orion.bench.workloads import turns
from orion.bench.workloads.options import Options
from orion.bench.workloads.programs.driven import refuse_threads
from orion.bench.workloads.timing import WARM_UP, step_milliseconds

OptionsT = TypeVar("OptionsT", bound=Options)


class Program(ABC, Generic[OptionsT]):
    """A program that is alone in its process; the constructor warms it up."""

    unit = "steps"
    amount = 1.0

    def __init__(self, options: OptionsT, place: Place) -> None:
        """Build, warm up, measure the time of a step.

        Args:
            options: Options of this program.
            place: The program is alone in its process.
        """
        refuse_threads(place)
        self.trace: Trace = NoTrace()
        self.details: dict[str, Any] = options.model_dump(exclude_none=True)
        self._options = options
        with turns.building():
            self.gpu = self._build(options)
            for _ in range(WARM_UP):
                self.step()
            self.finish()
        with turns.timing():
            self.details["step_ms"] = round(step_milliseconds(self.step, self.finish), 3)

    @abstractmethod
    def _build(self, options: OptionsT) -> str:
        """Create data and compile; return the GPU's name."""

    @abstractmethod
    def step(self) -> None:
        """Make a step and wait for it."""

    def finish(self) -> None:
        """Do nothing: `step` waits."""

    def throughout(self) -> AbstractContextManager[Any]:
        """Return a null context: a run of steps needs none."""
        return nullcontext()
