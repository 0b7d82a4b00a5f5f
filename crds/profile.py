"""GPUProfile: what was measured of a workload's kernels, as a file that people read and machines check.

A kernel is known by name, grid, block and dynamic shared memory, never by its position in a sequence (Orion's CSV goes
by position: a changed batch size makes such a profile lie). Times are nanoseconds, memory is bytes.

    profile = parse_profile(Path("profile.yaml").read_text(), "profile.yaml")
    rows = board_rows(profile)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

API_VERSION = "orion.gpu/v1alpha1"
KIND = "GPUProfile"

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Nanoseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Shape = tuple[Positive, Positive, Positive]


class ProfileError(ValueError):
    """A file is no GPUProfile; the text is a sentence with the file, the line and what is expected."""


class KernelClass(StrEnum):
    """What a kernel is short of."""

    COMPUTE = "compute"
    MEMORY = "memory"
    UNKNOWN = "unknown"

    @property
    def code(self) -> int:
        """Its number on the board (``enum orion_kernel_class`` of the hook's pages)."""
        return {"unknown": 0, "compute": 1, "memory": 2}[self.value]


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class GPU(_Part):
    """The GPU that was measured on.

    Args:
        model: as the driver names it.
        sms: its number of SMs.
        compute_capability: such as "9.0".
    """

    model: str | None = None
    sms: Positive | None = None
    compute_capability: str | None = None


class Source(_Part):
    """Where the figures come from.

    Args:
        kind: traced by CUPTI, or read from a CSV file of Orion's.
        command: the program and its arguments, where it was traced.
        processes: how many of its processes ran kernels.
        warnings: sentences on what may be wrong with the figures.
    """

    kind: Literal["cupti", "orionCsv"]
    command: list[str] = []
    processes: NotNegative = 0
    warnings: list[str] = []


class SharedMemory(_Part):
    """Shared memory of one block, bytes."""

    static: NotNegative = 0
    dynamic: NotNegative = 0


class Duration(_Part):
    """Time of one launch on the GPU, nanoseconds."""

    median: Nanoseconds
    p95: Nanoseconds


class Kernel(_Part):
    """One kernel at one shape.

    Args:
        name: demangled.
        mangled_name: as the driver knows it; None where it is not known.
        identity: the hook's identity of such a launch, 16 hexadecimal digits, where it is known.
        grid: blocks; None in a profile from Orion's CSV, as block, shared_memory and registers.
        block: threads.
        registers: of one thread.
        launches: how many were seen.
        total_share: its share of the GPU time of all kernels, 0 to 1.
        sms_needed: SMs that its whole grid fills at once, at most as many as there are; None where limits are unknown.
        sms_needed_uncapped: the same without that bound; above it, the grid runs in several waves.
        kernel_class: what it is short of.
    """

    name: str
    mangled_name: str | None = None
    identity: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None = None
    grid: Shape | None = None
    block: Shape | None = None
    shared_memory: SharedMemory | None = None
    registers: NotNegative | None = None
    launches: Positive
    duration_ns: Duration
    total_share: Share
    sms_needed: Positive | None = None
    sms_needed_uncapped: Positive | None = None
    kernel_class: Annotated[KernelClass, Field(alias="class")] = KernelClass.UNKNOWN


class Metadata(_Part):
    """What Kubernetes asks of every object, as far as a file needs it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]


class ProfileSpec(_Part):
    """GPU, source and kernels, those with the most GPU time first."""

    gpu: GPU
    source: Source
    kernels: list[Kernel]


class GPUProfile(_Part):
    """One profile."""

    api_version: Literal["orion.gpu/v1alpha1"] = "orion.gpu/v1alpha1"
    kind: Literal["GPUProfile"] = "GPUProfile"
    metadata: Metadata
    spec: ProfileSpec


@dataclass(frozen=True)
class BoardRow:
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


def board_rows(profile: GPUProfile) -> list[BoardRow]:
    """Return what of a profile the policy can use, the kernels with the most GPU time first.

    Kernels without a shape (from Orion's CSV) are left out: no launch could be told to be theirs.
    """
    return [
        BoardRow(
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


def format_profile(profile: GPUProfile) -> str:
    """Return a profile as YAML; what is not known is left out."""
    plain = profile.model_dump(mode="json", by_alias=True, exclude_none=True)
    text: str = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=4096, allow_unicode=True)
    return text


def parse_profile(text: str, place: str) -> GPUProfile:
    """Return the profile that YAML says.

    Args:
        text: the YAML.
        place: the file's name, for errors.

    Raises:
        ProfileError: it is no GPUProfile.
    """
    try:
        plain = yaml.load(text, Loader=_LOADER)
        return GPUProfile.model_validate(plain)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise ProfileError(f"{place}:{mark.line + 1 if mark else 1}: expected YAML: {problem}") from None
    except ValidationError as error:
        # A misspelt field is an extra and a missing one: the first says more.
        first = min(error.errors(include_url=False), key=lambda each: each["type"] == "missing")
        path = [part for part in first["loc"] if not (isinstance(part, str) and part.startswith("constrained-"))]
        field = ".".join(str(part) for part in path) or "the document"
        was = f", is {first['input']!r}"[:80] if first["type"] not in ("missing", "model_type") else ""
        raise ProfileError(f"{place}:{_line(text, path)}: {field}: {first['msg']}{was}") from None


def _line(text: str, path: Sequence[int | str]) -> int:
    """Return the line, from 1, on which the deepest part of a path begins that is there."""
    node: Any = yaml.compose(text, Loader=_LOADER)
    line = 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == part]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Dumper(yaml.SafeDumper):
    """Lists of numbers on one line: a grid is read as one thing."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        numbers = bool(sequence) and all(isinstance(item, int | float) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=numbers or flow_style)
