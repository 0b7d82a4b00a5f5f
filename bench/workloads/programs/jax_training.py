"""Training in JAX. XLA launches a jitted step as CUDA graphs, which it calls command buffers."""

# mypy: disable-error-code="import-not-found"
import os
from typing import Any

from orion.bench.workloads.programs import options as of
from orion.bench.workloads.programs.program import Program

WITHOUT_GRAPHS = "--xla_gpu_enable_command_buffer="


class JaxTraining(Program[of.JaxTraining]):
    """Layers with GELU, trained by plain gradient descent in one jitted step."""

    def _build(self, options: of.JaxTraining) -> str:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # XLA would take three quarters of the GPU's memory
        if not options.command_buffers:
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {WITHOUT_GRAPHS}".strip()
        import jax  # after the settings, which it reads once
        import jax.numpy as jnp

        def loss(weights: list[Any], batch: Any) -> Any:
            for weight in weights:
                batch = jax.nn.gelu(batch @ weight)
            return jnp.mean(batch.astype(jnp.float32) ** 2)

        def train(weights: list[Any], batch: Any) -> list[Any]:
            gradients = jax.grad(loss)(weights, batch)
            return [weight - 1e-3 * gradient for weight, gradient in zip(weights, gradients, strict=True)]

        shape = (options.width, options.width)
        keys = jax.random.split(jax.random.key(0), options.layers + 1)
        self._weights = [jax.random.normal(key, shape, jnp.bfloat16) * 0.02 for key in keys[1:]]
        self._batch = jax.random.normal(keys[0], (options.batch, options.width), jnp.bfloat16)
        self._train = jax.jit(train, donate_argnums=(0,) if options.donate else ())
        self._wait = jax.block_until_ready
        return str(jax.devices()[0].device_kind)

    def step(self) -> None:
        """Make one training step and wait for it."""
        self._weights = self._train(self._weights, self._batch)
        self._wait(self._weights)
