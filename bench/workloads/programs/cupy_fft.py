"""Fourier transforms in CuPy: cuFFT's kernels stream through memory."""

# mypy: disable-error-code="import-not-found"
from orion.bench.workloads.programs import options as of
from orion.bench.workloads.programs.program import Program


class CupyFft(Program[of.CupyFft]):
    """A complex transform and back, in single precision."""

    unit = "transforms"
    amount = 2.0

    def _build(self, options: of.CupyFft) -> str:
        import cupy

        self._cupy = cupy
        draw = cupy.random.default_rng(0)
        shape = (options.batch, options.points)
        real, imaginary = (draw.standard_normal(shape, dtype=cupy.float32) for _ in range(2))
        self._signal = real + 1j * imaginary
        return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())

    def step(self) -> None:
        """Transform, transform back, and wait."""
        self._signal = self._cupy.fft.ifft(self._cupy.fft.fft(self._signal, axis=1), axis=1)
        self._cupy.cuda.Stream.null.synchronize()
