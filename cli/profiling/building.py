"""Makes a GPUProfile from the profiler's output."""

import re
from collections.abc import Sequence
from pathlib import PurePath

from orion.cli.profiling.collected import Collected, CollectedKernel, DeviceLine
from orion.cli.profiling.names import demangle
from orion.cli.profiling.occupancy import Limits, sms_needed
from orion.crds.metadata import Metadata
from orion.crds.profile import GPU, Duration, GPUProfile, Kernel, ProfileSpec, SharedMemory, Source
from orion.hook.identity import kernel_identity


def object_name(text: str) -> str:
    """Return a valid name of a Kubernetes object, made from any text."""
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.")[:63].strip("-.") or "profile"


def limits_of(device: DeviceLine) -> Limits:
    """Return the limits in a device's line."""
    return Limits(**{name: getattr(device, name) for name in Limits.__dataclass_fields__})


def _kernel(kernel: CollectedKernel, all_ns: int) -> Kernel:
    line, needed, capped = kernel.first, None, None
    if kernel.device is not None:
        limits = limits_of(kernel.device)
        blocks = line.grid[0] * line.grid[1] * line.grid[2]
        threads = line.block[0] * line.block[1] * line.block[2]
        needed = sms_needed(limits, blocks, threads, line.registers, line.static_shared + line.dynamic_shared)
        capped = min(needed, limits.sms)
    return Kernel(
        name=demangle(line.name),
        mangled_name=line.name,
        identity=f"{kernel_identity(line.name.encode(), line.grid, line.block, line.dynamic_shared):016x}",
        grid=line.grid,
        block=line.block,
        shared_memory=SharedMemory(static=line.static_shared, dynamic=line.dynamic_shared),
        registers=line.registers,
        launches=kernel.launches,
        duration_ns=Duration(median=round(kernel.percentile(50)), p95=round(kernel.percentile(95))),
        total_share=round(kernel.total_ns / all_ns, 6) if all_ns else 0.0,
        sms_needed=capped,
        sms_needed_uncapped=needed,
    )


def _warnings(collected: Collected) -> list[str]:
    """Return sentences that say which measurements may be wrong."""
    warnings = []
    with_kernels = [process for process in collected.processes if process.records]
    if len(with_kernels) > 1:
        warnings.append(
            f"{len(with_kernels)} processes ran kernels; kernels that ran at the same time have longer durations"
        )
    if dropped := sum(process.dropped for process in collected.processes):
        warnings.append(f"CUPTI's buffers were full, so {dropped} launches are missing")
    if unplaced := sum(process.unplaced for process in collected.processes):
        warnings.append(f"the profiler's table of kernels was full, so {unplaced} launches are missing")
    if untimed := sum(kernel.launches - kernel.timed for kernel in collected.kernels.values()):
        warnings.append(f"{untimed} launches had not ended when the program did, and have no duration")
    if killed := sum(not process.ended for process in with_kernels):
        warnings.append(
            f"{killed} of {len(with_kernels)} processes did not end by themselves; their last second may be missing"
        )
    if len({device.model for device in collected.devices}) > 1:
        warnings.append("GPUs of several models were used; a duration combines the launches on all of them")
    if collected.kernels and not collected.devices:
        warnings.append("the driver did not report the GPU's limits, so the SMs that kernels need are unknown")
    return warnings


def build_profile(collected: Collected, command: Sequence[str], name: str | None = None) -> GPUProfile:
    """Return the profile of the collected kernels, sorted by GPU time, the longest first.

    Args:
        collected: the merged output of one program's processes.
        command: the program and its arguments.
        name: the object's name; None: made from the program's name.
    """
    device = collected.devices[0] if collected.devices else None
    all_ns = sum(kernel.total_ns for kernel in collected.kernels.values())
    timed = sorted((k for k in collected.kernels.values() if k.timed), key=lambda kernel: -kernel.total_ns)
    gpu = GPU()
    if device is not None:
        gpu = GPU(model=device.model, sms=device.sms, compute_capability=f"{device.major}.{device.minor}")
    source = Source(
        kind="cupti",
        command=list(command),
        processes=sum(process.records > 0 for process in collected.processes),
        warnings=_warnings(collected),
    )
    return GPUProfile(
        metadata=Metadata(name=object_name(name or PurePath(command[0]).name)),
        spec=ProfileSpec(gpu=gpu, source=source, kernels=[_kernel(kernel, all_ns) for kernel in timed]),
    )
