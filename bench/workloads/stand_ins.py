"""The simulated stand-in of each workload: it replaces the workload when people test a measurement without a GPU.

A stand-in uses about the time and the SMs that its workload uses on an H200, so a scenario's rates and lengths fit.
Figures measured with stand-ins are no results: they only show that a scenario runs to its end.
"""

from typing import Any

from orion.bench.workloads import options as of

Load = tuple[str, dict[str, Any]]
"""Kind and options of a workload."""

SMS = 132


def simulated_step(milliseconds: float, kernels: int, sms: float, **others: Any) -> dict[str, Any]:
    """Return the options of a step that lasts `milliseconds` and consists of `kernels` equal kernels."""
    need = min(SMS, max(1, round(sms)))
    return {"kernel_us": round(milliseconds * 1e3 / kernels, 3), "kernels": kernels, "sms": need, **others}


def _request(options: of.Inference, milliseconds: float, kernels: int, sms: float) -> Load:
    graph = options.mode == "graph"
    # Without a graph, each launch takes 0.01 ms on the CPU, so the launches limit a small request.
    length = milliseconds if graph else max(milliseconds, kernels * 0.01)
    step = simulated_step(length, kernels, sms, graph=graph, stream_priority=options.stream_priority)
    return "simulated-inference", step


def resnet50_inference(options: of.ResNet50Inference) -> Load:
    """A request of 64 images takes 4.3 ms, one of 4 images 0.9 ms."""
    slower = {"bf16": 1.0, "autocast": 1.4, "tf32": 2.0}[options.precision]
    return _request(options, slower * (0.7 + 0.056 * options.batch), 60, 20 * options.batch)


def mobilenetv2_inference(options: of.Convolutional) -> Load:
    """A request of 64 images takes 1.8 ms."""
    return _request(options, 0.5 + 0.02 * options.batch, 50, 8 * options.batch)


def bert_inference(options: of.BertInference) -> Load:
    """A request of 16 sequences of 128 tokens takes 1.6 ms."""
    return _request(options, 0.5 + 0.07 * options.batch * options.length / 128, 50, 8 * options.batch)


def gpt_prefill(options: of.GptPrefill) -> Load:
    """A prompt of 512 tokens takes 1.8 ms."""
    return _request(options, 1.2 + 1.2 * options.batch * options.length / 1024, 60, options.batch * options.length / 8)


def gpt_decode(options: of.GptDecode) -> Load:
    """A token takes about 1 ms, and 0.01 ms more for each further sequence. The CPU waits for each token."""
    kind, step = gpt_decode_unsynchronised(options)
    return kind, {**step, "parts": options.tokens}


def gpt_decode_unsynchronised(options: of.GptDecode) -> Load:
    """As `gpt_decode`, but the CPU queues all tokens of a request together and waits once."""
    kernels = 12  # a token
    per_token = 0.96 + 0.01 * options.batch
    load = _request(options, per_token, kernels, 24 + 2 * options.batch)
    return load[0], {**load[1], "kernels": kernels * options.tokens}


def _training(options: of.DataParallelTraining, milliseconds: float, kernels: int) -> Load:
    stall = options.stall_ms
    if stall is None:
        stall = round(milliseconds * options.stall / (1 - options.stall), 3)
    others = {"stream_priority": options.stream_priority, "amount": float(options.batch), "stall_ms": stall}
    if options.ranks > 1:
        others["ranks"] = options.ranks
    return "simulated-training", simulated_step(milliseconds, kernels, SMS, queued=not options.sync_each_step, **others)


def resnet50_training(options: of.ResNet50Training) -> Load:
    """A step of 256 images takes 54 ms."""
    return _training(options, 0.21 * options.batch, 240)


def bert_training(options: of.BertTraining) -> Load:
    """A step of 32 sequences of 512 tokens takes 59 ms."""
    return _training(options, 59.0 * options.batch * options.length / (32 * 512), 150)


def gpt_training(options: of.GptTraining) -> Load:
    """A step of 8 sequences of 1024 tokens takes 60 ms."""
    return _training(options, 60.0 * options.batch * options.length / (8 * 1024), 200)


def _stress(options: of.Options, milliseconds: float, times: int, sms: float = SMS) -> Load:
    """Return a step of `times` kernels; each lasts `milliseconds`."""
    step = simulated_step(
        milliseconds * times, times, sms, amount=float(times), stream_priority=options.stream_priority
    )
    return "simulated-training", step


def gemm(options: of.Gemm) -> Load:
    """A product of two matrices of size 8192 takes 1.8 ms."""
    tiles = (options.size / 256) ** 2
    return _stress(options, max(0.01, 1.8 * (options.size / 8192) ** 3), options.products, tiles)


def elementwise(options: of.Elementwise) -> Load:
    """A pass over 1 GiB takes 0.5 ms."""
    return _stress(options, max(0.003, 0.5 * options.mib / 1024), options.passes, options.mib * 2)


def long_kernel(options: of.LongKernel) -> Load:
    """Each kernel lasts as long as the option `ms` says."""
    return _stress(options, options.ms, options.kernels)


def spin(options: of.Spin) -> Load:
    """As `long_kernel`, but a kernel uses one SM for each of its `blocks`."""
    return _stress(options, options.ms, options.kernels, options.blocks)
