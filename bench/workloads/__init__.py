"""Workloads that the benchmarks run on a GPU: models for serving and training, and stress kernels.

Weights and data are random and stay on the GPU; nothing is downloaded. A workload does not know its role, the hook or
other processes: the same code runs in every system that is compared. The constructor sets the workload up and warms it
up, so a measurement never includes the first use of a library. `details` records options, versions and the measured
time of one step.

    registry, kind          workloads by name; `load` returns kind and options for a worker, `make` sets a workload up
    options                 the options of each workload
    inference               requests: the CPU launches the network once and waits once
    decoding                requests that generate token by token
    training                loops that run ahead of the GPU, with an optional input stall
    stress, spinning        matrix products, streaming through memory, long kernels
    programs                public programs that we did not write, such as JAX; skipped where their packages are missing
    graph_updates           sets the parameters of a CUDA graph's kernels before a launch
    networks, shapes        the models, and the sizes of the transformers
    on_gpu, timing          the base class of the torch workloads: stream and waits; the time of a step
    execution               how a network is launched: eager, as a CUDA graph, by torch.compile
    turns                   a lock: processes set up at the same time, but measure their step times one after another
    stand_ins, simulated    replacements on the simulated GPU, with about the same durations and SMs
    driver                  calls of the CUDA driver, for `simulated` and `spinning`

To add a workload, write a class with `step`, its options, an entry in the registry and a stand-in.
"""

from orion.bench.workloads.kind import Kind
from orion.bench.workloads.registry import KINDS, OptionRow, check, load, make, options_of, why_skipped
from orion.bench.workloads.stand_ins import Load

__all__ = ["KINDS", "Kind", "Load", "OptionRow", "check", "load", "make", "options_of", "why_skipped"]
