"""The simulated stand-in of each program; see `orion.bench.workloads.stand_ins`. The durations are rough estimates."""

from typing import Any

from orion.bench.workloads.programs import options as of
from orion.bench.workloads.stand_ins import Load, simulated_step

FLOPS = 600e12  # bf16 products on an H200, achieved by the libraries, per second


def _stack_ms(options: of.Layers) -> float:
    """Return the milliseconds of a training step: each layer has one product forward and two backward."""
    return 3 * options.layers * 2e3 * options.batch * options.width**2 / FLOPS


def _steps(milliseconds: float, kernels: int, amount: float = 1.0, **others: Any) -> Load:
    step = simulated_step(max(milliseconds, kernels * 2e-3), kernels, 132, **others)
    return "simulated-training", {**step, "amount": amount}


def _requests(milliseconds: float, kernels: int, **others: Any) -> Load:
    return "simulated-inference", simulated_step(max(milliseconds, kernels * 2e-3), kernels, 132, **others)


def jax_training(options: of.JaxTraining) -> Load:
    """A step of 8 layers of 4096 x 4096 takes 5.6 ms, as one graph."""
    graph = options.command_buffers
    return _steps(_stack_ms(options), 38, graph=graph, updated=graph and not options.donate)


def compiled_training(options: of.CompiledTraining) -> Load:
    """As JAX; in two modes forward and backward are graphs."""
    return _steps(_stack_ms(options), 40, options.batch, graph=options.mode != "default", queued=True)


def decode_graph(options: of.DecodeGraph) -> Load:
    """A replay of 130 layers takes 30 ms."""
    layers, product_ms = options.layers * options.branches, 2e3 * options.batch * options.width**2 / FLOPS
    return _requests(layers * product_ms, 2 * layers, graph=True, updated=options.updated)


def pyg_training(options: of.PygTraining) -> Load:
    """Four layers of width 256 over 400,000 edges take about 8 ms."""
    return _steps(8.0 * options.layers * options.edges * options.width / (4 * 400_000 * 256), 120, queued=True)


def cupy_fft(options: of.CupyFft) -> Load:
    """Two transforms of 64 x 2^20 take about 3 ms."""
    return _steps(3.0 * options.batch * options.points / 2**26, 6, 2.0)


def peft_finetuning(options: of.PeftFinetuning) -> Load:
    """A step of 8 x 1024 tokens with 8 layers of width 2048 takes about 60 ms."""
    tokens = options.batch * options.length
    flops = 8 * tokens * options.layers * 12.5 * options.width**2
    return _steps(1e3 * flops / FLOPS + 20.0, 600, options.batch, queued=True)


def generate(options: of.Generate) -> Load:
    """The launches of eager kernels limit a token: about 0.3 ms for each layer."""
    milliseconds = 0.3 * options.layers
    return _requests(milliseconds * options.tokens, 12 * options.tokens, parts=options.tokens)


def timm_inference(options: of.TimmInference) -> Load:
    """A request of 16 images takes about 4 ms."""
    return _requests(2.0 + 0.12 * options.batch, 150, graph=options.mode in ("reduce-overhead", "max-autotune"))


def lightning_training(options: of.LightningTraining) -> Load:
    """Eager; about 6 ms for 8 layers of width 2048."""
    return _steps(2.0 + 3 * _stack_ms(options), 100, options.batch, queued=True)


def triton_kernels(options: of.TritonKernels) -> Load:
    """A product and a softmax of 4096 x 4096 take about 0.35 ms."""
    milliseconds = 0.35 * options.repeats * (options.size / 4096) ** 3
    return _steps(milliseconds, 2 * options.repeats, options.repeats)
