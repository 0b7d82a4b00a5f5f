"""What the benchmarks run on a GPU: models that people serve and train, and kernels as stress.

Random weights and data that stay on the GPU, nothing downloaded. A workload knows nothing of roles, hooks or other
processes: the same code runs in every system that is compared. It is set up and fully warm once it is made, so no
first use of anything falls into a measurement, and it says in its `details` what it is: options, versions, and the
time of one step as it found it then.

Where to look:

    registry                the names; `load` is the door to what a worker is told, `make` sets a workload up
    options                 what may be said of each
    inference, decoding     requests: one launch and one wait; generation token by token
    training                loops that run ahead of the GPU, with an input stall where it is wanted
    stress                  matrix products, streaming, long kernels (`spinning`)
    networks, shapes        the models
    on_gpu, execution       what all of them share: stream and waiting; eager, CUDA graph, torch.compile
    turns                   processes that are set up together time themselves one after the other
    stand_ins, simulated    the same loads in the eyes of a scheduler, on the simulated GPU

A new workload is a class with `step`, its options, a line in the registry and a stand-in.
"""

from orion.bench.workloads.registry import KINDS, OptionRow, WorkloadError, check, load, make, options_of
from orion.bench.workloads.stand_ins import Load

__all__ = ["KINDS", "Load", "OptionRow", "WorkloadError", "check", "load", "make", "options_of"]
