"""Shows a profile as a table."""

from typing import TYPE_CHECKING

from orion.cli.profiling.names import base_name
from orion.crds.profile import GPUProfile, Kernel

if TYPE_CHECKING:
    from rich.console import RenderableType


def format_duration(nanoseconds: float) -> str:
    """Return a time with three digits and its unit."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def _sms(kernel: Kernel) -> str:
    if kernel.sms_needed is None:
        return "?"
    wanted = kernel.sms_needed_uncapped or kernel.sms_needed
    return f"{kernel.sms_needed}" if wanted == kernel.sms_needed else f"{kernel.sms_needed} of {wanted}"


def _shape(kernel: Kernel) -> str:
    if kernel.grid is None or kernel.block is None:
        return "?"
    return " / ".join("x".join(str(side) for side in sides) for sides in (kernel.grid, kernel.block))


def picture(profile: GPUProfile, most: int) -> "RenderableType":
    """Return a table of the kernels with the most GPU time.

    Args:
        profile: to be shown.
        most: the highest number of kernels; one more row sums up the rest.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    gpu, source = profile.spec.gpu, profile.spec.source
    kernels = sorted(profile.spec.kernels, key=lambda kernel: -kernel.total_share)
    title = f"{profile.metadata.name}: {len(kernels)} kernels, {sum(kernel.launches for kernel in kernels)} launches"
    title += f", {gpu.model or 'GPU unknown'}" + (f", {gpu.sms} SMs" if gpu.sms else "")
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("share", "launches", "median", "p95", "SMs", "class"):
        table.add_column(name, justify="left" if name == "class" else "right", no_wrap=True)
    table.add_column("grid / block", no_wrap=True)
    table.add_column("kernel", no_wrap=True, overflow="ellipsis")
    for kernel in kernels[:most]:
        times = (format_duration(kernel.duration_ns.median), format_duration(kernel.duration_ns.p95))
        cells = (f"{kernel.total_share:.1%}", str(kernel.launches), *times, _sms(kernel), kernel.kernel_class.value)
        table.add_row(*(Text(cell) for cell in (*cells, _shape(kernel), base_name(kernel.name))))
    if rest := kernels[most:]:
        share = sum(kernel.total_share for kernel in rest)
        table.add_row(f"{share:.1%}", str(sum(kernel.launches for kernel in rest)), *[""] * 5, f"{len(rest)} more")
    return Group(table, *(Text(f"note: {warning}", style="yellow") for warning in source.warnings))
