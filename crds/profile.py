"""GPUProfile: what was measured of a workload's kernels, as an object of the API and as a file (profile_file.py).

A kernel is known by name, grid, block and dynamic shared memory, never by its position in a sequence (Orion's CSV goes
by position: a changed batch size makes such a profile lie). Times are nanoseconds, memory is bytes.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from orion.crds.kinds import AGE, Column, Kind
from orion.crds.metadata import Metadata
from orion.crds.model import Model
from orion.crds.quantities import Quantity

KERNELS_MAX = 16_384
NAME_MAX = 65_536

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Nanoseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Word = Annotated[int, Field(ge=1, lt=2**32)]
Line = Annotated[str, Field(max_length=NAME_MAX)]
Shape = tuple[Word, Word, Word]


class KernelClass(StrEnum):
    """What a kernel is short of."""

    COMPUTE = "compute"
    MEMORY = "memory"
    UNKNOWN = "unknown"

    @property
    def code(self) -> int:
        """Its number on the GPU (``enum orion_kernel_class`` of the hook's pages)."""
        return {"unknown": 0, "compute": 1, "memory": 2}[self.value]


class GPU(Model):
    """The GPU that was measured on."""

    model: Annotated[str | None, Field(max_length=128)] = None
    """ As the driver names it. """

    sms: Positive | None = None
    """ Its number of SMs. """

    compute_capability: Annotated[str | None, Field(max_length=16)] = None
    """ Such as "9.0". """


class Source(Model):
    """Where the figures come from."""

    kind: Literal["cupti", "orionCsv"]
    """ cupti: traced. orionCsv: read from a CSV file of Orion's. """

    command: Annotated[list[Line], Field(max_length=1_024)] = Field(default_factory=list)
    """ The program and its arguments, where it was traced. """

    processes: NotNegative = 0
    """ How many of its processes ran kernels. """

    warnings: Annotated[list[Line], Field(max_length=256)] = Field(default_factory=list)
    """ Sentences on what may be wrong with the figures. """


class SharedMemory(Model):
    """Shared memory of one block."""

    static: NotNegative = 0
    """ Declared in the kernel. Unit: bytes. """

    dynamic: NotNegative = 0
    """ Asked for by the launch. Unit: bytes. """


class Duration(Model):
    """Time of one launch on the GPU."""

    median: Nanoseconds
    """ Unit: nanoseconds. """

    p95: Nanoseconds
    """ The 95th percentile. Unit: nanoseconds. """


class Kernel(Model):
    """One kernel at one shape."""

    name: Annotated[str, Field(max_length=NAME_MAX)]
    """ Demangled. """

    mangled_name: Annotated[str | None, Field(max_length=NAME_MAX)] = None
    """ As the driver knows it; absent where it is not known. """

    identity: Annotated[str | None, Field(pattern="^[0-9a-f]{16}$", max_length=16)] = None
    """ The hook's identity of such a launch, 16 hexadecimal digits; absent where it is not known. """

    grid: Shape | None = None
    """ Blocks, in three dimensions; absent in a profile from Orion's CSV, as block, sharedMemory and registers. """

    block: Shape | None = None
    """ Threads of a block, in three dimensions. """

    shared_memory: SharedMemory | None = None
    """ Of one block. """

    registers: NotNegative | None = None
    """ Of one thread. """

    launches: Positive
    """ How many were seen. """

    duration_ns: Duration
    """ Time of one launch on the GPU. Unit: nanoseconds. """

    total_share: Share
    """ Its share of the GPU time of all kernels, 0 to 1. """

    sms_needed: Positive | None = None
    """ SMs that its whole grid fills at once, at most as many as there are; absent where limits are unknown. """

    sms_needed_uncapped: Positive | None = None
    """ The same without that bound; above it, the grid runs in several waves. """

    kernel_class: Annotated[KernelClass, Field(alias="class")] = KernelClass.UNKNOWN
    """ What it is short of: compute, memory or unknown. """


class Latency(Model):
    """What a request took at one batch size and SM share."""

    batch: Positive
    """ Requests in one batch. """

    sm_share: Share
    """ The part of the GPU's SMs that it had, 0 to 1. """

    median_ns: Nanoseconds
    """ Unit: nanoseconds. """

    p99_ns: Nanoseconds
    """ The 99th percentile. Unit: nanoseconds. """


class Sensitivity(Model):
    """What the workload reached with an amount of CPU or memory."""

    amount: Quantity
    """ CPU: cores; memory: bytes. """

    throughput: Share
    """ Of what it reaches with as much as it wants, 0 to 1. """


Sensitivities = Annotated[list[Sensitivity] | None, Field(max_length=64)]


class ProfileSpec(Model):
    """What was measured, on which GPU and how."""

    gpu: GPU
    """ The GPU that was measured on. """

    source: Source
    """ Where the figures come from. """

    kernels: Annotated[list[Kernel], Field(max_length=KERNELS_MAX)]
    """ The kernels, those with the most GPU time first. """

    latency: Annotated[list[Latency] | None, Field(max_length=1_024)] = None
    """ What a request took, by batch size and SM share; absent: not measured. """

    cpu: Sensitivities = None
    """ Throughput by CPU cores; absent: not measured. """

    memory: Sensitivities = None
    """ Throughput by the host's memory; absent: not measured. """


class GPUProfile(Model):
    """What was measured of a workload."""

    api_version: Literal["orion.gpu/v1alpha1"] = "orion.gpu/v1alpha1"
    kind: Literal["GPUProfile"] = "GPUProfile"
    metadata: Metadata
    spec: ProfileSpec


KIND = Kind(
    GPUProfile,
    plural="gpuprofiles",
    singular="gpuprofile",
    short=("gprof",),
    scope="Namespaced",
    columns=(
        Column("GPU", ".spec.gpu.model", "string", "The GPU that was measured on."),
        Column("Source", ".spec.source.kind", "string", "Where the figures come from."),
        Column("Kernel", ".spec.kernels[0].name", "string", "The kernel with the most GPU time.", wide=True),
        AGE,
    ),
    status=False,
)


@dataclass(frozen=True)
class SharedGpuRow:
    """What the hook can use of one kernel; whoever makes the table that clients map hashes the first four.

    Args:
        name: mangled, as the driver tells it.
        grid: blocks.
        block: threads.
        shared_bytes: dynamic.
        duration_ns: the median.
        sms: 0 where it is not known.
        kernel_class: `KernelClass.code`.
    """

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    duration_ns: int
    sms: int
    kernel_class: int


def shared_gpu_rows(profile: GPUProfile) -> list[SharedGpuRow]:
    """Return what of a profile the policy can use, the kernels with the most GPU time first.

    Kernels without a shape (from Orion's CSV) are left out: no launch could be told to be theirs.
    """
    return [
        SharedGpuRow(
            name=kernel.mangled_name or kernel.name,
            grid=kernel.grid,
            block=kernel.block,
            shared_bytes=kernel.shared_memory.dynamic if kernel.shared_memory else 0,
            duration_ns=max(1, round(kernel.duration_ns.median)),
            sms=kernel.sms_needed or 0,
            kernel_class=kernel.kernel_class.code,
        )
        for kernel in sorted(profile.spec.kernels, key=lambda kernel: -kernel.total_share)
        if kernel.grid is not None and kernel.block is not None
    ]
