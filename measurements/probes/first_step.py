"""How long JAX takes for the first training step, and for later ones: XLA times variants of its kernels in the first.

On a machine with an NVIDIA GPU and JAX: `python3 -m measurements.probes.first_step`, and under Orion
`orion run --priority be -- python3 -m measurements.probes.first_step`. XLA warns if its delay kernel timed out.
"""

import os
import statistics
import time

from measurements.probes.graph_programs import STEPS, WARM_UP, jax_step


def main() -> None:
    """Print both times."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # XLA would take three quarters of the GPU's memory
    step, took = jax_step(donate=False), []
    for _ in range(1 + WARM_UP + STEPS):
        began = time.perf_counter()
        step()
        took.append(time.perf_counter() - began)
    print(f"first step {took[0]:.2f} s, later ones {statistics.median(took[-STEPS:]) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
