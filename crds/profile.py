"""GPUProfile: measurements of a workload's kernels, as an API object and as a file (profile_file.py).

A kernel is identified by its name, grid, block and dynamic shared memory, never by its position in a sequence. The CSV
files of the published Orion use the position, so a changed batch size makes them wrong. Times are nanoseconds, memory
is bytes.
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
    """The resource that limits a kernel."""

    COMPUTE = "compute"
    MEMORY = "memory"
    UNKNOWN = "unknown"

    @property
    def code(self) -> int:
        """The class's number in the shared pages (``enum orion_kernel_class``)."""
        return {"unknown": 0, "compute": 1, "memory": 2}[self.value]


class GPU(Model):
    """The GPU on which the workload was measured."""

    model: Annotated[str | None, Field(max_length=128)] = None
    """ The GPU model, as the driver names it. """

    sms: Positive | None = None
    """ The number of SMs of the GPU. """

    compute_capability: Annotated[str | None, Field(max_length=16)] = None
    """ The compute capability, such as "9.0". """


class Source(Model):
    """The source of the measurements."""

    kind: Literal["cupti", "orionCsv"]
    """ cupti: a trace of the running program. orionCsv: a CSV file of the published Orion (EuroSys'24). """

    command: Annotated[list[Line], Field(max_length=1_024)] = Field(default_factory=list)
    """ The traced program and its arguments; empty if there was no trace. """

    processes: NotNegative = 0
    """ The number of the program's processes that ran kernels. """

    warnings: Annotated[list[Line], Field(max_length=256)] = Field(default_factory=list)
    """ Sentences that say which measurements may be wrong. """


class SharedMemory(Model):
    """The shared memory of one block."""

    static: NotNegative = 0
    """ Shared memory that the kernel declares. Unit: bytes. """

    dynamic: NotNegative = 0
    """ Shared memory that the launch requests. Unit: bytes. """


class Duration(Model):
    """The GPU time of one launch."""

    median: Nanoseconds
    """ The median. Unit: nanoseconds. """

    p95: Nanoseconds
    """ The 95th percentile. Unit: nanoseconds. """


class Kernel(Model):
    """One kernel at one launch shape (grid, block and dynamic shared memory)."""

    name: Annotated[str, Field(max_length=NAME_MAX)]
    """ The demangled name. """

    mangled_name: Annotated[str | None, Field(max_length=NAME_MAX)] = None
    """ The mangled name, which the driver uses; absent if it is unknown. """

    identity: Annotated[str | None, Field(pattern="^[0-9a-f]{16}$", max_length=16)] = None
    """ The identity that the hook computes for such a launch, as 16 hexadecimal digits; absent if it is unknown. """

    grid: Shape | None = None
    """ The number of blocks in each of three dimensions. A profile from a CSV file of the published Orion lacks grid,
    block, sharedMemory and registers. """

    block: Shape | None = None
    """ The number of threads of a block in each of three dimensions. """

    shared_memory: SharedMemory | None = None
    """ The shared memory of one block. """

    registers: NotNegative | None = None
    """ The number of registers of one thread. """

    launches: Positive
    """ The number of launches that were measured. """

    duration_ns: Duration
    """ The GPU time of one launch. Unit: nanoseconds. """

    total_share: Share
    """ The kernel's fraction of the GPU time of all kernels, 0 to 1. """

    sms_needed: Positive | None = None
    """ The number of SMs that the whole grid fills at once, at most the number of SMs of the GPU; absent if the limits
    of the SMs are unknown. """

    sms_needed_uncapped: Positive | None = None
    """ As smsNeeded, but it can exceed the number of SMs of the GPU. Then the grid runs in several waves. """

    kernel_class: Annotated[KernelClass, Field(alias="class")] = KernelClass.UNKNOWN
    """ The resource that limits the kernel: compute, memory or unknown. """


class Latency(Model):
    """The latency of a request at one batch size and one share of the SMs."""

    batch: Positive
    """ The number of requests in one batch. """

    sm_share: Share
    """ The fraction of the GPU's SMs that the workload had, 0 to 1. """

    median_ns: Nanoseconds
    """ The median. Unit: nanoseconds. """

    p99_ns: Nanoseconds
    """ The 99th percentile. Unit: nanoseconds. """


class Sensitivity(Model):
    """The throughput of the workload with a limited amount of CPU or memory."""

    amount: Quantity
    """ The amount. For CPU in cores, for memory in bytes. """

    throughput: Share
    """ The throughput, divided by the throughput without a limit. 0 to 1. """


Sensitivities = Annotated[list[Sensitivity] | None, Field(max_length=64)]


class ProfileSpec(Model):
    """The measurements, their source and the GPU."""

    gpu: GPU
    """ The GPU on which the workload was measured. """

    source: Source
    """ The source of the measurements. """

    kernels: Annotated[list[Kernel], Field(max_length=KERNELS_MAX)]
    """ The kernels, sorted by GPU time, the longest first. """

    latency: Annotated[list[Latency] | None, Field(max_length=1_024)] = None
    """ The latency of a request by batch size and share of the SMs; absent: not measured. """

    cpu: Sensitivities = None
    """ The throughput by the number of CPU cores; absent: not measured. """

    memory: Sensitivities = None
    """ The throughput by the amount of host memory; absent: not measured. """


class GPUProfile(Model):
    """Measurements of a workload's kernels."""

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
        Column("GPU", ".spec.gpu.model", "string", "The GPU on which the workload was measured."),
        Column("Source", ".spec.source.kind", "string", "The source of the measurements."),
        Column("Kernel", ".spec.kernels[0].name", "string", "The kernel with the most GPU time.", wide=True),
        AGE,
    ),
    status=False,
)


@dataclass(frozen=True)
class SharedGpuRow:
    """The data of one kernel that the hook uses.

    Clients map a table of these rows. The table's writer hashes the first four fields into the kernel's identity.

    Args:
        name: the mangled name, as the driver reports it.
        grid: blocks in each dimension.
        block: threads in each dimension.
        shared_bytes: dynamic shared memory.
        duration_ns: the median GPU time of one launch.
        sms: the number of SMs that the grid fills; 0: unknown.
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
    """Return the rows that the policy can use, sorted by the kernels' GPU time, the longest first.

    Kernels without a shape (from CSV files of the published Orion) are left out: no launch could be matched to them.
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
