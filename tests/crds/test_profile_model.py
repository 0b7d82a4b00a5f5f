"""GPUProfiles as files: a written profile is read back equal, and errors name the line."""

import pytest

from orion.crds.metadata import Metadata
from orion.crds.profile import (
    GPU,
    Duration,
    GPUProfile,
    Kernel,
    KernelClass,
    ProfileSpec,
    SharedMemory,
    Source,
    shared_gpu_rows,
)
from orion.crds.profile_file import format_profile, parse_profile
from orion.errors import Unreadable
from orion.hook import layout


def kernel(name: str, share: float, **more: object) -> Kernel:
    values: dict[str, object] = {
        "name": f"{name}(int*)",
        "mangled_name": name,
        "grid": (4, 2, 1),
        "block": (256, 1, 1),
        "shared_memory": SharedMemory(static=512, dynamic=2048),
        "registers": 32,
        "launches": 10,
        "duration_ns": Duration(median=5000.4, p95=6000),
        "total_share": share,
        "sms_needed": 1,
        "sms_needed_uncapped": 1,
        "kernel_class": KernelClass.COMPUTE,
    }
    return Kernel.model_validate(values | more)


def profile(*kernels: Kernel) -> GPUProfile:
    return GPUProfile(
        metadata=Metadata(name="serve"),
        spec=ProfileSpec(
            gpu=GPU(model="NVIDIA H200", sms=132, compute_capability="9.0"),
            source=Source(kind="cupti", command=["python", "serve.py"], processes=1),
            kernels=list(kernels),
        ),
    )


def test_a_written_file_is_read_back_equal() -> None:
    whole = profile(kernel("a", 0.75, identity="00ff00ff00ff00ff"), kernel("b", 0.25, grid=None, block=None))
    assert parse_profile(format_profile(whole), "x") == whole


def test_the_file_is_readable_yaml_of_an_api_object() -> None:
    text = format_profile(profile(kernel("a", 1.0)))
    for line in (
        "apiVersion: orion.gpu/v1alpha1",
        "kind: GPUProfile",
        "  name: serve",
        "    computeCapability: '9.0'",
        "    grid: [4, 2, 1]",
        "    smsNeeded: 1",
        "    class: compute",
        "      median: 5000.4",
    ):
        assert line in text.splitlines()


def test_only_kernels_with_a_launch_shape_become_rows() -> None:
    rows = shared_gpu_rows(
        profile(kernel("small", 0.1, sms_needed=None), kernel("big", 0.9), kernel("csv", 0.5, grid=None))
    )
    assert [row.name for row in rows] == ["big", "small"]
    assert (rows[0].grid, rows[0].block, rows[0].shared_bytes) == ((4, 2, 1), (256, 1, 1), 2048)
    assert (rows[0].duration_ns, rows[0].sms, rows[0].kernel_class) == (5000, 1, 1)
    assert rows[1].sms == 0


def test_kernel_classes_have_the_numbers_of_the_shared_pages() -> None:
    assert {each.name: each.code for each in KernelClass} == {each.name: each.value for each in layout.KernelClass}


@pytest.mark.parametrize(
    ("line", "replacement", "where"),
    [
        ("    registers: 32", "    registers: -1", "spec.kernels.0.registers"),
        ("    class: compute", "    class: tensor", "spec.kernels.0.class"),
        ("    grid: [4, 2, 1]", "    grid: [4, 2]", "spec.kernels.0.grid"),
        ("    launches: 10", "    launchs: 10", "spec.kernels.0.launchs"),
        ("  name: serve", "  name: Serve It", "metadata.name"),
        ("kind: GPUProfile", "kind: GPUShare", "kind"),
    ],
)
def test_errors_name_the_line(line: str, replacement: str, where: str) -> None:
    text = format_profile(profile(kernel("a", 1.0)))
    assert line in text
    number = text.splitlines().index(line) + 1
    with pytest.raises(Unreadable, match=rf"^profile\.yaml:{number}: {where}") as refused:
        parse_profile(text.replace(line, replacement), "profile.yaml")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "3", "a: 1\na: !!python/object:os.system {}", "\t"])
def test_a_file_that_is_not_a_profile_is_an_error(text: str) -> None:
    with pytest.raises(Unreadable, match=r"^x:"):
        parse_profile(text, "x")
