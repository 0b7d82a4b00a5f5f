"""Which commands run after `pip install .` without extras, and the errors of those that need an extra.

The tests use their own interpreter; a start-up file hides every distribution that a plain install does not include.
"""

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

JOBS = [
    {"arch": "be", "num_iters": 20, "args": {"model_name": "resnet50", "train": True}},
    {"arch": "hp", "num_iters": 20, "args": {"model_name": "resnet50"}},
]


def _plain() -> set[str]:
    """Return the distributions of a plain install: orion-gpu's dependencies without extras, and their dependencies."""
    found: set[str] = set()
    wanted = ["orion-gpu"]
    while wanted:
        name = _normal(wanted.pop())
        if name in found:
            continue
        found.add(name)
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # a requirement of other operating systems only
            continue
        wanted += [re.match(r"[\w.-]+", line)[0] for line in requirements if "extra ==" not in line]  # type: ignore[index]
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which Python finds only the distributions of a plain install."""
    plain = _plain()
    hidden = sorted(
        module
        for module, owners in metadata.packages_distributions().items()
        if module.isidentifier() and not {_normal(owner) for owner in owners} & plain
    )
    assert {"numpy", "matplotlib", "kopf", "cryptography", "kubernetes", "cuda"} <= set(hidden)
    folder = tmp_path_factory.mktemp("plain")
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({hidden!r}))\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def _orion(
    environment: dict[str, str], *arguments: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orion.cli", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, cwd=folder)


def test_the_demo_runs_and_names_the_package_for_a_picture(environment: dict[str, str], tmp_path: Path) -> None:
    done = _orion(environment, "demo", "--simulated", "--seconds", "1.5", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "under Orion" in done.stdout
    assert "`pip install matplotlib`" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_job_file_runs_with_simulated_workloads(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text(json.dumps(JOBS))
    done = _orion(environment, "launch", "--simulated", str(tmp_path / "jobs.json"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["bench", "workloads"], ["policy", "--help"], ["profile", "--help"]],
    ids=" ".join,
)
def test_the_main_commands_need_no_extra(environment: dict[str, str], arguments: list[str]) -> None:
    done = _orion(environment, *arguments)
    assert done.returncode == 0, done.stderr


def test_doctor_runs(environment: dict[str, str], socket_folder: Path) -> None:
    done = _orion(environment, "doctor", "--simulated", "--root", str(socket_folder / "agent"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_trace_is_shown(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("0,gnmt,8,2300,1\n")
    done = _orion(environment, "trace", "show", str(tmp_path / "trace"))
    assert done.returncode == 0, done.stderr
    assert "1 job in the form synergy" in done.stdout


def test_a_pod_in_a_file_is_explained(environment: dict[str, str], tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "c"}]}}
    (tmp_path / "pod.yaml").write_text(json.dumps(pod))
    done = _orion(environment, "explain", "pod", "--offline", "-f", str(tmp_path / "pod.yaml"))
    assert done.returncode == 0, done.stderr
    assert "not managed" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["cleanup"],
        ["webhook"],
        ["explain", "pod", "web"],
        [
            "agent",
            "--gpus",
            "none",
            "--metrics-address",
            "",
            "--node-name",
            "n",
            "--operator",
            "a/b",
            "--root",
            "agent",
        ],
    ],
    ids=lambda value: " ".join(value[:2]),
)
def test_a_command_for_a_cluster_lacks_only_the_cluster(
    environment: dict[str, str], arguments: list[str], socket_folder: Path
) -> None:
    nowhere = {name: value for name, value in environment.items() if not name.startswith("KUBE")}
    done = _orion({**nowhere, "HOME": str(socket_folder)}, *arguments, folder=socket_folder)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "no API server is known" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "package"),
    [
        (["bench", "colocation", "--simulated", "scenario.yaml"], "numpy"),
        (["bench", "report", "."], "numpy"),
        (["simulate", "cluster", "--cluster", "c", "--profiles", "p", "--schedulers", "all", "-o", "o"], "highspy"),
        (["loadgen", "http://127.0.0.1:1/", "--rate", "1"], "numpy"),
        (["loadgen", "http://127.0.0.1:1/", "--rate", "1", "--hdr", "run.hlog"], "hdrhistogram"),
        (["plan", "fleet.yaml"], "numpy"),
        (["certificates", "show"], "cryptography"),
        (["operator"], "kopf"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else value,
)
def test_a_command_that_needs_an_extra_names_it_in_one_sentence(
    environment: dict[str, str], arguments: list[str], package: str, socket_folder: Path
) -> None:
    done = _orion(environment, *arguments, folder=socket_folder)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "is not installed" in done.stderr
    command = re.search(r"`(.*?)`", done.stderr)
    assert command is not None
    assert re.fullmatch(rf"\S+ -m pip install .*{package}.*", command[1])
    assert "orion-gpu" not in done.stderr


def test_no_text_installs_orion_from_a_package_index() -> None:
    """Nobody has registered the name orion-gpu on PyPI, so anybody could publish a package with this name."""
    checkout = Path(__file__).parents[2]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=checkout, capture_output=True, check=True, text=True).stdout
    texts = [path for path in listed.split("\0") if Path(path).suffix in (".py", ".md", ".c", ".h", ".toml", ".yaml")]
    wrong = re.compile(r"pip install[^\n]*orion-gpu")
    here = str(Path(__file__).relative_to(checkout))
    found = [path for path in texts if path != here and wrong.search((checkout / path).read_text(errors="replace"))]
    assert [path for path in found if path != "Dockerfile"] == []
