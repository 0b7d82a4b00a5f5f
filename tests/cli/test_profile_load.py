"""`orion profile load`, `unload` and `orion run --profile`, with a real agent of the simulated GPU."""

from pathlib import Path

import pytest

from orion.cli import agents
from orion.crds.metadata import Metadata
from orion.crds.profile import GPU, Duration, GPUProfile, Kernel, KernelClass, ProfileSpec, Source
from orion.crds.profile_file import format_profile
from orion.hook import identity
from tests.cli.orion_command import orion, run

GEMM = Kernel(
    name="gemm(float*)",
    mangled_name="_Z4gemmPf",
    grid=(132, 1, 1),
    block=(256, 1, 1),
    launches=5,
    duration_ns=Duration(median=1_800_000, p95=1_900_000),
    total_share=1.0,
    sms_needed=132,
    kernel_class=KernelClass.COMPUTE,
)


def write(path: Path, *kernels: Kernel) -> Path:
    spec = ProfileSpec(gpu=GPU(), source=Source(kind="cupti"), kernels=list(kernels))
    path.write_text(format_profile(GPUProfile(metadata=Metadata(name="serve"), spec=spec)))
    return path


def profiled(root: Path) -> dict[str, int]:
    return {slot.name: slot.profile_kernels for gpu in agents.ask(root).gpus for slot in gpu.slots}


def test_a_profile_is_loaded_into_an_agent_and_unloaded(root: Path, tmp_path: Path) -> None:
    assert run(root, "--priority", "hp").returncode == 0
    file = write(tmp_path / "serve.yaml", GEMM, GEMM.model_copy(update={"grid": (4, 4, 1)}))
    done = orion("profile", "load", file, "--root", root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("hp-0: 2 kernels of a profile, 0 learnt\n")
    assert profiled(root) == {"hp-0": 2}
    assert orion("profile", "unload", "--slot", "hp-0", "--gpu", "0", "--root", root).returncode == 0
    assert profiled(root) == {"hp-0": 0}


def test_run_loads_the_programs_profile(root: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "serve.yaml", GEMM)
    assert run(root, "--priority", "hp", "--profile", file).returncode == 0
    assert profiled(root) == {"hp-0": 1}
    assert run(root, "--priority", "hp").returncode == 0  # without a profile, the slot keeps the one that it has
    assert profiled(root)["hp-0"] == 1


def test_a_profile_that_the_policy_cannot_use_is_rejected(root: Path, tmp_path: Path) -> None:
    assert run(root, "--priority", "hp").returncode == 0
    orions = tmp_path / "resnet50"
    orions.write_text("Name,Profile,Memory_footprint,SM_usage,Duration\nConv,1,0,98,100480\n")
    imported = tmp_path / "imported.yaml"
    assert orion("profile", "import", orions, "-o", imported).returncode == 0
    own = f"{identity.kernel_identity(b'_Z4gemmPf', (132, 1, 1), (256, 1, 1), 0):016x}"
    changed = write(tmp_path / "changed.yaml", GEMM.model_copy(update={"identity": "0" * 15 + "1"}))
    for file, sentence in (
        (orions, "identifies launches by position"),
        (imported, "identifies launches by position"),
        (write(tmp_path / "empty.yaml"), "there is no kernel in it"),
        (changed, f"whose identity is {own}; if you changed these, remove the identity"),
        (tmp_path / "none.yaml", "No such file"),
    ):
        refused = orion("profile", "load", file, "--root", root)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
        assert sentence in refused.stderr
    right = write(tmp_path / "right.yaml", GEMM.model_copy(update={"identity": own}))
    assert orion("profile", "load", right, "--root", root).returncode == 0
    refused = orion("profile", "load", right, "--slot", "be-9", "--root", root)
    assert "there is no slot 'be-9'; the slots are: hp-0" in refused.stderr


@pytest.mark.parametrize("command", ["load", "unload"])
def test_without_an_agent_there_is_an_error(root: Path, tmp_path: Path, command: str) -> None:
    files = [write(tmp_path / "serve.yaml", GEMM)] if command == "load" else []
    refused = orion("profile", command, *files, "--root", root)
    assert refused.returncode == 1
    assert "no agent listens" in refused.stderr
