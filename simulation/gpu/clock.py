"""The GPU's clock under its power limit.

The model has two states: the average power of the last tens of milliseconds, and the speed. While the average is over
the limit, the speed drops; while it is under the limit, the speed rises. So matrix products that run without a pause
get slower within 0.1 s, a product after a pause is fast again, and hp's requests are slow for up to 0.1 s after long
products. Powers are parts of the limit. Speeds are parts of the speed at full clock.
"""

from orion.simulation.gpu.costs import PowerControl

STEP_MS = 0.5
SETTLED_MS = 5000.0  # after so long with the same work, the speed does not change any more
SLOWEST = 0.6  # part of full speed; no measured work came near it


class Clock:
    """The state of the clock; it begins at full speed after a rest."""

    def __init__(self, control: PowerControl) -> None:
        self.idle = control.idle_w.value / control.limit_w.value
        self.power = self.idle
        self.speed = 1.0
        self._memory = control.memory_ms.value
        self._exponent = control.exponent.value
        self._gain = control.gain_per_ms.value
        self._rise, self._drop = control.fastest_rise_per_ms.value, -control.fastest_drop_per_ms.value

    def rest(self, ms: float) -> None:
        """Let a time pass in which the GPU computes nothing."""
        self.run(ms, self.idle)

    def run(self, ms: float, power: float) -> float:
        """Let a time pass in which the GPU works.

        Args:
            ms: The time.
            power: What the work takes at full speed.

        Returns:
            The work that was done, in ms at full speed.
        """
        done = 0.0
        if ms > SETTLED_MS:
            return self.run(SETTLED_MS, power) + (ms - SETTLED_MS) * self.speed
        while ms > 0:
            step = min(ms, STEP_MS)
            self._advance(step, power)
            done += step * self.speed
            ms -= step
        return done

    def finish(self, work_ms: float, power: float, sensitivity: float) -> float:
        """Do an amount of work.

        Args:
            work_ms: The time that the work takes at full speed.
            power: What the work takes at full speed.
            sensitivity: How much longer the work takes for each 1 % that a matrix product takes longer, in percent.

        Returns:
            The time that the work takes, in ms.
        """
        passed = 0.0
        if work_ms > SETTLED_MS:
            passed = self.finish(SETTLED_MS, power, sensitivity)
            return passed + (work_ms - SETTLED_MS) * (1 + sensitivity * (1 / self.speed - 1))
        while work_ms > 0:
            slowness = 1 + sensitivity * (1 / self.speed - 1)
            step = min(work_ms * slowness, STEP_MS)
            self._advance(step, power)
            passed += step
            work_ms = 0.0 if step < STEP_MS else work_ms - step / slowness
        return passed

    def _advance(self, ms: float, power: float) -> None:
        if self.speed == 1.0 and power <= 1.0 and self.power <= 1.0:
            self.power += (power - self.power) * ms / (self._memory + ms)
            return
        self.power += (power * self.speed**self._exponent - self.power) * ms / (self._memory + ms)
        change = min(self._rise, max(self._drop, self._gain * (1.0 - self.power)))
        self.speed = min(1.0, max(SLOWEST, self.speed + change * ms))
