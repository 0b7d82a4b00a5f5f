"""The simulated stand-in of each workload: lets a measurement be tried, and tested, on any machine.

Durations and SMs are roughly an H200's, so a scenario's rates and lengths can be tried as they are. What they give on
the simulated GPU are no results; they show that a scenario runs to its end.
"""

from typing import Any

from orion.bench.workloads import options as of

Load = tuple[str, dict[str, Any]]
"""Kind and options of a workload."""

SMS = 132


def _step(milliseconds: float, kernels: int, sms: float, **others: Any) -> dict[str, Any]:
    """Return the options of a step that takes so long, in equal kernels."""
    need = min(SMS, max(1, round(sms)))
    return {"kernel_us": round(milliseconds * 1e3 / kernels, 3), "kernels": kernels, "sms": need, **others}


def _request(options: of.Inference, milliseconds: float, kernels: int, sms: float) -> Load:
    graph = options.mode == "graph"
    # Kernel by kernel, a small request takes what the launches take.
    length = milliseconds if graph else max(milliseconds, kernels * 0.01)
    step = _step(length, kernels, sms, graph=graph, stream_priority=options.stream_priority)
    return "simulated-inference", step


def resnet50_inference(options: of.ResNet50Inference) -> Load:
    """4.3 ms at 64 images, 0.9 ms at 4."""
    slower = {"bf16": 1.0, "autocast": 1.4, "tf32": 2.0}[options.precision]
    return _request(options, slower * (0.7 + 0.056 * options.batch), 60, 20 * options.batch)


def mobilenetv2_inference(options: of.Convolutional) -> Load:
    """1.8 ms at 64 images."""
    return _request(options, 0.5 + 0.02 * options.batch, 50, 8 * options.batch)


def bert_inference(options: of.BertInference) -> Load:
    """1.6 ms at 16 sequences of 128 words."""
    return _request(options, 0.5 + 0.07 * options.batch * options.length / 128, 50, 8 * options.batch)


def gpt_prefill(options: of.GptPrefill) -> Load:
    """1.8 ms for one prompt of 512 tokens."""
    return _request(options, 1.2 + 1.2 * options.batch * options.length / 1024, 60, options.batch * options.length / 8)


def gpt_decode(options: of.GptDecode) -> Load:
    """A token takes 1 ms, a little more for more sequences at once, and is waited for."""
    kind, step = gpt_decode_unsynchronised(options)
    return kind, {**step, "parts": options.tokens}


def gpt_decode_unsynchronised(options: of.GptDecode) -> Load:
    """The same without the waits: a request is queued as a whole."""
    kernels = 12  # a token
    per_token = 0.96 + 0.01 * options.batch
    load = _request(options, per_token, kernels, 24 + 2 * options.batch)
    return load[0], {**load[1], "kernels": kernels * options.tokens}


def _training(options: of.Training, milliseconds: float, kernels: int) -> Load:
    stall = options.stall_ms
    if stall is None:
        stall = round(milliseconds * options.stall / (1 - options.stall), 3)
    others = {"stream_priority": options.stream_priority, "amount": float(options.batch), "stall_ms": stall}
    return "simulated-training", _step(milliseconds, kernels, SMS, queued=not options.sync_each_step, **others)


def resnet50_training(options: of.ResNet50Training) -> Load:
    """54 ms at 256 images."""
    return _training(options, 0.21 * options.batch, 240)


def bert_training(options: of.BertTraining) -> Load:
    """59 ms at 32 sequences of 512 words."""
    return _training(options, 59.0 * options.batch * options.length / (32 * 512), 150)


def gpt_training(options: of.GptTraining) -> Load:
    """60 ms at 8 sequences of 1024 tokens."""
    return _training(options, 60.0 * options.batch * options.length / (8 * 1024), 200)


def _stress(options: of.Options, milliseconds: float, times: int, sms: float = SMS) -> Load:
    """Return a step of so many kernels, each taking so long."""
    step = _step(milliseconds * times, times, sms, amount=float(times), stream_priority=options.stream_priority)
    return "simulated-training", step


def gemm(options: of.Gemm) -> Load:
    """1.8 ms for a product of size 8192."""
    tiles = (options.size / 256) ** 2
    return _stress(options, max(0.01, 1.8 * (options.size / 8192) ** 3), options.products, tiles)


def elementwise(options: of.Elementwise) -> Load:
    """0.5 ms for a pass over 1 GiB."""
    return _stress(options, max(0.003, 0.5 * options.mib / 1024), options.passes, options.mib * 2)


def long_kernel(options: of.LongKernel) -> Load:
    """As long as it says."""
    return _stress(options, options.ms, options.kernels)


def spin(options: of.Spin) -> Load:
    """As long and as wide as it says."""
    return _stress(options, options.ms, options.kernels, options.blocks)
