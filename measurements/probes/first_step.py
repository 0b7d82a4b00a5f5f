"""How long JAX takes for the first training step, and for later ones: XLA times variants of its kernels in the first.

On a machine with an NVIDIA GPU and JAX: `python3 measurements/probes/first_step.py`, and under Orion
`orion run --priority be -- python3 measurements/probes/first_step.py`. XLA warns if its delay kernel timed out.
"""

# mypy: disable-error-code="import-not-found"
import os
import statistics
import time
from typing import Any

LAYERS, WIDTH = 8, 4096
BEFORE, STEPS = 20, 60


def main() -> None:
    """Print both times."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # XLA would take three quarters of the GPU's memory
    import jax  # after the setting, which it reads once
    import jax.numpy as jnp

    def loss(weights: list[Any], batch: Any) -> Any:
        for weight in weights:
            batch = jax.nn.gelu(batch @ weight)
        return jnp.mean(batch.astype(jnp.float32) ** 2)

    def train(weights: list[Any], batch: Any) -> list[Any]:
        gradients = jax.grad(loss)(weights, batch)
        return [weight - 1e-3 * gradient for weight, gradient in zip(weights, gradients, strict=True)]

    keys = jax.random.split(jax.random.key(0), LAYERS + 1)
    weights = [jax.random.normal(key, (WIDTH, WIDTH), jnp.bfloat16) * 0.02 for key in keys[1:]]
    batch = jax.random.normal(keys[0], (WIDTH, WIDTH), jnp.bfloat16)
    step, took = jax.jit(train), []
    jax.block_until_ready((weights, batch))
    for _ in range(1 + BEFORE + STEPS):
        began = time.perf_counter()
        weights = jax.block_until_ready(step(weights, batch))
        took.append(time.perf_counter() - began)
    print(f"first step {took[0]:.2f} s, later ones {statistics.median(took[-STEPS:]) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
